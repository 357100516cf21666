"""The page of mixing-uci."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from expacc.recipes.mixing.charts import gains_chart, ranks_chart
from expacc.recipes.mixing.scores import Scores, Statistic, Summary, ranking, scores_of, summary
from expacc.recipes.mixing.uci import ARMS, CE, CONTROL, EL, EVERY, GRADUAL, SHAPES, TABLES
from expacc.recipes.page import Claim, Comparison, Grid, Number, Page, Section
from expacc.recipes.paper import numbers
from expacc.report.words import listed, p_text, p_value_text, signed
from expacc.runner.rows import Row
from expacc.stats import CriticalDifference, friedman, wilcoxon

__all__ = ["write"]

TABLE_4 = {shape: numbers("mixing", shape) for shape in SHAPES}
NEGLIGIBLE = 1e-9  # ranks: what rounding may leave between equals
LEVEL = 0.05
# About two standard errors of a mean over 87 tables.
SLACK = {"wins": 10.0, "gain": 0.3, "mean_rank": 0.3}
UNITS = {"wins": "per cent of tables", "gain": "points", "mean_rank": "ranks"}
TITLES = {"wins": "Table 4: wins", "gain": "Table 4: gain", "mean_rank": "Table 4: mean rank"}
TEXTS = {
    "wins": "Share of tables on which a loss is best, alone or with others: what is above 100 % in "
    "the sum of the six are first places shared. A run of ours is one fold of every table with one "
    "seed, as the paper's numbers are of one split a table. The control is compared with all six; "
    "they among themselves.",
    "gain": "Test accuracy less that of CE, mean over tables; a run is one fold of every table "
    "with one seed.",
    "mean_rank": "1 is best; a run is one fold of every table with one seed. Equals share the best "
    "of their ranks, as they must in the paper, whose six means sum to 15.8 and 16.6 instead of "
    "21. Two losses that are often level gain by that, as F=0 and F=0,0.5, alike but for the end.",
}

Six = Mapping[str, Summary]


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    planned = {name: about["folds"] for name, about in facts["tables"].items()}
    every = {shape: scores_of(rows, shape, planned) for shape in SHAPES}
    scores = {shape: found for shape, found in every.items() if found.tables}
    six = {shape: summary(found, ARMS) for shape, found in scores.items()}
    ranks = {
        shape: found for shape, one in scores.items() if (found := ranking(one, ARMS)) is not None
    }
    sections = [_beside(name, six, scores) for name in UNITS] if scores else []
    if ranks:
        sections += [
            _order(six, ranks, scores),
            _figure_3(scores, ranks),
            _pairs(ranks),
            _control(scores),
        ]
    if scores:
        sections += [_chosen(rows), _tables(scores)]
    return Page(
        title="Mixing cross entropy and expectation loss on UCI tables",
        claim=(
            "On 121 prepared UCI tables, with a linear classifier and with one hidden layer, "
            "mixing the expectation loss (EL) into cross entropy (CE) raises accuracy; shifting "
            "gradually from F=0 to F=0.5 has the best mean rank, CE is behind all three mixtures, "
            "and EL alone is last. Cross entropy with its learning rate scaled to the same "
            "gradient volume “is not competitive”."
        ),
        answer="",
        sections=tuple(sections),
        deviations=_deviations(facts, every),
        claims=tuple(
            claim
            for shape in SHAPES
            for claim in _claims(shape, six.get(shape), ranks.get(shape), every[shape])
        ),
    )


def _place(ranks: Mapping[str, float], name: str) -> int:
    """Where a loss stands by mean rank, from 1; equals share the best place."""
    return 1 + sum(other < ranks[name] - NEGLIGIBLE for other in ranks.values())


def _claims(
    shape: str, six: Six | None, ranks: CriticalDifference | None, scores: Scores
) -> Iterator[Claim]:
    printed = {name: own["mean_rank"].mean for name, own in TABLE_4[shape].items()}
    mine = {name: own.mean_rank.mean for name, own in six.items()} if six else {}

    def judged(says: str, paper: str, ours: str, holds: bool, *, headline: bool = False) -> Claim:
        if not mine:
            return Claim(f"{says}; {shape}", paper, "", None, headline)
        return Claim(f"{says}; {shape}", paper, ours, holds, headline)

    first, last = (_place(mine, name) if mine else 0 for name in (GRADUAL, EL))
    yield judged(
        "F=0-0.5 by mean rank", "1st of 6", f"number {first} of 6", first == 1, headline=True
    )
    beyond = sum(other > mine[EL] + NEGLIGIBLE for other in mine.values()) if mine else 0
    yield judged("EL by mean rank", "last of 6", f"number {last} of 6", beyond == 0)
    ahead = [
        listed([name for name in ARMS if known and _place(known, name) < _place(known, CE)])
        for known in (printed, mine)
    ]
    yield judged("ahead of CE by mean rank", ahead[0], ahead[1], ahead[0] == ahead[1])
    theirs = sorted(printed, key=printed.__getitem__)
    pairs = [(a, b) for place, a in enumerate(theirs) for b in theirs[place + 1 :]]
    same = sum(_place(mine, a) < _place(mine, b) for a, b in pairs) if mine else 0
    order = (f"{len(pairs)} of {len(pairs)}", f"{same} of {len(pairs)}")
    yield judged("pairs of losses in the paper's order", *order, same == len(pairs))
    gain, printed_gain = "", signed(TABLE_4[shape][GRADUAL]["gain"].mean)
    if six:
        own = six[GRADUAL]
        sure = "" if ranks is None else f", {p_text(_pair(ranks, GRADUAL, CE))}"
        gain = f"{signed(own.gain.mean)}, better on {own.better}, worse on {own.worse}{sure}"
    holds = bool(six) and six[GRADUAL].gain.mean > 0  # type: ignore[index]
    yield judged("F=0-0.5 over CE, points", printed_gain, gain, holds, headline=True)
    gap, p_value = _against(scores, GRADUAL) if scores.tables else (np.zeros(0), None)
    mean = float(gap.mean()) if gap.size else 0.0
    told = f"{signed(mean)}{'' if p_value is None else ', ' + p_text(p_value)}"
    behind = mean < 0 and p_value is not None and p_value <= LEVEL
    yield judged("CE, rate scaled, against F=0-0.5", "not competitive", told, behind)


def _pair(ranks: CriticalDifference, one: str, other: str) -> float:
    """Conover's adjusted p-value of a pair of the six."""
    return float(ranks.pairs.adjusted[ARMS.index(one), ARMS.index(other)])


