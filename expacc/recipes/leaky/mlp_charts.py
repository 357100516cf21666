"""The charts of leerr-mnist-mlp: errors fold by fold, and the development error by epoch."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from expacc.recipes.page import Number
from expacc.recipes.paper import load_paper
from expacc.report.figures import Chart, chart, tidy_axes
from expacc.report.palette import INK, MUTED, looks
from expacc.runner.rows import Row

__all__ = ["curves_chart", "folds_chart"]

_PAIR = ("cross_entropy", "leaky_expected_error")
LOSSES: dict[str, str] = load_paper("leaky")["losses"]
_LOOK = looks(set(LOSSES))

Errors = Mapping[tuple[float, str], Mapping[str, float]]
Words = Callable[[float], str]
Printed = Mapping[tuple[float, str], Number]


def folds_chart(errors: Errors, printed: Printed, noises: Sequence[float], words: Words) -> Chart:
    """NegLog and LEErr on the same folds, joined by lines; the paper's means as rings."""
    shown = [noise for noise in noises if any(errors[noise, loss] for loss in _PAIR)]

    def draw(width: float) -> Figure:
        figure = Figure(figsize=(width, 3.2 if width > 5 else 3.4))
        grid = figure.subplots(1, len(shown), squeeze=False, sharey=True)
        for axes, noise in zip(grid.flat, shown, strict=True):
            own = [errors[noise, loss] for loss in _PAIR]
            for fold in sorted(own[0].keys() & own[1].keys()):
                axes.plot([0, 1], [own[0][fold], own[1][fold]], color=MUTED, lw=0.8, alpha=0.6)
            for place, loss in enumerate(_PAIR):
                values, colour = list(own[place].values()), _LOOK[loss].colour
                theirs = printed[noise, loss].mean
                side = (-0.14, 0.14)[place]
                axes.plot([place + side], [theirs], "o", color=colour, mfc="none", ms=9)
                if values:
                    axes.plot([place] * len(values), values, "o", color=colour, ms=4.5)
                    mean = float(np.mean(values))
                    axes.plot([place - 0.1, place + 0.1], [mean] * 2, color=colour, lw=2.5)
            axes.set_xticks([0, 1], [LOSSES[loss] for loss in _PAIR])
            axes.set_xlim(-0.35, 1.35)
            axes.set_title(f"labels {words(noise)}", color=INK)
            axes.yaxis.set_major_locator(MaxNLocator(6))
            tidy_axes(axes, grid="y")
        grid[0, 0].set_ylabel("test error (%)")
        handles = [
            Line2D([], [], color=MUTED, marker="o", ms=4.5, lw=0.8),
            Line2D([], [], color=MUTED, marker="o", ms=9, mfc="none", lw=0),
        ]
        figure.legend(handles, ["a fold", "paper's mean"], loc="outside lower center", ncols=2)
        return figure

    said = []
    for noise in shown:
        means = [
            f"{LOSSES[loss]} {np.mean(list(errors[noise, loss].values())):.2f}"
            for loss in _PAIR
            if errors[noise, loss]
        ]
        said.append(f"labels {words(noise)}: {', '.join(means)}")
    return chart(
        "leerr-mlp-folds",
        "Test error, fold by fold",
        "A line joins the two losses on one fold; a bar is the mean. Lines that fall to the right "
        "are folds on which LEErr makes fewer errors.",
        f"Mean test error in per cent. {'; '.join(said)}.",
        draw,
    )


def curves_chart(finals: Sequence[Row], noises: Sequence[float], words: Words) -> Chart:
    """Development error by epoch, mean over the folds that still train."""
    found = {
        noise: {
            loss: [
                [100 * (1 - value) for value in row.curves["validation_accuracy"]]
                for row in finals
                if (row.noise, row.loss) == (noise, loss) and "validation_accuracy" in row.curves
            ]
            for loss in _PAIR
        }
        for noise in noises
    }
    shown = [noise for noise in noises if any(found[noise].values())]

    def draw(width: float) -> Figure:
        wide = width > 5
        shape = (1, len(shown)) if wide else (len(shown), 1)
        figure = Figure(figsize=(width, 3.0 if wide else 2.3 * len(shown) + 0.5))
        grid = figure.subplots(*shape, squeeze=False)
        handles: dict[str, Line2D] = {}
        for axes, noise in zip(grid.flat, shown, strict=True):
            lowest, later = 100.0, []
            for loss in _PAIR:
                curves = found[noise][loss]
                if not curves:
                    continue
                mean = _together(curves)
                (line,) = axes.plot(
                    np.arange(1, len(mean) + 1), mean, color=_LOOK[loss].colour, lw=1.7
                )
                handles.setdefault(LOSSES[loss], line)
                lowest = min(lowest, float(mean.min()))
                later.append(float(mean[min(4, len(mean) - 1)]))
            # The first steep fall would flatten everything of interest.
            top = max(later)
            axes.set_ylim(lowest - 0.08 * (top - lowest) - 0.02, top + 0.02)
            axes.set_title(f"labels {words(noise)}", color=INK)
            axes.set_xlabel("epoch")
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            tidy_axes(axes, grid="y")
        for axes in grid[:, 0]:
            axes.set_ylabel("development error (%)")
        figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=2)
        return figure

    best = []
    for noise in shown:
        means = {loss: _together(curves) for loss, curves in found[noise].items() if curves}
        ends = [
            f"{LOSSES[loss]} {mean.min():.2f} in epoch {mean.argmin() + 1}"
            for loss, mean in means.items()
        ]
        best.append(f"labels {words(noise)}: {', '.join(ends)}")
    return chart(
        "leerr-mlp-curves",
        "Development error by epoch",
        "The mean over the folds, of the chosen settings; a run that has ended keeps its last "
        "value. The first steep fall is cut off.",
        f"Lowest mean development error in per cent. {'; '.join(best)}.",
        draw,
    )


def _together(curves: Sequence[Sequence[float]]) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    longest = max(map(len, curves))
    padded = [[*curve, *[curve[-1]] * (longest - len(curve))] for curve in curves]
    mean: np.ndarray[tuple[int], np.dtype[np.float64]] = np.array(padded).mean(0)
    return mean
