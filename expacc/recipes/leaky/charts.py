"""The charts of the leaky-expected-error paper's recipes."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from expacc.recipes.leaky.plateaus import LOSSES, Runs, orders, stuck
from expacc.recipes.page import Number
from expacc.report.figures import Chart, chart
from expacc.report.loss_names import MUTED, looks
from expacc.report.panels import Line, Panel, panels, power
from expacc.runner.rows import Row

__all__ = [
    "curves_chart",
    "errors_chart",
    "folds_chart",
    "large_rate_chart",
    "norms_chart",
    "pairs_chart",
    "rates_chart",
    "whole_chart",
]

_LOOK = looks(set(LOSSES))
_PAIR = ("cross_entropy", "leaky_expected_error")
_LOWEST = 40.0  # per cent of accuracy: below it nothing is drawn
_EPOCHS = {epoch: f"{epoch:g}" for epoch in (1.0, 3.0, 10.0, 30.0, 100.0)}
_LATE = 5  # epochs after the first steep fall

Means = Mapping[str, Mapping[str, Number]]  # table → loss → error
Rates = Mapping[str, Mapping[str, Mapping[float, Sequence[float]]]]  # table → loss → rate → errors
Found = Mapping[str, Runs]  # condition → its runs
Titles = Mapping[str, str]
Errors = Mapping[tuple[float, str], Mapping[str, float]]  # noise, loss → fold → error


# --------------------------------------------------------------------------------------- leerr-uci


def errors_chart(means: Means, printed: Means) -> Chart:
    """Error rates with their spread, the paper's beside ours, a panel per table."""

    def rows(axes: Axes) -> None:
        axes.set_yticks(range(len(LOSSES)), list(LOSSES.values()))
        axes.set_ylim(len(LOSSES) - 0.5, -0.5)
        axes.xaxis.set_major_locator(MaxNLocator(5))

    def lines(table: str) -> list[Line]:
        found = []
        for numbers, up, dash in ((means, -0.17, "-"), (printed, 0.17, ":")):
            for place, loss in enumerate(LOSSES):
                if number := numbers.get(table, {}).get(loss):
                    reach = number.spread or 0.0
                    ends = [number.mean - reach, number.mean, number.mean + reach]
                    colour, hollow = _LOOK[loss].colour, numbers is printed
                    across = [place + up] * 3
                    found.append(Line(ends, across, "", colour, "", dash, 1.6))
                    found.append(Line(ends[1:2], across[:1], "", colour, "o", "", 1.6, hollow))
        return found

    shown = [Panel(table, lines(table), "error (%)", more=rows) for table in means]
    return chart(
        "leerr-errors",
        "Error rates, the paper's beside ours",
        "A dot is the mean over the folds, a line one standard deviation either way; rings and "
        "dotted lines are the paper's. Panels have scales of their own.",
        "Our error rates in per cent. "
        + "; ".join(f"{table}: {_listed(own)}" for table, own in means.items())
        + ".",
        _drawn(shown, wide=1.8, tall=1.8, across=3),
    )


def _listed(means: Mapping[str, Number]) -> str:
    return ", ".join(f"{LOSSES[loss]} {number.mean:.2f}" for loss, number in means.items())


def _drawn(shown: Sequence[Panel], **how: object) -> Callable[[float], Figure]:
    across = how.pop("across", None)
    columns = min(len(shown), int(across)) if across else None  # type: ignore[call-overload]
    return lambda width: panels(width, shown, across=columns, **how)  # type: ignore[arg-type]


def rates_chart(rates: Rates) -> Chart:
    """Validation error against the learning rate, a panel per table."""
    shown, spreads = [], []
    for table, by_loss in rates.items():
        lines = []
        for loss, by_rate in by_loss.items():
            x, look = sorted(by_rate), _LOOK[loss]
            mean, low, high = (
                [float(f(by_rate[rate])) for rate in x] for f in (np.mean, np.min, np.max)
            )
            name = LOSSES[loss]
            band = (low, high)
            lines.append(Line(x, mean, name, look.colour, look.marker, look.dash, 1.6, band=band))
            spreads += [
                (b - a, f"{name} on {table} at {rate:g}")
                for a, b, rate in zip(low, high, x, strict=True)
            ]
        ticks = {10.0**e: power(10.0**e) for e in range(-4, 0)}
        shown.append(
            Panel(table, lines, "learning rate", "validation error (%)", x_ticks=ticks, log="x")
        )
    widest, where = max(spreads)
    return chart(
        "leerr-rates",
        "What the learning rate does",
        "The best validation error of a run, averaged over the folds; the band is the range over "
        "them. Where it is wide, some folds get stuck, or are slow, at that rate.",
        f"The folds differ most, by {widest:.1f} points, for {where}.",
        _drawn(shown, wide=2.3, tall=2.1, across=3, legend="below"),
    )


# ----------------------------------------------------------------------------- leerr-mnist-logistic


