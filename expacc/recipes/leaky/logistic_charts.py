"""The charts of leerr-mnist-logistic, as the paper's Figures 2, 3 and 4, a panel per condition."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from expacc.recipes.leaky.plateaus import LOSSES, Runs, orders, stuck
from expacc.report.figures import Chart, chart, tidy_axes
from expacc.report.palette import INK, looks
from expacc.runner.rows import Row

__all__ = ["folds_chart", "large_rate_chart", "norms_chart", "whole_chart"]

_LOOK = looks(set(LOSSES))
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_LOWEST = 40.0  # per cent of accuracy: below it nothing is drawn

Found = Mapping[str, Runs]  # condition → its runs
Titles = Mapping[str, str]
Panel = Callable[[Axes, str], None]
Lines = Mapping[str, tuple[str, str]]  # name in the legend → colour and dash

_ALL: Lines = {name: (_LOOK[loss].colour, _LOOK[loss].dash) for loss, name in LOSSES.items()}
_RATES: Lines = {
    "EErr, 1e-2": (_LOOK["expected_error"].colour, "-"),
    "EErr, 1e-4": (_LOOK["expected_error"].colour, _LOOK["expected_error"].dash),
}


def whole_chart(found: Found, titles: Titles) -> Chart:
    """Figure 2: accuracy on training and test rows by epoch."""
    shown = [name for name, runs in found.items() if runs.whole]
    sides = (("train_accuracy", "training rows"), ("test_accuracy", "test rows"))

    def draw(width: float) -> Figure:
        wide = width > 5
        panels = [(name, *side) for name in shown for side in sides]
        shape = (len(shown), 2) if wide else (len(panels), 1)
        figure = Figure(figsize=(width, 2.1 * shape[0] + 0.5))
        grid = figure.subplots(*shape, squeeze=False, sharex=True)
        for axes, (name, curve, where) in zip(grid.flat, panels, strict=True):
            own = list(found[name].whole.values())
            for row in own:
                _line(axes, row, curve, 1.6)
            _accuracy_axes(axes, own, [side for side, _ in sides])
            axes.set_title(f"{titles[name]}: {where}", color=INK)
        _label(grid, "accuracy (%)")
        _legend(figure, _ALL)
        return figure

    ends = []
    for name in shown:
        words = [
            f"{LOSSES[loss]} {100 * row.metrics['train_accuracy']:.1f} and "
            f"{100 * row.metrics['accuracy']:.1f}"
            for loss, row in found[name].whole.items()
        ]
        ends.append(f"{titles[name]}: {', '.join(words)}")
    return chart(
        "leerr-figure-2",
        "Training and test curves (Figure 2)",
        "Learning rate 1e-4, all training rows. Epochs on a logarithmic scale, because what is of "
        "interest comes early. Conditions have scales of their own; nothing is drawn below 40 %.",
        f"Accuracy in per cent on training and test rows in the last epoch. {'; '.join(ends)}.",
        draw,
    )


def folds_chart(found: Found, titles: Titles) -> Chart:
    """Figure 3: accuracy on development rows by epoch, a line per fold."""

    def panel(axes: Axes, name: str) -> None:
        own = [row for by_fold in found[name].folds.values() for row in by_fold.values()]
        for row in own:
            _line(axes, row, "validation_accuracy", 0.9, alpha=0.75)
        _accuracy_axes(axes, own, ["validation_accuracy"])

    counts = []
    for name, runs in found.items():
        pairs = runs.pairs("expected_error")
        held = sum(stuck(own, other) for own, other in pairs)
        counts.append(f"{titles[name]}: {held} of {len(pairs)}")
    return chart(
        "leerr-figure-3",
        "Ten folds (Figure 3)",
        "Accuracy on the development rows, a line per fold, up to the epoch in which patience "
        "ended the run.",
        f"Folds on which EErr ends far behind NegLog. {'; '.join(counts)}.",
        _panels(found, titles, panel, "accuracy (%)", _ALL),
    )


def large_rate_chart(found: Found, titles: Titles) -> Chart:
    """The expected error at 1e-2, which the paper does not show."""

    def panel(axes: Axes, name: str) -> None:
        small, large = found[name].folds.get("expected_error", {}), found[name].large
        for row in small.values():
            _line(axes, row, "validation_accuracy", 0.8, alpha=0.5)
        for row in large.values():
            _line(axes, row, "validation_accuracy", 1.0, dash="-")
        own = [*small.values(), *large.values()]
        _accuracy_axes(axes, own, ["validation_accuracy"], lowest=0.0)

    counts = []
    for name, runs in found.items():
        pairs = runs.pairs("large")
        held = sum(stuck(own, other) for own, other in pairs)
        counts.append(f"{titles[name]}: {held} of {len(pairs)}")
    return chart(
        "leerr-large-rate",
        "EErr at a learning rate of 1e-2",
        "A line per fold. The folds are those of Figure 3.",
        f"Folds on which EErr at 1e-2 ends far behind NegLog at 1e-4. {'; '.join(counts)}.",
        _panels(found, titles, panel, "accuracy (%)", _RATES),
    )


def norms_chart(found: Found, titles: Titles, fold: str) -> Chart:
    """Figure 4: the mean norm of the gradient with respect to the logits, of one fold."""

    def panel(axes: Axes, name: str) -> None:
        for loss in LOSSES:
            row = found[name].folds.get(loss, {}).get(fold)
            if row is not None:
                norms = row.curves["gradient_norm"]
                look = _LOOK[loss]
                epochs = range(1, len(norms) + 1)
                axes.plot(epochs, norms, color=look.colour, ls=look.dash, lw=1.6)
        axes.set_yscale("log")
        places = [10.0**e for e in range(-4, 1)]
        axes.yaxis.set_major_locator(FixedLocator(places))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_ticklabels(
            ["1" if e == 0 else "10" + str(e).translate(_RAISED) for e in range(-4, 1)]
        )
        axes.set_ylim(2e-4, 1.5)
        _epoch_axis(axes)
        tidy_axes(axes, grid="y")

    apart = []
    for name, runs in found.items():
        own = runs.folds.get("expected_error", {}).get(fold)
        other = runs.folds.get("cross_entropy", {}).get(fold)
        if own is not None and other is not None:
            apart.append(f"{titles[name]}: {orders(own, other):.1f}")
    return chart(
        "leerr-figure-4",
        "Gradient norms (Figure 4)",
        f"The mean over the training rows of the norm of a row's gradient with respect to its "
        f"logits, as training goes on, on fold {fold}. Both axes are logarithmic.",
        f"Orders of magnitude between NegLog and EErr. {'; '.join(apart)}.",
        _panels(found, titles, panel, "gradient norm", _ALL),
    )


def _panels(
    found: Found, titles: Titles, panel: Panel, what: str, lines: Lines
) -> Callable[[float], Figure]:
    shown = [name for name, runs in found.items() if runs.folds]

    def draw(width: float) -> Figure:
        wide = width > 5
        shape = (1, len(shown)) if wide else (len(shown), 1)
        figure = Figure(figsize=(width, (3.1 if wide else 2.2 * len(shown) + 0.5)))
        grid = figure.subplots(*shape, squeeze=False, sharex=True)
        for axes, name in zip(grid.flat, shown, strict=True):
            panel(axes, name)
            # Two lines, for three titles do not fit side by side.
            title = titles[name].replace(", ", ",\n") if wide else titles[name]
            axes.set_title(title, color=INK)
        _label(grid, what)
        _legend(figure, lines)
        return figure

    return draw


def _line(
    axes: Axes, row: Row, curve: str, thick: float, *, alpha: float = 1.0, dash: str | None = None
) -> None:
    look = _LOOK[row.loss]
    values = [100 * value for value in row.curves[curve]]
    axes.plot(
        range(1, len(values) + 1), values, color=look.colour, ls=dash or look.dash, lw=thick,
        alpha=alpha,
    )  # fmt: skip


def _epoch_axis(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator([1, 3, 10, 30, 100]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_ticklabels(["1", "3", "10", "30", "100"])


def _accuracy_axes(
    axes: Axes, rows: Sequence[Row], curves: Sequence[str], lowest: float = _LOWEST
) -> None:
    """From what these curves reach down to, in fives, up to what they reach."""
    values = [100 * value for row in rows for curve in curves for value in row.curves[curve]]
    low = max(lowest, 5 * ((min(values, default=lowest) - 0.5) // 5))
    high = max(values, default=100.0)
    _epoch_axis(axes)
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.set_ylim(low, high + 0.05 * (high - low))
    tidy_axes(axes, grid="y")


def _label(grid: Any, what: str) -> None:
    for axes in grid[-1]:
        axes.set_xlabel("epoch")
    for line in grid:
        line[0].set_ylabel(what)


def _legend(figure: Figure, lines: Lines) -> None:
    handles = [Line2D([], [], color=colour, ls=dash, lw=1.7) for colour, dash in lines.values()]
    figure.legend(handles, list(lines), loc="outside lower center", ncols=len(lines))
