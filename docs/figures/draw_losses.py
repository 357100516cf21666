"""Draw losses.svg and robust.svg: each loss, and the pull of its gradient, against p(target)."""

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
BESIDE = {"focal": {"alpha": None}}  # as high as the others
MORE = [("mixed_expected_error", {"focus": 0.3}, "--")]
COLUMNS = 5


def label(spec, numbers):
    shown = [f"{name} {value:g}" for name, value in numbers.items() if value is not None]
    return ", ".join([spec.label, *(shown if len(shown) < 3 else [])])


def curve(function, numbers):
    p = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    logits = torch.stack([p, 1 - p], 1).log().requires_grad_()
    values = function(logits, torch.zeros(len(p), dtype=torch.int64), reduction="none", **numbers)
    (grad,) = torch.autograd.grad(values.sum(), logits)
    return p, values.detach(), grad[:, 0].abs()


def drawn(*families: str) -> list[tuple[str, dict, str]]:
    """(name, numbers, dash) of the losses that are curves over p."""
    return [
        (loss, {**SPECS[loss].defaults, **BESIDE.get(loss, {})}, SPECS[loss].look[3])
        for loss in list_losses()
        if loss not in LEFT_OUT and SPECS[loss].family in families
    ]


def draw_together() -> None:
    """Ours and the classic ones, in one frame."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for loss, numbers, dash in drawn("reference", "ours", "classic") + MORE:
        spec = SPECS[loss]
        p, values, pull = curve(spec.function, numbers)
        left.plot(p, values, dash, color=spec.look[0], label=label(spec, numbers), lw=1.8)
        right.plot(p, pull, dash, color=spec.look[0], lw=1.8)
    left.set(title="loss", xlabel="p(target)", ylim=(0, 3), xlim=(0, 1))
    right.set(title="pull on the true class's logit, |dL/dz|", xlabel="p(target)", ylim=(0, 1.4))
    right.set_xlim(0, 1)
    for axis in (left, right):
        axis.axvline(0.5, color="#cccccc", lw=1, zorder=0)
    figure.legend(loc="outside right center", frameon=False)
    save(figure, "losses.svg")


def draw_one_by_one() -> None:
    """Those made against wrong labels: many, and near to each other."""
    losses = drawn("robust")
    rows = -(-len(losses) // COLUMNS)
    figure, axes = plt.subplots(
        rows, COLUMNS, figsize=(10, 1.9 * rows), sharex=True, sharey=True, layout="constrained"
    )
    for axis, (loss, numbers, _) in zip(axes.flat, losses, strict=False):
        spec = SPECS[loss]
        p, values, pull = curve(spec.function, numbers)
        # Their steps differ by a factor of a hundred, which a learning rate makes good.
        axis.plot(p, 1 - p, color="#999999", lw=1, label="pull of cross entropy")
        axis.plot(
            p, values / values.max(), "--", color="#555555", lw=1, label="loss, by its largest"
        )
        axis.plot(p, pull / pull.max(), color="#b2182b", lw=1.8, label="pull, by its largest")
        axis.set_title(label(spec, numbers).replace(", ", "\n", 1), fontsize=8)
        axis.set(xlim=(0, 1), ylim=(0, 1.05), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
        axis.tick_params(labelsize=8)
    for axis in axes.flat[len(losses) :]:
        axis.set_axis_off()
    figure.supxlabel("p(target), of two classes", fontsize=9)
    handles, names = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    save(figure, "robust.svg")


def save(figure: plt.Figure, name: str) -> None:
    path = Path(__file__).with_name(name)
    figure.savefig(path, metadata={"Date": None}, transparent=False)
    print(path)


if __name__ == "__main__":
    plt.rcParams.update(
        {
            "svg.hashsalt": "expacc",
            "font.size": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    )
    draw_together()
    draw_one_by_one()
