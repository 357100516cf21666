"""The blog's objections to the toy example, answered with numbers."""

from collections.abc import Mapping, Sequence

from expacc.recipes.exact.toy_charts import percent, place
from expacc.recipes.exact.toy_charts_blog import landscape_chart, starts_chart, temperature_chart
from expacc.recipes.exact.toy_data import LOSSES, TOYS, Toy, best
from expacc.recipes.page import Grid, Section
from expacc.report.loss_names import loss_name
from expacc.runner.rows import Row

__all__ = ["blog_sections", "noise_section", "objection"]

Ways = dict[tuple[str, str], Row]


def _ways(rows: Sequence[Row]) -> tuple[Ways, dict[str, str]]:
    """The rows of many starts by toy and way of training, and what the ways are called."""
    found: Ways = {}
    names: dict[str, str] = {}
    for loss in LOSSES:
        for row in rows:
            if row.fold == "trained" and row.loss == loss:
                found[row.table, loss] = row
                names[loss] = f"{loss_name(loss)}, k trained"
    for row in rows:
        if row.fold == "lowered":
            margin = row.numbers["margin"]
            way = f"lowered-{margin}"
            found[row.table, way] = row
            names[way] = "EXACT, σ lowered" + (f", margin {margin:g}" if margin else "")
    order = sorted(names, key=lambda way: (way.startswith("lowered"), _margin(way)))
    return found, {way: names[way] for way in order}


def _margin(way: str) -> float:
    _, _, margin = way.partition("-")
    return 0.0 if margin in ("", "None") else float(margin)


def _right(row: Row) -> bool:
    return row.metrics["accuracy"] > best(TOYS[row.table])[0] - 1e-9


