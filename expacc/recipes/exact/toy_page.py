"""The page of exact-toy: the paper's thresholds, its landscapes, and the blog's objections."""

from collections.abc import Mapping, Sequence
from typing import Any

from expacc.recipes.exact.paper import TOY, page_of
from expacc.recipes.exact.toy import FIVE, LOSSES, THREE, TOYS, Toy, best, percent_text, place_text
from expacc.recipes.exact.toy_charts import (
    expected_chart,
    landscape_chart,
    margin_chart,
    points_chart,
    starts_chart,
    temperature_chart,
)
from expacc.recipes.page import Claim, Comparison, Grid, Number, Page, Section
from expacc.report.loss_names import loss_name
from expacc.runner.rows import Row

__all__ = ["write"]

SAME = 0.005  # of a threshold: the paper prints two digits
_NOTES = {  # of the five points
    "exact": "where the descent from b = 0 stops; any threshold from −6 to −5 is as accurate",
    "cross_entropy": "on our grid, at k = {k:.2g}, up to b = {high:.2f}",
    "hinge": "on our grid, at k = {k:.2g}, up to b = {high:.2f}",
}
_NOISES = {
    ("normal", False): "normal (EXACT)",
    ("gumbel", False): "Gumbel: the softmax's 1 − p",
    ("logistic", False): "logistic",
    ("laplace", False): "Laplace",
    ("normal", True): "normal, −log P",
}

ByLoss = dict[tuple[str, str], Row]


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    good = sorted((row for row in rows if row.failure is None), key=lambda row: row.key)
    parts: dict[str, ByLoss] = {}
    for row in good:
        parts.setdefault(row.fold, {})[row.table, row.loss] = row
    slices = [row for row in good if row.fold == "slices"]
    ways, names = _ways(good)
    paper, trained = parts.get("paper", {}), parts.get("trained", {})
    sections = [
        *([_thresholds(paper), _accuracies(paper)] if paper else []),
        *([_figures(slices)] if slices else []),
        _temperature(parts.get("fixed", {}), trained, parts.get("surface", {})),
        *([_starts(ways, names)] if ways else []),
        _noise(good),
    ]
    return page_of("exact-toy", {"starts": 0, **facts}, sections, _claims(trained))


# --------------------------------------------------------------------------------- the paper's


def _number(row: Row | None, metric: str, by: float = 1.0) -> Number | None:
    return None if row is None else Number(by * row.metrics[metric])


def _thresholds(paper: ByLoss) -> Section:
    beside = []
    for toy, printed in TOY.items():
        for loss, (low, high, _) in printed.items():
            row, name = paper.get((toy, loss)), (TOYS[toy].title, loss_name(loss))
            note = _NOTES[loss].format(**row.metrics) if row is not None and toy == "five" else ""
            what = "threshold" if low == high else "lowest"
            note = note.replace("-", "−")
            beside.append(Comparison((*name, what), Number(low), _number(row, "low"), note))
            if high > low:
                ours = _number(row, "high")
                beside.append(Comparison((*name, "highest"), Number(high), ours))
    return Section(
        title="Thresholds",
        beside=tuple(beside),
        beside_head=("data", "loss", "threshold"),
        unit="units of x",
        slack=SAME,
        charts=(points_chart(paper),),
    )


def _accuracies(paper: ByLoss) -> Section:
    beside = [
        Comparison(
            (TOYS[toy].title, loss_name(loss)),
            Number(share),
            _number(paper.get((toy, loss)), "accuracy", 100),
        )
        for toy, printed in TOY.items()
        for loss, (_, _, share) in printed.items()
    ]
    beside += [
        Comparison((toy.title, "any threshold"), None, Number(100 * best(toy)[0]), "the optimum")
        for toy in TOYS.values()
    ]
    head = ("data", "loss")
    return Section("Accuracies there", beside=tuple(beside), beside_head=head, slack=0.1)


def _figures(slices: Sequence[Row]) -> Section:
    lines = [
        (
            f"{row.numbers['sigma']:g}",
            f"{row.numbers['margin'] or 'none'}",
            f"{row.metrics['best']:.3g}".replace("-", "−"),
            f"{100 * row.metrics['accuracy']:.0f} %",
        )
        for row in slices
        if row.numbers.get("what") == "loss"
    ]
    grid = Grid(
        "Three points: where EXACT is smallest within the picture",
        ("σ", "margin", "threshold b", "accuracy there"),
        tuple(lines),
        note="At the edge of the picture, b = 1.5, the loss falls on beyond it.",
    )
    return Section(
        title="Landscapes of the paper",
        grids=(grid,),
        charts=(*expected_chart(slices), *margin_chart(slices)),
    )


# ----------------------------------------------------------------------------------- the blog's


def _claims(trained: ByLoss) -> tuple[Claim, ...]:
    """The blog on the three points, the paper on the five: what training k as well does."""
    found = []
    for toy, says, right in (
        (THREE, "The blog: with k trained, {} gets the three points as right as can be", True),
        (FIVE, "The paper: with k free, {} does not get the five as right as can be", False),
    ):
        highest = best(toy)[0]
        for loss in ("cross_entropy", "hinge"):
            row = trained.get((toy.name, loss))
            share = highest if right else TOY[toy.name][loss][2] / 100
            ours = "" if row is None else percent_text(row.metrics)
            reached = row is not None and row.metrics["accuracy"] > highest - 1e-9
            holds = None if row is None else reached == right
            said = says.format(loss_name(loss))
            found.append(Claim(said, f"{100 * share:.0f} %", ours, holds, headline=True))
    return tuple(found)