def _against(scores: Scores, other: str) -> tuple[Any, float | None]:
    """The control less another loss, table by table, and p of Wilcoxon's test."""
    both = scores.means()[:, scores.columns([CONTROL, other])]
    return both[:, 0] - both[:, 1], wilcoxon(both).p_value if len(both) > 1 else None


def _beside(what: str, six: Mapping[str, Six], scores: Mapping[str, Scores]) -> Section:
    """One column of Table 4 beside ours; the control has no number there."""
    beside = []
    for shape in six:
        seven = summary(scores[shape], EVERY)
        for name in EVERY:
            theirs = TABLE_4[shape][name][what] if name in TABLE_4[shape] else None
            if theirs is not None and what == "wins":
                theirs = Number(100 * theirs.mean / len(TABLES))
            own: Statistic = getattr(six[shape].get(name) or seven[name], what)
            ours = Number(own.mean, own.spread, own.splits)
            beside.append(Comparison((shape, name), theirs, ours, _note(theirs, own, SLACK[what])))
    return Section(
        title=TITLES[what],
        text=(TEXTS[what],),
        beside=tuple(beside),
        beside_head=("classifier", "loss"),
        unit=UNITS[what],
        slack=SLACK[what],
    )


def _note(theirs: Number | None, ours: Statistic, slack: float) -> str:
    """Whether a difference is what another choice of tables would make."""
    gap = 0.0 if theirs is None else abs(ours.mean - theirs.mean)
    if ours.error is None or not slack < gap <= 2 * ours.error:
        return ""
    return f"no more than two standard errors over tables, {2 * ours.error:.2g}"


def _order(
    six: Mapping[str, Six],
    ranks: Mapping[str, CriticalDifference],
    scores: Mapping[str, Scores],
) -> Section:
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
                    "–" if name == CE else p_value_text(_pair(one, name, CE)),
                )
            )
    grid = Grid(
        title="Mean accuracy and mean ranks of the six losses",
        head=(
            *("classifier", "loss", "accuracy", "rank, paper", "rank, ours"),
            *("rank of table means", "better / level / worse than CE", "p against CE"),
        ),
        rows=tuple(lines),
        note="Rank of table means: accuracies averaged over folds and seeds first, equals share "
        "the mean of their ranks; the tests, Conover's, are of these.",
    )
    charts = [gains_chart(f"gains-{number}", one) for number, one in enumerate(scores.values(), 1)]
    return Section(title="Does the paper's order hold?", grids=(grid,), charts=tuple(charts))


def _figure_3(scores: Mapping[str, Scores], ranks: Mapping[str, CriticalDifference]) -> Section:
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
                charts.append(ranks_chart(f"ranks-{number}-{seed}", title, found))
    grid = Grid(
        title="Whether the six differ at all, mean over seeds",
        head=("classifier", "tables", "Friedman's χ²", "p", "test", "p of it"),
        rows=tuple(lines),
    )
    return Section(title="Figure 3: critical differences", grids=(grid,), charts=tuple(charts))