def _curve(row: Row, curve: str, width: float, *, dash: str = "", label: str = "") -> Line:
    values = [100 * value for value in row.curves[curve]]
    look, epochs = _LOOK[row.loss], range(1, len(values) + 1)
    return Line(epochs, values, label, look.colour, "", dash or look.dash, width)


def _accuracies(title: str, lines: Sequence[Line], lowest: float = _LOWEST) -> Panel:
    """From what these curves reach down to, in fives, up to what they reach."""
    values = [value for line in lines for value in line.y]
    low = max(lowest, 5 * ((min(values, default=lowest) - 0.5) // 5))
    high = max(values, default=100.0)
    limits = (low, high + 0.05 * (high - low))
    axes = {"x_ticks": _EPOCHS, "log": "x", "y_range": limits}
    return Panel(title, _once(lines), "epoch", "accuracy (%)", **axes)  # type: ignore[arg-type]


def _once(lines: Sequence[Line]) -> list[Line]:
    """Each label once, or a legend would repeat it."""
    seen: set[str] = set()
    found = []
    for line in lines:
        found.append(Line(**{**vars(line), "label": "" if line.label in seen else line.label}))
        seen.add(line.label)
    return found


def whole_chart(found: Found, titles: Titles) -> Chart:
    """Figure 2: accuracy on training and test rows by epoch."""
    shown, ends = [], []
    for name, runs in found.items():
        for curve, where in (("train_accuracy", "training rows"), ("test_accuracy", "test rows")):
            lines = [_curve(row, curve, 1.6, label=LOSSES[x]) for x, row in runs.whole.items()]
            shown.append(_accuracies(f"{titles[name]}: {where}", lines))
        words = [
            f"{LOSSES[loss]} {100 * row.metrics['train_accuracy']:.1f} and "
            f"{100 * row.metrics['accuracy']:.1f}"
            for loss, row in runs.whole.items()
        ]
        ends.append(f"{titles[name]}: {', '.join(words)}")
    return chart(
        "leerr-figure-2",
        "Training and test curves (Figure 2)",
        "Learning rate 1e-4, all training rows. Epochs on a logarithmic scale, because what is of "
        "interest comes early. Panels have scales of their own; nothing is drawn below 40 %.",
        f"Accuracy in per cent on training and test rows in the last epoch. {'; '.join(ends)}.",
        _drawn(shown, wide=2.3, tall=2.1, across=2, legend="below"),
    )


def _stuck(found: Found, titles: Titles, loss: str) -> str:
    counts = []
    for name, runs in found.items():
        pairs = runs.pairs(loss)
        counts.append(f"{titles[name]}: {sum(stuck(*pair) for pair in pairs)} of {len(pairs)}")
    return "; ".join(counts)


def _conditions(shown: Sequence[Panel]) -> Callable[[float], Figure]:
    # Two lines, for three titles do not fit side by side.
    cut = [Panel(**{**vars(one), "title": one.title.replace(", ", ",\n")}) for one in shown]
    return lambda width: panels(
        width, cut if width > 5 else shown, wide=3.1, tall=2.2, legend="below"
    )


def folds_chart(found: Found, titles: Titles) -> Chart:
    """Figure 3: accuracy on development rows by epoch, a line per fold."""
    shown = [
        _accuracies(
            titles[name],
            [
                _curve(row, "validation_accuracy", 0.8, label=LOSSES[loss])
                for loss, by_fold in runs.folds.items()
                for row in by_fold.values()
            ],
        )
        for name, runs in found.items()
    ]
    return chart(
        "leerr-figure-3",
        "Ten folds (Figure 3)",
        "Accuracy on the development rows, a line per fold, up to the epoch in which patience "
        "ended the run.",
        f"Folds on which EErr ends far behind NegLog. {_stuck(found, titles, 'expected_error')}.",
        _conditions(shown),
    )


def large_rate_chart(found: Found, titles: Titles) -> Chart:
    """The expected error at 1e-2, which the paper does not show."""
    shown = []
    for name, runs in found.items():
        small, large = runs.folds.get("expected_error", {}).values(), runs.large.values()
        lines = [_curve(row, "validation_accuracy", 0.6, label="EErr, 1e-4") for row in small]
        lines += [
            _curve(row, "validation_accuracy", 1.0, dash="-", label="EErr, 1e-2") for row in large
        ]
        shown.append(_accuracies(titles[name], lines, lowest=0.0))
    return chart(
        "leerr-large-rate",
        "EErr at a learning rate of 1e-2",
        "A line per fold. The folds are those of Figure 3.",
        "Folds on which EErr at 1e-2 ends far behind NegLog at 1e-4. "
        f"{_stuck(found, titles, 'large')}.",
        _conditions(shown),
    )


def norms_chart(found: Found, titles: Titles, fold: str) -> Chart:
    """Figure 4: the mean norm of the gradient with respect to the logits, of one fold."""
    shown, apart = [], []
    ticks = {10.0**e: power(10.0**e) for e in range(-4, 1)}
    for name, runs in found.items():
        own = {loss: by[fold] for loss, by in runs.folds.items() if fold in by}
        lines = []
        for loss, row in own.items():
            norms, look = row.curves["gradient_norm"], _LOOK[loss]
            epochs = range(1, len(norms) + 1)
            lines.append(Line(epochs, norms, LOSSES[loss], look.colour, "", look.dash, 1.6))
        axes = {"x_ticks": _EPOCHS, "y_ticks": ticks, "log": "xy", "y_range": (2e-4, 1.5)}
        shown.append(Panel(titles[name], lines, "epoch", "gradient norm", **axes))  # type: ignore[arg-type]
        if {"expected_error", "cross_entropy"} <= own.keys():
            between = orders(own["expected_error"], own["cross_entropy"])
            apart.append(f"{titles[name]}: {between:.1f}")
    return chart(
        "leerr-figure-4",
        "Gradient norms (Figure 4)",
        "The mean over the training rows of the norm of a row's gradient with respect to its "
        f"logits, as training goes on, on fold {fold}. Both axes are logarithmic.",
        f"Orders of magnitude between NegLog and EErr. {'; '.join(apart)}.",
        _conditions(shown),
    )


# ---------------------------------------------------------------------------------- leerr-mnist-mlp


def pairs_chart(
    errors: Errors,
    printed: Mapping[tuple[float, str], Number],
    noises: Sequence[float],
    words: Callable[[float], str],
) -> Chart:
    """NegLog and LEErr on the same folds, joined by lines; the paper's means as rings."""

    def both(axes: Axes) -> None:
        axes.set_xticks([0, 1], [LOSSES[loss] for loss in _PAIR])

    shown, said = [], []
    for noise in noises:
        own = [errors[noise, loss] for loss in _PAIR]
        folds = sorted(own[0].keys() & own[1].keys())
        lines = [Line([0, 1], [by[fold] for by in own], "", MUTED, width=0.8) for fold in folds]
        for place, (loss, by_fold) in enumerate(zip(_PAIR, own, strict=True)):
            colour, values = _LOOK[loss].colour, list(by_fold.values())
            ring = [place + (-0.14, 0.14)[place]]
            theirs = "paper's mean" if place else ""
            lines.append(
                Line(ring, [printed[noise, loss].mean], theirs, colour, "o", "", 1, hollow=True)
            )
            if values:
                mean = [float(np.mean(values))] * 2
                dots = "a fold" if place else ""
                lines.append(Line([place] * len(values), values, dots, colour, "o", ""))
                lines.append(Line([place - 0.1, place + 0.1], mean, "", colour, width=2.5))
                said.append(f"labels {words(noise)}, {LOSSES[loss]}: {mean[0]:.2f}")
        title = f"labels {words(noise)}"
        limits = (-0.35, 1.35)
        shown.append(Panel(title, lines, "", "test error (%)", x_range=limits, more=both))
    return chart(
        "leerr-mlp-folds",
        "Test error, fold by fold",
        "A line joins the two losses on one fold; a bar is the mean. Lines that fall to the right "
        "are folds on which LEErr makes fewer errors.",
        f"Mean test error in per cent. {'; '.join(said)}.",
        _drawn(shown, wide=3.2, tall=3.0, legend="below"),
    )


def curves_chart(
    finals: Sequence[Row], noises: Sequence[float], words: Callable[[float], str]
) -> Chart:
    """Development error by epoch, mean over the folds; one that has ended keeps its last value."""
    shown, best = [], []
    for noise in noises:
        lines = []
        for loss in _PAIR:
            curves = [
                [100 * (1 - value) for value in row.curves["validation_accuracy"]]
                for row in finals
                if (row.noise, row.loss) == (noise, loss)
            ]
            if curves:
                longest = max(map(len, curves))
                padded = [[*curve, *[curve[-1]] * (longest - len(curve))] for curve in curves]
                mean = np.mean(padded, axis=0)
                epochs, look = range(1, longest + 1), _LOOK[loss]
                lines.append(Line(epochs, mean.tolist(), LOSSES[loss], look.colour, width=1.7))
                where = f"labels {words(noise)}, {LOSSES[loss]}"
                best.append(f"{where}: {mean.min():.2f} in epoch {mean.argmin() + 1}")
        if lines:
            # The first steep fall would flatten everything of interest.
            low = min(min(line.y) for line in lines)
            top = max(line.y[min(_LATE, len(line.y)) - 1] for line in lines)
            limits = (low - 0.08 * (top - low) - 0.02, top + 0.02)
            title = f"labels {words(noise)}"
            shown.append(Panel(title, lines, "epoch", "development error (%)", y_range=limits))
    return chart(
        "leerr-mlp-curves",
        "Development error by epoch",
        "The mean over the folds, of the chosen settings; a run that has ended keeps its last "
        "value. The first steep fall is cut off.",
        f"Lowest mean development error in per cent. {'; '.join(best)}.",
        _drawn(shown, wide=3.0, tall=2.3, legend="below"),
    )
