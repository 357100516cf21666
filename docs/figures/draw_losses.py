"""Draw losses.svg and robust.svg: each loss, and the pull of its gradient, against p(target).

The losses made against wrong labels are many: they have a figure of their own.
"""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import torch

from expacc.registry import SPECS, list_losses

# Two classes, so that p(target) is the whole story; a loss of the rivals alone, or with noise of
# its own, is no curve over it; nor is that of a whole batch. The expected distance of two classes
# is the expected error.
LEFT_OUT = ["complement_entropy", "exact", "expected_distance"]
LEFT_OUT += ["expected_balanced_error", "expected_f1_error"]
# By their largest pull they are the mean absolute error or nearly so.
LEFT_OUT += ["reverse_cross_entropy", "symmetric_cross_entropy", "asymmetric_exponential"]
LEFT_OUT += [f"normalized_and_{a}" for a in ("reverse_cross_entropy", "asymmetric_exponential")]
LEFT_OUT += ["normalized_and_asymmetric_unhinged"]
BESIDE = {"focal": {"alpha": None}}  # as high as the others
MORE = [("mixed_expected_error", {"focus": 0.3}, "--")]
FIGURES = {"losses.svg": ("reference", "ours", "classic"), "robust.svg": ("reference", "robust")}


def label(spec, numbers):
    shown = [f"{name} {value:g}" for name, value in numbers.items() if value is not None]
    return ", ".join([spec.label, *(shown if len(shown) < 3 else [])])


def curve(function, numbers):
    p = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    logits = torch.stack([p, 1 - p], 1).log().requires_grad_()
    values = function(logits, torch.zeros(len(p), dtype=torch.int64), reduction="none", **numbers)
    (grad,) = torch.autograd.grad(values.sum(), logits)
    return p, values.detach(), grad[:, 0].abs()


def draw(name: str, families: tuple[str, ...]) -> None:
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
        (loss, {**SPECS[loss].defaults, **BESIDE.get(loss, {})}, SPECS[loss].look[3])
        for loss in list_losses()
        if loss not in LEFT_OUT and SPECS[loss].family in families
    ]
    if "ours" in families:
        drawn += MORE
    for loss, numbers, dash in drawn:
        spec = SPECS[loss]
        p, values, pull = curve(spec.function, numbers)
        if "robust" in families and spec.family != "reference":
            # Their steps differ by a factor of a hundred, which a learning rate makes good.
            values, pull = values / pull.max(), pull / pull.max()
        left.plot(p, values, dash, color=spec.look[0], label=label(spec, numbers), lw=1.8)
        right.plot(p, pull, dash, color=spec.look[0], lw=1.8)
    scaled = ", each by its largest pull" if "robust" in families else ""
    left.set(title=f"loss{scaled}", xlabel="p(target)", ylim=(0, 4 if scaled else 3), xlim=(0, 1))
    right.set(
        title="pull on the true class's logit, |dL/dz|",
        xlabel="p(target)",
        ylim=(0, 1.1 if scaled else 1.4),
        xlim=(0, 1),
    )
    for axis in (left, right):
        axis.axvline(0.5, color="#cccccc", lw=1, zorder=0)
    figure.legend(loc="outside right center", frameon=False, fontsize=8 if scaled else 10)
    path = Path(__file__).with_name(name)
    figure.savefig(path, metadata={"Date": None}, transparent=False)
    print(path)


if __name__ == "__main__":
    for figure_name, shown_families in FIGURES.items():
        draw(figure_name, shown_families)
