"""The page of mixing-uci."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from expacc.compare.figures_scores import name_rows, rank_chart
from expacc.recipes.mixing.scores import Scores, Statistic, Summary, ranking, scores_of, summary
from expacc.recipes.mixing.uci import ARMS, CE, CONTROL, EL, EVERY, GRADUAL, SHAPES, TABLES
from expacc.recipes.page import Claim, Comparison, Number, Page, Section
from expacc.recipes.paper import Layout, numbers
from expacc.report.figures import Chart, tidy_axes
from expacc.report.words import NONE, Look, listed, looks, p_text, p_value_text, signed
from expacc.runner.rows import Row
from expacc.stats import CriticalDifference, friedman, wilcoxon

TABLE_4 = {shape: numbers("mixing", shape) for shape in SHAPES}
NEGLIGIBLE = 1e-9  # ranks: what rounding may leave between equals
LEVEL = 0.05

Every = Mapping[str, Scores]  # architecture → scores
Ranks = Mapping[str, CriticalDifference]
Six = Mapping[str, Summary]  # loss → its line of Table 4


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    planned = {name: about["folds"] for name, about in facts["tables"].items()}
    every = {shape: scores_of(rows, shape, planned) for shape in SHAPES}
    scores = {shape: found for shape, found in every.items() if found.tables}
    six = {shape: summary(found, ARMS) for shape, found in scores.items()}
    ranks = {
        shape: found for shape, one in scores.items() if (found := ranking(one, ARMS)) is not None
    }
    known = sum(name in TABLES for name in planned)
    layout = Layout(
        "mixing",
        "mixing-uci",
        {
            **facts,
            "known": known,
            "more": len(planned) - known,
            "all": len(TABLES),
            "apart": listed([name for name, one in facts["tables"].items() if one.get("apart")]),
            "left_out": listed(sorted({one for found in every.values() for one in found.left_out})),
        },
    )
    sections = [_beside(layout, what, six, scores) for what in ("wins", "gain", "mean_rank")]
    if ranks:
        sections += [
            _order(layout, six, ranks, scores),
            _figure_3(layout, scores, ranks),
            _pairs(layout, ranks),
            _control(layout, scores),
        ]
    if scores:
        sections += [_chosen(layout, rows), _tables(layout, scores)]
    return layout.page(
        sections,
        [
            claim
            for shape in SHAPES
            for claim in _claims(layout, shape, six.get(shape), ranks.get(shape), every[shape])
        ],
    )


def _place(ranks: Mapping[str, float], name: str) -> int:
    """Where a loss stands by mean rank, from 1; equals share the best place."""
    return 1 + sum(other < ranks[name] - NEGLIGIBLE for other in ranks.values())


def _claims(
    layout: Layout, shape: str, six: Six | None, ranks: CriticalDifference | None, scores: Scores
) -> Iterator[Claim]:
    printed = {name: own["mean_rank"].mean for name, own in TABLE_4[shape].items()}
    theirs = sorted(printed, key=printed.__getitem__)
    pairs = [(a, b) for place, a in enumerate(theirs) for b in theirs[place + 1 :]]

    def ahead(known: Mapping[str, float]) -> str:
        return listed([name for name in ARMS if _place(known, name) < _place(known, CE)])

    words = {"shape": shape, "ahead": ahead(printed), "pairs": len(pairs)}
    words["gain"] = signed(TABLE_4[shape][GRADUAL]["gain"].mean)
    if six is None:
        for key in ("first", "last", "ahead", "order", "gain", "control"):
            yield layout.claim(key, "", None, **words)
        return
    mine = {name: own.mean_rank.mean for name, own in six.items()}
    first, last = (_place(mine, name) for name in (GRADUAL, EL))
    beyond = any(other > mine[EL] + NEGLIGIBLE for other in mine.values())
    same = sum(_place(mine, a) < _place(mine, b) for a, b in pairs)
    own, (gap, p_value) = six[GRADUAL], _against(scores, GRADUAL)
    sure = "" if ranks is None else f", {p_text(_pair(ranks, GRADUAL, CE))}"
    gain = f"{signed(own.gain.mean)}, better on {own.better}, worse on {own.worse}{sure}"
    mean = float(gap.mean())
    behind = mean < 0 and p_value is not None and p_value <= LEVEL
    told = signed(mean) + ("" if p_value is None else f", {p_text(p_value)}")
    for key, ours, holds in (
        ("first", f"number {first} of 6", first == 1),
        ("last", f"number {last} of 6", not beyond),
        ("ahead", ahead(mine), ahead(mine) == words["ahead"]),
        ("order", f"{same} of {len(pairs)}", same == len(pairs)),
        ("gain", gain, own.gain.mean > 0),
        ("control", told, behind),
    ):
        yield layout.claim(key, ours, holds, **words)


def _pair(ranks: CriticalDifference, one: str, other: str) -> float:
    """Conover's adjusted p-value of a pair of the six."""
    return float(ranks.pairs.adjusted[ARMS.index(one), ARMS.index(other)])


