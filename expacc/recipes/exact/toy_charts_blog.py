"""The charts of exact-toy about the blog's objection: temperature, landscapes, starts."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from expacc.recipes.exact.toy_charts import LOOK, beside_or_below, percent
from expacc.recipes.exact.toy_data import LOSSES, TOYS, Toy, best
from expacc.report.figures import Chart, chart, legend_place, tidy_axes
from expacc.report.loss_names import loss_name
from expacc.report.palette import INK, LINES, SCALE
from expacc.runner.rows import Row

__all__ = ["landscape_chart", "starts_chart", "temperature_chart"]

RANGES = {"three": (-0.1, 1.6), "five": (-14.0, 3.0)}  # of thresholds against k


def temperature_chart(rows: Sequence[Row]) -> Chart | None:
    """The threshold that a loss prefers, for each k."""
    found = {(r.table, r.loss): r for r in rows if r.fold == "fixed"}
    toys = [toy for toy in TOYS.values() if any((toy.name, loss) in found for loss in LOSSES)]
    if not toys:
        return None

    def draw(width: float) -> Figure:
        figure = beside_or_below(width, len(toys))
        for axes, toy in zip(figure.axes, toys, strict=True):
            _, (low, high) = best(toy)
            axes.axhspan(low, high, color=SCALE[0], lw=0, alpha=0.7)
            for loss in LOSSES:
                row = found.get((toy.name, loss))
                if row is None:
                    continue
                look, k = LOOK[loss], row.curves["k"]
                if any(
                    b > a + 1e-3 for a, b in zip(row.curves["low"], row.curves["high"], strict=True)
                ):
                    axes.fill_between(k, row.curves["low"], row.curves["high"], color=look.colour,
                                      alpha=0.18, lw=0)  # fmt: skip
                middle = [
                    (a + b) / 2 for a, b in zip(row.curves["low"], row.curves["high"], strict=True)
                ]
                axes.plot(k, middle, color=look.colour, lw=1.9, marker=look.marker, ms=3.5,
                          label=loss_name(loss))  # fmt: skip
            axes.set_ylim(*RANGES[toy.name])
            _log_axis(axes, "x", (0.1, 1, 10))
            axes.set_title(toy.title, color=INK)
            axes.set_xlabel("temperature k (for EXACT 1/σ)")
            axes.set_ylabel("threshold b of the smallest loss")
            tidy_axes(axes, grid="both")
        handles, names = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc=legend_place(width))
        return figure

    lowest = "; ".join(
        f"{toy.title}, {loss_name(loss)}: k = {found[toy.name, loss].metrics['k']:.3g}, "
        f"{percent(found[toy.name, loss])}"
        for toy in toys
        for loss in LOSSES
        if (toy.name, loss) in found
    )
    return chart(
        "toy-temperature",
        "The threshold that each loss prefers, by temperature",
        "For each k the threshold of the smallest loss; a band where the loss is flat. The shaded "
        "thresholds are the most accurate. A line that leaves the picture prefers a threshold "
        "beyond all points.",
        f"Of these temperatures, the loss is smallest at: {lowest}.",
        draw,
    )


def _log_axis(axes: Axes, which: str, ticks: Sequence[float]) -> None:
    getattr(axes, f"set_{which}scale")("log")
    side = axes.xaxis if which == "x" else axes.yaxis
    side.set_major_locator(FixedLocator(list(ticks)))
    side.set_minor_locator(NullLocator())
    getattr(axes, f"set_{which}ticklabels")([f"{tick:g}" for tick in ticks])


def landscape_chart(rows: Sequence[Row], toy: Toy) -> Chart | None:
    """The losses over weight and threshold."""
    found = {r.loss: r for r in rows if r.fold == "surface" and r.table == toy.name}
    ends = {r.loss: r for r in rows if r.fold == "trained" and r.table == toy.name}
    losses = [loss for loss in LOSSES if loss in found]
    if not losses:
        return None

    def draw(width: float) -> Figure:
        figure = beside_or_below(width, len(losses), tall=2.3, wide=3.0)
        for axes, loss in zip(figure.axes, losses, strict=True):
            row = found[loss]
            b, k = np.array(row.curves["b"]), np.array(row.curves["k"])
            values = np.array(row.curves["value"]).reshape(len(k), len(b))
            # Levels by rank, so that a valley shows whatever the loss does elsewhere.
            levels = np.unique(np.quantile(values, np.linspace(0, 1, len(SCALE) + 1)))
            levels[-1] += 1e-12
            axes.contourf(b, k, values, levels, colors=SCALE[::-1][: len(levels) - 1])
            for edge in best(toy)[1]:
                axes.axvline(edge, color=INK, lw=0.9, ls=(0, (3, 2)))
            axes.plot(row.metrics["b"], row.metrics["k"], "o", ms=8, mfc="none", mec=LINES,
                      mew=2.2, clip_on=False, zorder=4)  # fmt: skip
            axes.plot(row.metrics["b"], row.metrics["k"], "o", ms=8, mfc="none", mec=INK,
                      mew=0.9, clip_on=False, zorder=5)  # fmt: skip
            _log_axis(axes, "y", (0.1, 1))
            axes.set_xlim(b[0], b[-1])
            axes.set_ylim(k[0], k[-1])
            if loss in ends:
                _end(axes, ends[loss])
            axes.set_title(loss_name(loss), color=INK)
            axes.set_xlabel("threshold b")
            tidy_axes(axes, grid="both")
            axes.grid(False)
        figure.axes[0].set_ylabel("temperature k")
        return figure

    ways = "; ".join(
        f"{loss_name(loss)} b = {found[loss].metrics['b']:.3g}, "
        f"k = {found[loss].metrics['k']:.3g}, {100 * found[loss].metrics['accuracy']:.0f} %"
        for loss in losses
    )
    return chart(
        f"toy-landscape-{toy.name}",
        f"Landscapes, {toy.title}",
        "Eight steps of equal area, the strongest where the loss is smallest. The ring is the "
        "smallest loss in the picture, a cross where training k and b from k = 1, b = 0 ends; "
        "between the dashed lines the accuracy is highest. EXACT depends on k/σ alone: read k as "
        "1/σ.",
        f"Smallest loss in the picture: {ways}.",
        draw,
    )


def _end(axes: Axes, row: Row) -> None:
    """Where training ended, if that is within the picture."""
    b, k = row.curves["b"][0], row.curves["k"][0]
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    if left <= b <= right and low <= k <= high:
        axes.plot(b, k, "X", ms=7, mfc=INK, mec=LINES, mew=0.8, zorder=6)


def _short(name: str) -> str:
    """A name for a phone: the colour says which loss it is, or that k is trained."""
    first, _, rest = name.partition(", ")
    return first if rest == "k trained" else rest


def starts_chart(rows: Mapping[tuple[str, str], Row], names: Mapping[str, str]) -> Chart | None:
    """From how many random starts training ends at the highest accuracy.

    Args:
        rows: by toy and way.
        names: way → how it is called, in the order of the chart.
    """
    toys = [toy for toy in TOYS.values() if any((toy.name, way) in rows for way in names)]
    if not toys:
        return None

    def draw(width: float) -> Figure:
        wide = width > 5
        height = 0.27 * len(names) + 0.9 if wide else (0.36 * len(names) + 0.8) * len(toys)
        figure = Figure(figsize=(width, height))
        labels = [name if wide else _short(name) for name in names.values()]
        grid = figure.subplots(
            1 if wide else len(toys), len(toys) if wide else 1, squeeze=False, sharey=wide
        )
        for axes, toy in zip(grid.flat, toys, strict=True):
            for line, way in enumerate(names):
                row = rows.get((toy.name, way))
                if row is None:
                    continue
                share = 100 * row.metrics["reached"] / row.metrics["starts"]
                colour = LOOK[row.loss].colour
                axes.barh(line, share, height=0.62, color=colour, lw=0)
                axes.annotate(f"{share:.0f} %", (share, line), (4, 0), textcoords="offset points",
                              va="center", fontsize=8.5, color=INK)  # fmt: skip
            axes.set_yticks(range(len(names)), labels, fontsize=8.5 if wide else 8)
            axes.set_ylim(len(names) - 0.4, -0.6)
            axes.set_xlim(0, 112 if wide else 130)
            axes.set_xticks([0, 50, 100])
            title = f"{toy.title}, best is {100 * best(toy)[0]:.0f} %"
            axes.set_title(title if wide else toy.title, color=INK)
            axes.set_xlabel("starts that end at the best (%)" if wide else "starts (%)")
            tidy_axes(axes, grid="x")
        return figure

    shares = "; ".join(
        f"{toy.title}, {names[way]}: {rows[toy.name, way].metrics['reached']:.0f} of "
        f"{rows[toy.name, way].metrics['starts']:.0f}"
        for toy in toys
        for way in names
        if (toy.name, way) in rows
    )
    return chart(
        "toy-starts",
        "From random starts",
        "How often training ends where the accuracy is highest. k trained: Adam on k and b. "
        "σ lowered: the recipe of Appendix E, σ from 100 down, gradients normalised.",
        f"{shares}.",
        draw,
    )