def _pairs(ranks: Mapping[str, CriticalDifference]) -> Section:
    """Conover's p-values, adjusted."""
    grids = []
    for shape, one in ranks.items():
        values, count = one.pairs.adjusted, range(len(ARMS))
        grids.append(
            Grid(
                title=f"Conover's test, Benjamini–Hochberg adjusted: {shape}",
                head=("loss", *ARMS),
                rows=tuple(
                    (ARMS[r], *("" if c == r else p_value_text(float(values[r, c])) for c in count))
                    for r in count
                ),
                note=f"In bold: p at most {one.significance:g}, over {one.tables} tables.",
                marked=tuple(
                    (r, c + 1)
                    for r in count
                    for c in count
                    if c != r and values[r, c] <= one.significance
                ),
            )
        )
    return Section(title="Which pairs differ", grids=tuple(grids))


def _control(scores: Mapping[str, Scores]) -> Section:
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
            charts.append(ranks_chart(f"control-{number}", f"All seven, {shape}", found))
    grid = Grid(
        title="The control less another loss, mean over tables",
        head=("classifier", "against", "points", "better on", "worse on", "p, Wilcoxon"),
        rows=tuple(lines),
    )
    return Section(
        title="The control: is it the size of the gradient?",
        text=(
            "Mixing makes gradients larger. The control trains cross entropy with its learning "
            "rate times ce_weight + error_weight/3, the ratio of the areas under the two gradients "
            "(Eq. 20 and 21), phase by phase as in F=0-0.5.",
        ),
        grids=(grid,),
        charts=tuple(charts),
    )


def _chosen(rows: Sequence[Row]) -> Section:
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
    for shape in SHAPES:
        for name in EVERY:
            counts, lost = rates[shape, name], failed[shape, name]
            if counts:
                shares = (f"{100 * counts[rate] / counts.total():.0f} %" for rate in every)
                middle = f"{median(epochs[shape, name]):.0f}"
                lines.append((shape, name, *shares, middle, f"{sum(lost)} of {len(lost)}"))
    tried = tuple(f"rate {rate:g}" for rate in every)
    grid = Grid(
        title="Chosen by the validation rows",
        head=("classifier", "loss", *tried, "median epoch", "runs diverged"),
        rows=tuple(lines),
        note="Of equally good ones the largest rate and the last epoch are taken.",
    )
    return Section(title="What validation chose", grids=(grid,))


def _tables(scores: Mapping[str, Scores]) -> Section:
    """Test accuracies of all tables, which the paper has in its supplement."""
    grids = []
    for shape, one in scores.items():
        lines, marks = [], []
        for row, (table, values) in enumerate(zip(one.tables, one.means(), strict=True)):
            lines.append((table, *(f"{value:.2f}" for value in values)))
            best = np.round(values, 8) == np.round(values[: len(ARMS)], 8).max()
            marks += [(row, int(column) + 1) for column in np.flatnonzero(best)]
        grids.append(
            Grid(
                title=f"Test accuracy, {shape}",
                head=("table", *EVERY),
                rows=tuple(lines),
                note="Per cent, mean over folds and seeds. In bold: the best of the paper's six, "
                "and a control that equals it.",
                marked=tuple(marks),
            )
        )
    return Section(title="Table by table", grids=tuple(grids))


def _deviations(facts: Mapping[str, Any], every: Mapping[str, Scores]) -> tuple[str, ...]:
    known = [name for name in facts["tables"] if name in TABLES]
    apart = [name for name, about in facts["tables"].items() if about.get("apart")]
    absent = sorted({name for one in every.values() for name in one.left_out})
    return (
        f"Tables: {len(known)} of the paper's {len(TABLES)}, and "
        f"{len(facts['tables']) - len(known)} more of the same kind. Features are taken as they "
        "were prepared, standardised by their authors over all rows, test rows included.",
        "Tables whose prepared test rows are on another scale than the training rows, so that the "
        f"scores there mean little; they are kept as the paper has them: {listed(apart)}.",
        "Folds: all four that come with a table, each with its own validation rows. The paper does "
        "not say how it used them; its many ties suggest one split a table. Its numbers are "
        "therefore compared with ours of single splits, averaged, and the tests are done on means "
        "over folds.",
        "From the authors' code, where the paper is silent: SGD with momentum 0.9 and no weight "
        "decay; of equally good epochs the last, of equally good learning rates the largest; focal "
        "loss with gamma 2 and alpha 0.25; all losses of a seed start from the same weights and "
        "see the rows in the same order.",
        "F=0,0.5 drops cross entropy for the last 5 % of training, which is 2 of 50 epochs here "
        "and 3 in the authors' code. Validation accuracy is that of all rows; their code averages "
        f"over batches of 128. Trained for {facts['epochs']} epochs; the paper has 50.",
        "The control needs one factor, but Eq. 21 (the label's own logit) and Eq. 22 (another's) "
        "give two, ce_weight + error_weight/3 and ce_weight + error_weight/2. We take the first.",
        "Figure 3 joins what does not differ “at p = 0.5”; we take that for 0.05.",
        f"Left out of ranks and means, because a score is missing: {listed(absent)}.",
    )