def _against(scores: Scores, other: str) -> tuple[Any, float | None]:
    """The control less another loss, table by table, and p of Wilcoxon's test."""
    both = scores.means()[:, scores.columns([CONTROL, other])]
    return both[:, 0] - both[:, 1], wilcoxon(both).p_value if len(both) > 1 else None


def _beside(layout: Layout, what: str, six: Mapping[str, Six], scores: Every) -> Section:
    """One column of Table 4 beside ours; the control has no number there."""
    section, beside = layout.section(what), []
    for shape in six:
        seven = summary(scores[shape], EVERY)
        for name in EVERY:
            theirs = TABLE_4[shape][name][what] if name in TABLE_4[shape] else None
            if theirs is not None and what == "wins":
                theirs = Number(100 * theirs.mean / len(TABLES))
            own: Statistic = getattr(six[shape].get(name) or seven[name], what)
            ours = Number(own.mean, own.spread, own.splits)
            # Whether a difference is what another choice of tables would make.
            gap, room = 0.0 if theirs is None else abs(own.mean - theirs.mean), 2 * (own.error or 0)
            usual = section.slack < gap <= room
            note = f"no more than two standard errors over tables, {room:.2g}" if usual else ""
            beside.append(Comparison((shape, name), theirs, ours, note))
    return layout.section(what, beside=beside)


def _order(layout: Layout, six: Mapping[str, Six], ranks: Ranks, scores: Every) -> Section:
    """Whether the losses come in the paper's order."""
    lines = []
    for shape, one in ranks.items():
        of = dict(zip(one.names, one.mean_ranks, strict=True))
        means = scores[shape].means().mean(0)
        for name in ARMS:
            mine = six[shape][name]
            lines.append(
                (
                    *(shape, name, f"{means[scores[shape].columns([name])[0]]:.2f}"),
                    str(TABLE_4[shape][name]["mean_rank"]),
                    f"{mine.mean_rank.mean:.2f}",
                    f"{of[name]:.2f}",
                    f"{mine.better} / {mine.level} / {mine.worse}",
                    NONE if name == CE else p_value_text(_pair(one, name, CE)),
                )
            )
    charts = [
        gains_chart(layout, f"gains-{number}", one) for number, one in enumerate(scores.values(), 1)
    ]
    return layout.section("order", grids=[layout.grid("ranks", lines)], charts=charts)


def _figure_3(layout: Layout, scores: Every, ranks: Ranks) -> Section:
    """The critical-difference diagrams: each architecture and seed, as in the paper."""
    lines, charts = [], []
    for number, shape in enumerate(ranks, 1):
        one, whole = scores[shape], ranks[shape].overall
        test = friedman(one.means()[:, one.columns(ARMS)])
        overall = (f"{test.statistic:.1f}", p_value_text(test.p_value), whole.test)
        lines.append((shape, f"{len(one.tables)}", *overall, p_value_text(whole.p_value)))
        for seed in one.seeds:
            found = ranking(one, ARMS, seed)
            if found is not None:
                title = f"{shape[0].upper()}{shape[1:]}, seed {seed}"
                charts.append(ranks_chart(layout, f"ranks-{number}-{seed}", title, found))
    return layout.section("figure-3", grids=[layout.grid("overall", lines)], charts=charts)


def _pairs(layout: Layout, ranks: Ranks) -> Section:
    """Conover's p-values, adjusted."""
    grids = []
    for shape, one in ranks.items():
        values, count = one.pairs.adjusted, range(len(ARMS))
        lines = [
            (ARMS[r], *("" if c == r else p_value_text(float(values[r, c])) for c in count))
            for r in count
        ]
        places = [(r, c) for r in count for c in count if c != r]
        marked = [(r, c + 1) for r, c in places if values[r, c] <= one.significance]
        words = {"shape": shape, "level": f"{one.significance:g}", "tables": one.tables}
        grids.append(layout.grid("pair", lines, columns=ARMS, marked=marked, **words))
    return layout.section("pairs", grids=grids)


def _control(layout: Layout, scores: Every) -> Section:
    """Cross entropy with the learning rate scaled to the mixture's gradient volume."""
    lines, charts = [], []
    for number, (shape, one) in enumerate(scores.items(), 1):
        for other in (CE, GRADUAL):
            gap, p_value = _against(one, other)
            better, worse = int((gap > 1e-8).sum()), int((gap < -1e-8).sum())
            mean = signed(float(gap.mean()))
            lines.append((shape, other, mean, f"{better}", f"{worse}", p_value_text(p_value)))
        found = ranking(one, EVERY)
        if found is not None:
            charts.append(ranks_chart(layout, f"control-{number}", f"All seven, {shape}", found))
    return layout.section("control", grids=[layout.grid("against", lines)], charts=charts)


