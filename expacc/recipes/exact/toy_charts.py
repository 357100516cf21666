"""The charts of exact-toy that the paper has: Figures 1 and 10, 3 and 4."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from expacc.recipes.exact.toy_data import LOSSES, TOYS, Toy, best
from expacc.report.figures import Chart, chart, legend_place, tidy_axes
from expacc.report.loss_names import loss_name
from expacc.report.palette import INK, MUTED, SCALE, looks
from expacc.runner.rows import Row

__all__ = [
    "LOOK",
    "beside_or_below",
    "expected_chart",
    "margin_chart",
    "percent",
    "place",
    "points_chart",
]

LOOK = looks(set(LOSSES))
NO_THRESHOLD = 100.0  # beyond it a threshold only says that all points are in one class


def place(row: Row, toy: Toy) -> str:
    """A threshold, or the two ends of a flat part, in words."""
    low, high = row.metrics["low"], row.metrics["high"]
    if abs(low) > NO_THRESHOLD:
        return "none"
    digits = 3 if toy.name == "three" else 2
    texts = [f"{end:.{digits}f}".replace("-", "−") for end in (low, high)]
    return texts[0] if texts[0] == texts[1] else f"{texts[0]} … {texts[1]}"


def percent(row: Row) -> str:
    """The accuracy, or the lowest and the highest of a flat part."""
    low, high = (100 * row.metrics[name] for name in ("accuracy", "accuracy_high"))
    return f"{low:.0f} %" if high - low < 0.5 else f"{low:.0f} to {high:.0f} %"


def beside_or_below(width: float, panels: int, *, tall: float = 2.6, wide: float = 3.2) -> Figure:
    """Panels side by side on a wide page, one below the other on a phone."""
    across = width > 5
    figure = Figure(figsize=(width, wide if across else tall * panels + 0.4))
    figure.subplots(1 if across else panels, panels if across else 1, squeeze=False)
    return figure


def points_chart(found: Mapping[tuple[str, str], Row]) -> Chart:
    """Figures 1 and 10: the points, and the threshold that each loss finds."""
    toys = [toy for toy in TOYS.values() if any((toy.name, loss) in found for loss in LOSSES)]

    def draw(width: float) -> Figure:
        figure = beside_or_below(width, len(toys), tall=2.3, wide=2.7)
        for axes, toy in zip(figure.axes, toys, strict=True):
            _, (low, high) = best(toy)
            axes.axvspan(low, high, color=SCALE[0], lw=0, alpha=0.7)
            rows = {loss: found[toy.name, loss] for loss in LOSSES if (toy.name, loss) in found}
            reach = [
                *toy.x,
                *(row.metrics[end] for row in rows.values() for end in ("low", "high")),
            ]
            room = 0.12 * (max(reach) - min(reach))
            axes.set_xlim(min(reach) - room, max(reach) + room)
            for loss, row in rows.items():
                _threshold(axes, 2 - LOSSES.index(loss), row, toy, loss)
            for label, marker, fill in ((0, "o", "none"), (1, "P", INK)):
                x = [at for at, y in zip(toy.x, toy.label, strict=True) if y == label]
                axes.plot(x, [3] * len(x), marker, ms=9, mec=INK, mfc=fill, mew=1.2, ls="none")
            axes.set_yticks([3, 2, 1, 0], ["points", *map(loss_name, LOSSES)])
            axes.set_ylim(-0.6, 3.6)
            axes.set_title(toy.title, color=INK)
            axes.set_xlabel("x, and the threshold b")
            axes.spines["left"].set_visible(False)
            tidy_axes(axes, grid="x")
        return figure

    ends = "; ".join(
        f"{toy.title}, {loss_name(loss)} {place(found[toy.name, loss], toy)} "
        f"({percent(found[toy.name, loss])})"
        for toy in toys
        for loss in LOSSES
        if (toy.name, loss) in found
    )
    return chart(
        "toy-points",
        "The threshold that each loss finds",
        "Points of class −1 are rings, of class +1 crosses; what lies right of the threshold is "
        "called +1. The shaded thresholds are the most accurate.",
        f"Thresholds and accuracies: {ends}.",
        draw,
    )


def _threshold(axes: Axes, line: int, row: Row, toy: Toy, loss: str) -> None:
    low, high, colour = row.metrics["low"], row.metrics["high"], LOOK[loss].colour
    axes.plot([low, high], [line, line], color=colour, lw=3.5, solid_capstyle="butt")
    axes.plot([low, high], [line, line], "|", color=colour, ms=15, mew=2.4)
    axes.annotate(
        f"{place(row, toy)}, {percent(row)}", ((low + high) / 2, line), (0, 9),
        textcoords="offset points", fontsize=8.5, color=colour, ha=_side(axes, (low + high) / 2),
    )  # fmt: skip


def _side(axes: Axes, x: float) -> str:
    """Labels stand in the middle of what they label, but not over the edges."""
    low, high = axes.get_xlim()
    share = (x - low) / (high - low)
    return "left" if share < 0.3 else "right" if share > 0.7 else "center"


def expected_chart(rows: Sequence[Row]) -> Chart | None:
    """Figure 3: expected accuracy against the threshold."""
    by_toy = {
        name: [r for r in rows if r.table == name and r.numbers.get("what") == "accuracy"]
        for name in TOYS
    }
    by_toy = {name: sorted(found, key=_sigma) for name, found in by_toy.items() if found}
    if not by_toy:
        return None
    plain = {row.table: row for row in rows if row.key.endswith("/plain")}

    def draw(width: float) -> Figure:
        figure = beside_or_below(width, len(by_toy))
        for axes, (name, found) in zip(figure.axes, by_toy.items(), strict=True):
            if name in plain:
                curves = plain[name].curves
                axes.plot(curves["b"], [100 * v for v in curves["value"]], color=MUTED, lw=1,
                          label="σ = 0: the accuracy")  # fmt: skip
            for row, colour in zip(found, SCALE[:0:-2], strict=False):
                values = [100 * value for value in row.curves["value"]]
                axes.plot(
                    row.curves["b"], values, color=colour, lw=1.9, label=f"σ = {_sigma(row):g}"
                )
            axes.set_title(TOYS[name].title, color=INK)
            axes.set_xlabel("threshold b")
            axes.set_ylabel("expected accuracy (%)")
            axes.legend(loc="best", fontsize=8, handlelength=1.4)
            tidy_axes(axes, grid="both")
        return figure

    tops = "; ".join(
        f"{TOYS[name].title}: "
        + ", ".join(f"σ = {_sigma(row):g} at b = {row.metrics['best']:.3g}" for row in found)
        for name, found in by_toy.items()
    )
    return chart(
        "toy-expected",
        "Expected accuracy for several σ",
        "The paper's Figure 3. As σ falls, the curve becomes the accuracy itself, steps and all; "
        "as it grows, one wide hill is left, and its top may be anywhere.",
        f"Where the curves are highest within the picture. {tops}.",
        draw,
    )


def _sigma(row: Row) -> float:
    return float(row.numbers["sigma"])


def margin_chart(rows: Sequence[Row]) -> Chart | None:
    """Figure 4: the loss with and without margin."""
    found = sorted((r for r in rows if r.numbers.get("what") == "loss"), key=lambda r: -_sigma(r))
    sigmas = list(dict.fromkeys(_sigma(row) for row in found))
    if not sigmas:
        return None
    colours = {True: LOOK["exact"].colour, False: LOOK["hinge"].colour}

    def draw(width: float) -> Figure:
        figure = beside_or_below(width, len(sigmas), tall=2.1)
        _, (low, high) = best(TOYS["three"])
        for axes, sigma in zip(figure.axes, sigmas, strict=True):
            axes.axvspan(low, high, color=SCALE[0], lw=0, alpha=0.7)
            for row in found:
                if _sigma(row) != sigma:
                    continue
                margin = row.numbers["margin"]
                name = "no margin" if margin is None else f"margin {margin:g}"
                axes.plot(
                    row.curves["b"], row.curves["value"], color=colours[margin is not None],
                    ls="--" if margin is None else "-", lw=1.9, label=name,
                )  # fmt: skip
            axes.set_title(f"σ = {sigma:g}", color=INK)
            axes.set_xlabel("threshold b")
            tidy_axes(axes, grid="both")
        figure.axes[0].set_ylabel("EXACT loss")
        handles, names = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc=legend_place(width))
        return figure

    ends = "; ".join(
        f"σ = {_sigma(row):g}, {'no margin' if row.numbers['margin'] is None else 'margin'}: "
        f"b = {row.metrics['best']:.3g}"
        for row in found
    )
    return chart(
        "toy-margin",
        "With and without margin",
        "The paper's Figure 4, three points; the shaded thresholds are right for all of them. "
        "Scales differ: at σ = 10 the whole curve spans a few hundredths.",
        f"Smallest loss within the picture: {ends}.",
        draw,
    )
