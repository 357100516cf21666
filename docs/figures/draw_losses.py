"""Draw losses.svg: each loss, and the pull of its gradient, against p(target)."""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import torch

from expacc import baselines, functional

# Two classes, so that p(target) is the whole story; colours are safe for the colour-blind.
CURVES = [
    (
        "cross entropy",
        "#555555",
        "-",
        functional.mixed_expected_error,
        {"ce_weight": 1.0, "error_weight": 0.0},
    ),
    ("expected error", "#0072B2", "-", functional.expected_error, {}),
    ("leaky, leak 0.1", "#D55E00", "-", functional.leaky_expected_error, {}),
    ("mixture, focus 0", "#009E73", "-", functional.mixed_expected_error, {}),
    ("mixture, focus 0.3", "#009E73", "--", functional.mixed_expected_error, {"focus": 0.3}),
    ("generalised CE, q 0.7", "#CC79A7", "-", baselines.generalized_cross_entropy, {}),
    ("tamed CE, 0.8", "#E69F00", "-", baselines.tamed_cross_entropy, {}),
    ("focal, γ 2 (α 1)", "#56B4E9", "-", baselines.focal, {"alpha": None}),
    ("mean absolute error", "#0072B2", ":", baselines.mean_absolute_error, {}),
    ("hinge, margin 1", "#000000", ":", baselines.hinge, {}),
    ("max-probability CE", "#999933", "-", baselines.maximum_probability_cross_entropy, {}),
]


def curve(function, numbers):
    p = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    logits = torch.stack([p, 1 - p], 1).log().requires_grad_()
    values = function(logits, torch.zeros(len(p), dtype=torch.int64), reduction="none", **numbers)
    (grad,) = torch.autograd.grad(values.sum(), logits)
    return p, values.detach(), grad[:, 0].abs()


def main() -> None:
    plt.rcParams.update(
        {
            "svg.hashsalt": "expacc",
            "font.size": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    )
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for name, color, style, function, numbers in CURVES:
        p, values, pull = curve(function, numbers)
        left.plot(p, values, style, color=color, label=name, lw=1.8)
        right.plot(p, pull, style, color=color, lw=1.8)
    left.set(title="loss", xlabel="p(target)", ylim=(0, 3), xlim=(0, 1))
    right.set(
        title="pull on the true class's logit, |dL/dz|",
        xlabel="p(target)",
        ylim=(0, 1.4),
        xlim=(0, 1),
    )
    for axis in (left, right):
        axis.axvline(0.5, color="#cccccc", lw=1, zorder=0)
    figure.legend(loc="outside right center", frameon=False)
    path = Path(__file__).with_name("losses.svg")
    figure.savefig(path, metadata={"Date": None}, transparent=False)
    print(path)


if __name__ == "__main__":
    main()
