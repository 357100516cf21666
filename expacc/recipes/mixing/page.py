"""The page of mixing-uci."""

from collections.abc import Mapping, Sequence
from typing import Any

from expacc.recipes.mixing.answer import answer, control_text, order_text
from expacc.recipes.mixing.charts import gains_chart, ranks_chart
from expacc.recipes.mixing.details import chosen_section, tables_section
from expacc.recipes.mixing.paper import ARMS, CONTROL, SHAPES, TABLE_4, TABLES
from expacc.recipes.mixing.scores import Scores, Statistic, Summary, ranking, scores_of, summary
from expacc.recipes.page import Comparison, Grid, Number, Page, Section
from expacc.report.words import p_text
from expacc.runner.rows import Row
from expacc.stats import CriticalDifference, friedman

__all__ = ["write"]

CLAIM = (
    "On 121 prepared UCI tables, with a linear classifier and with one hidden layer, mixing the "
    "expectation loss (EL) into cross entropy (CE) raises accuracy; shifting gradually from F=0 to "
    "F=0.5 has the best mean rank, CE is behind all three mixtures, and EL alone is last. Cross "
    "entropy with its learning rate scaled to the same gradient volume “is not competitive”."
)
# About two standard errors of a mean over 87 tables.
SLACK = {"wins": 10.0, "gain": 0.3, "mean_rank": 0.3}
UNITS = {"wins": "per cent of tables", "gain": "points", "mean_rank": "ranks"}
TITLES = {"wins": "Table 4: wins", "gain": "Table 4: gain", "mean_rank": "Table 4: mean rank"}
TEXTS = {
    "wins": "Share of tables on which a loss is best, alone or with others. A run of ours is one "
    "fold of every table with one seed, as the paper's numbers are of one split a table. The "
    "control is compared with all six; they among themselves.",
    "gain": "Test accuracy less that of CE, mean over tables; a run is one fold of every table "
    "with one seed.",
    "mean_rank": "1 is best; a run is one fold of every table with one seed. Equals share the best "
    "of their ranks, as they must in the paper, whose six means sum to 15.8 and 16.6 instead of "
    "21. Two losses that are often level gain by that, as F=0 and F=0,0.5, alike but for the end.",
}


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    planned = {name: about["folds"] for name, about in facts.get("tables", {}).items()}
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
        sections += [chosen_section(rows), tables_section(scores)]
    return Page(
        title="Mixing cross entropy and expectation loss on UCI tables",
        claim=CLAIM,
        answer=answer(six, ranks, scores),
        sections=tuple(sections),
        deviations=_deviations(facts, every),
    )


def _beside(
    what: str, six: Mapping[str, Mapping[str, Summary]], scores: Mapping[str, Scores]
) -> Section:
    """One column of Table 4 beside ours; the control has no number there."""
    beside = []
    for shape in six:
        seven = summary(scores[shape], (*ARMS, CONTROL))
        for name in (*ARMS, CONTROL):
            printed = TABLE_4[shape].get(name)
            theirs = None
            if printed is not None:
                value = float(getattr(printed, what))
                theirs = Number(100 * value / len(TABLES) if what == "wins" else value)
            own: Statistic = getattr(six[shape].get(name) or seven[name], what)
            ours = Number(own.mean, own.spread, own.splits)
            beside.append(Comparison((shape, name), theirs, ours, _note(theirs, own, SLACK[what])))
    return Section(
        title=TITLES[what],
        text=(TEXTS[what], *([_ties(six)] if what == "wins" else [])),
        beside=tuple(beside),
        beside_head=("classifier", "loss"),
        unit=UNITS[what],
        slack=SLACK[what],
    )


def _note(theirs: Number | None, ours: Statistic, slack: float) -> str:
    """Whether a difference is what another choice of tables would make."""
    if theirs is None or ours.error is None or abs(ours.mean - theirs.mean) <= slack:
        return ""
    if abs(ours.mean - theirs.mean) > 2 * ours.error:
        return ""
    return f"no more than two standard errors over tables, {2 * ours.error:.2g}"


def _ties(six: Mapping[str, Mapping[str, Summary]]) -> str:
    """How often several losses share the first place, there and here."""
    sums = []
    for shape, one in six.items():
        theirs = 100 * sum(printed.wins for printed in TABLE_4[shape].values()) / len(TABLES)
        ours = sum(own.wins.mean for own in one.values())
        sums.append(f"{theirs:.0f} % there and {ours:.0f} % here ({shape})")
    return f"The six sum to {' and '.join(sums)}: what is above 100 % are first places shared."