def _chosen(layout: Layout, rows: Sequence[Row]) -> Section:
    """Learning rates and epochs that validation chose, and runs that diverged."""
    rates: dict[tuple[str, str], Counter[float]] = defaultdict(Counter)
    epochs: dict[tuple[str, str], list[float]] = defaultdict(list)
    failed: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for row in rows:
        place = (str(row.numbers.get("shape")), row.loss)
        if row.kind == "trial":
            failed[place].append(row.failure is not None)
        elif row.kind == "final" and row.failure is None:
            rates[place][float(row.numbers["learning_rate"])] += 1
            epochs[place].append(row.metrics["best_epoch"])
    every = sorted({rate for counts in rates.values() for rate in counts}, reverse=True)
    lines = []
    for place in [(shape, name) for shape in SHAPES for name in EVERY if rates[shape, name]]:
        counts, lost = rates[place], failed[place]
        shares = (f"{100 * counts[rate] / counts.total():.0f} %" for rate in every)
        middle = f"{median(epochs[place]):.0f}"
        lines.append((*place, *shares, middle, f"{sum(lost)} of {len(lost)}"))
    tried = [f"rate {rate:g}" for rate in every]
    return layout.section("chosen", grids=[layout.grid("choices", lines, columns=tried)])


def _tables(layout: Layout, scores: Every) -> Section:
    """Test accuracies of all tables, which the paper has in its supplement."""
    grids = []
    for shape, one in scores.items():
        lines, marked = [], []
        for row, (table, values) in enumerate(zip(one.tables, one.means(), strict=True)):
            lines.append((table, *(f"{value:.2f}" for value in values)))
            best = np.round(values, 8) == np.round(values[: len(ARMS)], 8).max()
            marked += [(row, int(column) + 1) for column in np.flatnonzero(best)]
        grids.append(layout.grid("accuracy", lines, columns=EVERY, marked=marked, shape=shape))
    return layout.section("tables", grids=grids)


# ------------------------------------------------------------------------------------- the charts

# Each of ours in the colour of the loss of the report that it is nearest to.
_LIKE = {
    CE: "cross_entropy",
    "CE+EL F=0": "poly1_cross_entropy",
    "CE+EL F=0,0.5": "leaky_expected_error",
    "CE+EL F=0-0.5": "mixed_expected_error",
    "EL": "expected_error",
    "Focal": "focal",
    CONTROL: "hinge",
}


def look_of(name: str) -> Look:
    """How a loss is drawn."""
    return looks(set(_LIKE.values()))[_LIKE[name]]


def ranks_chart(layout: Layout, key: str, title: str, ranks: CriticalDifference) -> Chart:
    """A critical-difference diagram as in Figure 3."""
    text = layout.part("diagram", name=title)
    drawn = {name: look_of(name) for name in ranks.names}
    return rank_chart(ranks, drawn, key, text["title"], text["caption"])


def gains_chart(layout: Layout, key: str, scores: Scores) -> Chart:
    """Each loss's difference to CE, one dot per table."""
    names = [name for name in EVERY if name != CE]
    means = scores.means()
    gaps = {name: np.subtract(*means[:, scores.columns([name, CE])].T) for name in names}

    def draw(width: float) -> Figure:
        figure = Figure(figsize=(width, 0.75 + 0.5 * len(names)))
        axes = figure.add_subplot()
        axes.axvline(0, color=look_of(CE).colour, lw=1.3)
        for place, (name, gap) in enumerate(gaps.items()):
            colour = look_of(name).colour
            # Up and down by the golden section, so that dots of one height are far apart.
            heights = place + 0.4 * (np.arange(len(gap)) * 0.618034 % 1) - 0.2
            axes.plot(gap, heights, ".", color=colour, alpha=0.55, ms=5.5, mew=0)
            axes.plot([gap.mean()] * 2, [place - 0.34, place + 0.34], color=colour, lw=2.4)
        name_rows(axes, names, width)
        # Differences of a tenth and of thirty points in one picture.
        axes.set_xscale("symlog", linthresh=1.0, linscale=1.0)
        ticks = [-30, -10, -3, -1, 0, 1, 3, 10, 30] if width > 5 else [-30, -3, 0, 3, 30]
        axes.set_xticks(ticks, [signed(tick, 0) for tick in ticks])
        axes.minorticks_off()
        reach = max(3.0, max(float(np.abs(gap).max()) for gap in gaps.values()))
        axes.set_xlim(-1.15 * reach, 1.15 * reach)
        axes.set_xlabel(f"accuracy less that of CE{' (points)' if width > 5 else ''}")
        tidy_axes(axes, grid="x")
        return figure

    told = "; ".join(
        f"{name} {signed(gap.mean())} on average, from {signed(gap.min(), 1)} to "
        f"{signed(gap.max(), 1)}"
        for name, gap in gaps.items()
    )
    finding = f"Points of accuracy above CE: {told}."
    return layout.chart(key, finding, draw, part="gains", shape=scores.shape)