def _two(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def objection(rows: Sequence[Row]) -> list[str]:
    """The answer to the blog, a sentence per toy, as far as there are rows."""
    ways, _ = _ways(rows)
    said = []
    for toy in TOYS.values():
        others = [ways.get((toy.name, loss)) for loss in ("cross_entropy", "hinge")]
        if None in others:
            continue
        right = [loss_name(row.loss) for row in others if row is not None and _right(row)]
        wrong = [loss_name(row.loss) for row in others if row is not None and not _right(row)]
        highest = f"{100 * best(toy)[0]:.0f} %"
        if not wrong:
            said.append(
                f"The blog is right about the {toy.title}: with the temperature trained, "
                f"{_two(right)} reach {highest} too."
            )
        elif right:
            said.append(
                f"On the {toy.title}, with the temperature trained, {_two(right)} reaches "
                f"{highest} too; {_two(wrong)} does not."
            )
        else:
            shares = _two([f"{100 * row.metrics['accuracy']:.0f} %" for row in others if row])
            said.append(
                f"On the {toy.title} the objection fails: with the temperature trained, "
                f"{_two(wrong)} end at {shares}, below {highest}."
            )
    reached = _reached(ways)
    return [*said, reached] if reached else said


def _reached(ways: Ways) -> str:
    """How surely EXACT's training finds the best of the five points."""
    row = ways.get(("five", "lowered-None")), ways.get(("five", "exact"))
    words = [
        f"{one.metrics['reached']:.0f} of {one.metrics['starts']:.0f} random starts with {how}"
        for one, how in zip(row, ("σ lowered slowly", "k trained"), strict=True)
        if one is not None
    ]
    if not words:
        return ""
    return f"EXACT itself finds the best of the five points from {_two(words)}."


def blog_sections(rows: Sequence[Row]) -> list[Section]:
    """With the temperature fixed, trained, and from many starts."""
    ways, names = _ways(rows)
    fixed = {(row.table, row.loss): row for row in rows if row.fold == "fixed"}
    sections = []
    if fixed or any(loss in names for loss in LOSSES):
        temperature = temperature_chart(rows)
        landscapes = [landscape_chart(rows, toy) for toy in TOYS.values()]
        sections.append(
            Section(
                title="The blog: what the temperature does",
                text=_texts(ways, fixed),
                grids=tuple(_temperatures(toy, ways, fixed) for toy in TOYS.values()),
                charts=tuple(drawn for drawn in (temperature, *landscapes) if drawn is not None),
            )
        )
    drawn = starts_chart(ways, names)
    if drawn is not None:
        sections.append(
            Section(
                title="From random starts",
                text=_starts_text(ways),
                grids=(_starts_grid(ways, names),),
                charts=(drawn,),
            )
        )
    return sections


def _texts(ways: Ways, fixed: Mapping[tuple[str, str], Row]) -> tuple[str, ...]:
    """What is shown of the objection, a paragraph each."""
    said = []
    row = fixed.get(("three", "exact"))
    at_one = None if row is None else _at(row, 1.0)
    if row is not None and at_one is not None and at_one["accuracy"] < best(TOYS["three"])[0]:
        said.append(
            "EXACT's σ is a temperature, as the blog says: with σ held at 1 it too misclassifies, "
            f"at b = {at_one['low']:.3g}, {100 * at_one['accuracy']:.0f} % of the three points "
            "right. On these points the comparison shows a missing temperature, not a worse loss."
        )
    five = [ways.get(("five", loss)) for loss in ("cross_entropy", "hinge")]
    if all(one is not None and not _right(one) for one in five):
        said.append(
            "The five points, which the blog does not discuss, have the temperature free from the "
            "start. Cross entropy and hinge are convex in k and k b, so that where their training "
            "ends is the smallest loss there is, and it is not the most accurate: f = k (x − b) "
            "cannot be right everywhere, and they weigh how far wrong a point is."
        )
    exact = fixed.get(("five", "exact"))
    if exact is not None:
        sharp = _at(exact, max(exact.curves["k"]))
        if sharp is not None and sharp["accuracy"] > best(TOYS["five"])[0] - 1e-9:
            where, loss, share = _cells(TOYS["five"], sharp)
            said.append(
                f"EXACT is smallest where most points are right once k is large: at k = "
                f"{max(exact.curves['k']):g} its threshold is {where}, its loss {loss}, the "
                f"accuracy {share}."
            )
    return tuple(said)


def _at(row: Row, k: float) -> dict[str, float] | None:
    """The metrics of a row of fixed temperatures at one of them."""
    for i, value in enumerate(row.curves["k"]):
        if abs(value - k) < 1e-9 * max(1.0, k):
            return {name: curve[i] for name, curve in row.curves.items()}
    return None


def _temperatures(toy: Toy, ways: Ways, fixed: Mapping[tuple[str, str], Row]) -> Grid:
    lines, marked = [], []
    for loss in LOSSES:
        row = fixed.get((toy.name, loss))
        for k in toy.temperatures if row is not None else ():
            at = _at(row, k) if row is not None else None
            if at is not None:
                lines.append((loss_name(loss), f"{k:g}", *_cells(toy, at)))
        trained = ways.get((toy.name, loss))
        if trained is not None:
            # A threshold far away and k near 0 is no threshold: all points are in one class.
            k = trained.metrics["k"]
            k_text = f"trained: {k:.3g}".replace("-", "−") if abs(k) >= 1e-3 else "trained: 0"
            lines.append((loss_name(loss), k_text, *_cells(toy, trained.metrics)))
    for number, line in enumerate(lines):
        if line[-1] == f"{100 * best(toy)[0]:.0f} %":
            marked.append((number, len(line) - 1))
    return Grid(
        title=f"With k fixed, then trained from k = 1, b = 0: {toy.title}",
        head=("loss", "k (EXACT: 1/σ)", "threshold b", "loss there", "accuracy"),
        rows=tuple(lines),
        note="The threshold is that of the smallest loss for k. None: beyond 100, all points are "
        "in one class. In bold, the highest accuracy that any threshold has.",
        marked=tuple(marked),
    )


def _cells(toy: Toy, metrics: Mapping[str, float]) -> tuple[str, str, str]:
    row = Row("", "", "final", toy.name, "", "", metrics=dict(metrics))
    return place(row, toy), f"{metrics['loss']:.4f}", percent(row)


def _starts_text(ways: Ways) -> tuple[str, ...]:
    """From how many starts the best is reached, a sentence per toy."""
    said = []
    for toy in TOYS.values():
        trained = [
            f"{loss_name(loss)} {ways[toy.name, loss].metrics['reached']:.0f}"
            for loss in LOSSES
            if (toy.name, loss) in ways
        ]
        lowered = {
            _margin(way): row.metrics["reached"]
            for (name, way), row in ways.items()
            if name == toy.name and way.startswith("lowered")
        }
        counts = [row.metrics["starts"] for (name, _), row in ways.items() if name == toy.name]
        if not counts:
            continue
        words = [f"with k trained, {', '.join(trained)}"] if trained else []
        if 0.0 in lowered:
            words.append(f"with σ lowered, EXACT {lowered.pop(0.0):.0f}")
        if lowered:
            low, high = min(lowered.values()), max(lowered.values())
            most = max(lowered, key=lambda margin: (lowered[margin], -margin))
            span = f"{low:.0f}" if low == high else f"{low:.0f} to {high:.0f}"
            words.append(f"with a margin as well, {span} (most with margin {most:g})")
        said.append(
            f"Of {counts[0]:.0f} random starts, so many reach the best of the {toy.title}: "
            f"{'; '.join(words)}."
        )
    return tuple(said)


def _starts_grid(ways: Ways, names: Mapping[str, str]) -> Grid:
    lines = []
    for toy in TOYS.values():
        for way, name in names.items():
            row = ways.get((toy.name, way))
            if row is None:
                continue
            m = row.metrics
            first = f"{place(row, toy)}, {percent(row)}"
            reached = f"{m['reached']:.0f} of {m['starts']:.0f}"
            lines.append((toy.title, name, first, reached, f"{100 * m['mean_accuracy']:.1f} %"))
    return Grid(
        title="Where training ends",
        head=("data", "way", "from k = 1, b = 0", "best reached", "mean accuracy"),
        rows=tuple(lines),
        note="Best reached and mean accuracy are over random starts, the same for all ways; the "
        "k of a start is used where k is trained.",
    )


_NOISES = {
    ("normal", False): "normal (EXACT)",
    ("gumbel", False): "Gumbel: the softmax's 1 − p",
    ("logistic", False): "logistic",
    ("laplace", False): "Laplace",
    ("normal", True): "normal, −log P",
}


def noise_section(rows: Sequence[Row]) -> list[Section]:
    """Other noise in the place of the normal, and -log P in the place of P."""
    found: dict[tuple[str, tuple[str, bool], str], Row] = {}
    for row in rows:
        if row.fold == "noise":
            kind = str(row.numbers["noise"]), bool(row.numbers["log"])
            found[row.table, kind, str(row.numbers["way"])] = row
    if not found:
        return []
    lines = []
    for toy in TOYS.values():
        for kind, name in _NOISES.items():
            cells = []
            for way in ("trained", "lowered"):
                cell = found.get((toy.name, kind, way))
                if cell is None:
                    cells += ["–", "–"]
                    continue
                m = cell.metrics
                cells += [f"{place(cell, toy)}, {percent(cell)}"]
                cells += [f"{m['reached']:.0f} of {m['starts']:.0f}"]
            if set(cells) != {"–"}:
                lines.append((toy.title, name, *cells))
    return [
        Section(
            title="The blog: what does the normal buy?",
            text=_noise_text(found),
            grids=(
                Grid(
                    title="The same with other noise",
                    head=(
                        *("data", "noise", "k trained, from k = 1, b = 0", "best reached"),
                        *("σ lowered, from b = 0", "best reached"),
                    ),
                    rows=tuple(lines),
                    note="The blog's −log of the mean P has its minima where EXACT has them; what "
                    "differs is the mean of −log P, shown here. With Gumbel noise that is cross "
                    "entropy.",
                ),
            ),
        )
    ]


def _noise_text(found: Mapping[tuple[str, tuple[str, bool], str], Row]) -> tuple[str, ...]:
    said = []
    normal = found.get(("five", ("normal", False), "lowered"))
    others = {
        kind[0]: row
        for (toy, kind, way), row in found.items()
        if toy == "five" and way == "lowered" and kind[0] != "normal" and not kind[1]
    }
    if normal is not None and others:
        as_good = [name for name, row in others.items() if _right(row)]
        shares = ", ".join(f"{name} {row.metrics['reached']:.0f}" for name, row in others.items())
        same = f"{len(as_good)} of {len(others)} other kinds of noise end"
        said.append(
            f"With σ lowered from b = 0 on the five points, {same} at the best accuracy, as the "
            f"normal {'does' if _right(normal) else 'does not'}. From random starts the normal "
            f"gets there {normal.metrics['reached']:.0f} times of {normal.metrics['starts']:.0f}, "
            f"the others: {shares}."
        )
    logs = []
    for toy in TOYS.values():
        plain, log = (found.get((toy.name, ("normal", kind), "lowered")) for kind in (False, True))
        if plain is not None and log is not None:
            logs.append(
                f"the best of the {toy.title} from {log.metrics['reached']:.0f} of "
                f"{log.metrics['starts']:.0f} starts, P itself from {plain.metrics['reached']:.0f}"
            )
    if logs:
        said.append(f"The mean of −log P, with σ lowered, reaches {'; '.join(logs)}.")
    return tuple(said)