def _order(
    six: Mapping[str, Mapping[str, Summary]],
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
                    shape,
                    name,
                    f"{means[scores[shape].columns([name])[0]]:.2f}",
                    f"{TABLE_4[shape][name].mean_rank:.2f}",
                    f"{mine.mean_rank.mean:.2f}",
                    f"{of[name]:.2f}",
                    f"{mine.better} / {mine.level} / {mine.worse}",
                )
            )
    grid = Grid(
        title="Mean accuracy and mean ranks of the six losses",
        head=(
            *("classifier", "loss", "accuracy", "rank, paper", "rank, ours"),
            *("rank of table means", "better / level / worse than CE"),
        ),
        rows=tuple(lines),
        note="Rank of table means: accuracies averaged over folds and seeds first, equals share "
        "the mean of their ranks; the tests below are of these.",
    )
    charts = tuple(
        gains_chart(f"gains-{number}", one) for number, one in enumerate(scores.values(), 1)
    )
    return Section(
        title="Does the paper's order hold?",
        text=tuple(order_text(shape, six[shape], ranks[shape]) for shape in ranks),
        grids=(grid,),
        charts=charts,
    )


def _figure_3(scores: Mapping[str, Scores], ranks: Mapping[str, CriticalDifference]) -> Section:
    """The critical-difference diagrams: each architecture and seed, as in the paper."""
    text, charts = [], []
    for number, shape in enumerate(ranks, 1):
        one = scores[shape]
        test = friedman(one.means()[:, one.columns(ARMS)])
        text.append(
            f"{shape[0].upper()}{shape[1:]}, mean over seeds: Friedman's χ² = "
            f"{test.statistic:.1f}, {p_text(test.p_value)}; {ranks[shape].overall.test} "
            f"{p_text(ranks[shape].overall.p_value)}, over {len(one.tables)} tables."
        )
        for seed in one.seeds:
            found = ranking(one, ARMS, seed)
            if found is not None:
                title = f"{shape[0].upper()}{shape[1:]}, seed {seed}"
                charts.append(ranks_chart(f"ranks-{number}-{seed}", title, found))
    return Section(title="Figure 3: critical differences", text=tuple(text), charts=tuple(charts))


def _pairs(ranks: Mapping[str, CriticalDifference]) -> Section:
    """Conover's p-values, adjusted."""
    grids = []
    for shape, one in ranks.items():
        lines, marks = [], []
        for row, name in enumerate(ARMS):
            cells = []
            for column in range(len(ARMS)):
                p_value = float(one.pairs.adjusted[row, column])
                cells.append("" if column == row else _p(p_value))
                if column != row and p_value <= one.significance:
                    marks.append((row, column + 1))
            lines.append((name, *cells))
        grids.append(
            Grid(
                title=f"Conover's test, Benjamini–Hochberg adjusted: {shape}",
                head=("loss", *ARMS),
                rows=tuple(lines),
                note=f"In bold: p at most {one.significance:g}, over {one.tables} tables.",
                marked=tuple(marks),
            )
        )
    return Section(title="Which pairs differ", grids=tuple(grids))


def _p(p_value: float) -> str:
    return p_text(p_value).removeprefix("p ").removeprefix("= ")


def _control(scores: Mapping[str, Scores]) -> Section:
    """Cross entropy with the learning rate scaled to the mixture's gradient volume."""
    charts = []
    for number, (shape, one) in enumerate(scores.items(), 1):
        found = ranking(one, (*ARMS, CONTROL))
        if found is not None:
            title = f"All seven, {shape}"
            charts.append(ranks_chart(f"control-{number}", title, found))
    return Section(
        title="The control: is it the size of the gradient?",
        text=(
            "Mixing makes gradients larger. The control trains cross entropy with its learning "
            "rate times ce_weight + error_weight/3, the ratio of the areas under the two gradients "
            "(Eq. 20 and 21), phase by phase as in F=0-0.5.",
            *(control_text(one) for one in scores.values()),
        ),
        charts=tuple(charts),
    )


def _deviations(facts: Mapping[str, Any], every: Mapping[str, Scores]) -> tuple[str, ...]:
    known = [name for name in facts.get("tables", {}) if name in TABLES]
    others = len(facts.get("tables", {})) - len(known)
    extra = f", and {others} more of the same kind" if others else ""
    said = [
        f"Tables: {len(known)} of the paper's {len(TABLES)}{extra}. Features are taken as they "
        "were prepared, standardised by their authors over all rows, test rows included."
        + _apart(facts),
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
        "over batches of 128.",
        "The control needs one factor, but Eq. 21 (the label's own logit) and Eq. 22 (another's) "
        "give two, ce_weight + error_weight/3 and ce_weight + error_weight/2. We take the first.",
        "Figure 3 joins what does not differ “at p = 0.5”; we take that for 0.05.",
    ]
    if facts.get("epochs", 50) != 50:
        said.append(f"Trained for {facts['epochs']} epochs instead of 50, because --quick asks so.")
    absent = sorted({name for one in every.values() for name in one.left_out})
    if absent:
        said.append(
            f"Left out of ranks and means, because a score is missing: {', '.join(absent)}."
        )
    return tuple(said)


def _apart(facts: Mapping[str, Any]) -> str:
    names = [name for name, about in facts.get("tables", {}).items() if about.get("apart")]
    if not names:
        return ""
    return (
        f" In {', '.join(names)} the prepared test rows are on another scale than the training "
        f"rows; the scores there mean little, and are kept as the paper has them."
    )