def _temperature(fixed: ByLoss, trained: ByLoss, surface: ByLoss) -> Section:
    """The temperature held fixed, then trained."""
    landscapes = [
        landscape_chart(
            toy,
            {loss: surface[toy.name, loss] for loss in LOSSES if (toy.name, loss) in surface},
            {loss: trained[toy.name, loss] for loss in LOSSES if (toy.name, loss) in trained},
        )
        for toy in TOYS.values()
    ]
    return Section(
        title="The blog: what the temperature does",
        text=(
            "EXACT's σ is a temperature, as the blog says: see below what it does with σ held "
            "at 1, k = 1. On the three points the paper's comparison shows a missing "
            "temperature, not a worse loss.",
            "The five points, which the blog does not discuss, have the temperature free from "
            "the start. Cross entropy and hinge are convex in k and k b, so that where their "
            "training ends is the smallest loss there is. f = k (x − b) cannot be right "
            "everywhere, and they weigh how far wrong a point is.",
        ),
        grids=(*(_temperatures(toy, fixed, trained) for toy in TOYS.values()),),
        charts=(
            *temperature_chart(fixed),
            *(drawn for made in landscapes for drawn in made),
        ),
    )


def _temperatures(toy: Toy, fixed: ByLoss, trained: ByLoss) -> Grid:
    found: list[tuple[str, str, Mapping[str, float]]] = []
    for loss in LOSSES:
        row = fixed.get((toy.name, loss))
        curves = {} if row is None else row.curves
        for i, k in enumerate(curves.get("k", ())):
            if any(abs(k - wanted) < 1e-9 * max(1.0, k) for wanted in toy.temperatures):
                found.append((loss, f"{k:g}", {name: curve[i] for name, curve in curves.items()}))
        row = trained.get((toy.name, loss))
        if row is not None:
            # A threshold far away and k near 0 is no threshold: all points are in one class.
            k_text = f"{row.metrics['k']:.3g}" if abs(row.metrics["k"]) >= 1e-3 else "0"
            found.append((loss, f"trained: {k_text}".replace("-", "−"), row.metrics))
    lines = [
        (loss_name(loss), k, place_text(at, toy), f"{at['loss']:.4f}", percent_text(at))
        for loss, k, at in found
    ]
    highest = f"{100 * best(toy)[0]:.0f} %"
    return Grid(
        title=f"With k fixed, then trained from k = 1, b = 0: {toy.title}",
        head=("loss", "k (EXACT: 1/σ)", "threshold b", "loss there", "accuracy"),
        rows=tuple(lines),
        note="The threshold is that of the smallest loss for k. None: beyond 100, all points are "
        "in one class. In bold, the highest accuracy that any threshold has.",
        marked=tuple((i, 4) for i, line in enumerate(lines) if line[-1] == highest),
    )


def _ways(rows: Sequence[Row]) -> tuple[ByLoss, dict[str, str]]:
    """The rows of many starts by toy and way of training, and what the ways are called."""
    found: ByLoss = {}
    names: dict[tuple[bool, float, str], str] = {}
    for row in rows:
        if row.fold == "trained":
            found[row.table, row.loss] = row
            names[False, LOSSES.index(row.loss), row.loss] = f"{loss_name(row.loss)}, k trained"
        elif row.fold == "lowered":
            margin = row.numbers["margin"] or 0.0
            found[row.table, f"lowered-{margin}"] = row
            text = f", margin {margin:g}" if margin else ""
            names[True, margin, f"lowered-{margin}"] = f"EXACT, σ lowered{text}"
    return found, {key[-1]: names[key] for key in sorted(names)}


def _reached(row: Row) -> str:
    return f"{row.metrics['reached']:.0f} of {row.metrics['starts']:.0f}"


def _first(row: Row) -> str:
    return f"{place_text(row.metrics, TOYS[row.table])}, {percent_text(row.metrics)}"


def _starts(ways: ByLoss, names: Mapping[str, str]) -> Section:
    lines = [
        (toy.title, name, _first(row), _reached(row), f"{100 * row.metrics['mean_accuracy']:.1f} %")
        for toy in TOYS.values()
        for way, name in names.items()
        if (row := ways.get((toy.name, way))) is not None
    ]
    grid = Grid(
        title="Where training ends",
        head=("data", "way", "from k = 1, b = 0", "best reached", "mean accuracy"),
        rows=tuple(lines),
        note="Best reached and mean accuracy are over random starts, the same for all ways; the "
        "k of a start is used where k is trained.",
    )
    return Section("From random starts", grids=(grid,), charts=(starts_chart(ways, names),))


def _noise(rows: Sequence[Row]) -> Section:
    """Other noise in the place of the normal, and -log P in the place of P."""
    found = {
        (row.table, str(row.numbers["noise"]), bool(row.numbers["log"]), row.numbers["way"]): row
        for row in rows
        if row.fold == "noise"
    }
    lines = []
    for toy in TOYS.values():
        for kind, name in _NOISES.items():
            both = [found.get((toy.name, *kind, way)) for way in ("trained", "lowered")]
            cells = [(_first(row), _reached(row)) if row else ("–", "–") for row in both]
            if any(both):
                lines.append((toy.title, name, *cells[0], *cells[1]))
    grid = Grid(
        title="The same with other noise",
        head=(
            *("data", "noise", "k trained, from k = 1, b = 0", "best reached"),
            *("σ lowered, from b = 0", "best reached"),
        ),
        rows=tuple(lines),
        note="Best reached: from how many random starts. The blog's −log of the mean P has its "
        "minima where EXACT has them; what differs is the mean of −log P, shown here. With Gumbel "
        "noise that is cross entropy.",
    )
    return Section("The blog: what does the normal buy?", grids=(grid,))
