"""Draw losses.svg: each loss, and the pull of its gradient, against p(target)."""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import torch

from expacc.registry import SPECS, list_losses

# Two classes, so that p(target) is the whole story; a loss of the rivals alone, or with noise of
# its own, is no curve over it; nor is that of a whole batch. The expected distance of two classes
# is the expected error.
LEFT_OUT = ("complement_entropy", "exact", "expected_distance")
LEFT_OUT += ("expected_balanced_error", "expected_f1_error")
BESIDE = {"focal": {"alpha": None}}  # as high as the others
MORE = [("mixed_expected_error", {"focus": 0.3}, "--")]


def label(spec, numbers):
    shown = [f"{name} {value:g}" for name, value in numbers.items() if value is not None]
    return ", ".join([spec.label, *shown])


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
    drawn = [
        (name, {**SPECS[name].defaults, **BESIDE.get(name, {})}, SPECS[name].look[3])
        for name in list_losses()
        if name not in LEFT_OUT
    ]
    for name, numbers, dash in drawn + MORE:
        spec = SPECS[name]
        p, values, pull = curve(spec.function, numbers)
        left.plot(p, values, dash, color=spec.look[0], label=label(spec, numbers), lw=1.8)
        right.plot(p, pull, dash, color=spec.look[0], lw=1.8)
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
