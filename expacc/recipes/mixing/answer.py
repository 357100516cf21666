"""What mixing-uci found, in sentences; every one follows from the numbers."""

from collections.abc import Mapping

from expacc.recipes.mixing.paper import (
    ARMS,
    CE,
    CONTROL,
    EL,
    GRADUAL,
    TABLE_4,
    TABLES,
)
from expacc.recipes.mixing.scores import Scores, Summary, ranking, summary
from expacc.report.words import p_text
from expacc.stats import CriticalDifference, wilcoxon

__all__ = ["answer", "control_text", "order_text"]

Six = Mapping[str, Summary]
NEGLIGIBLE = 1e-9  # ranks: what rounding may leave between equals


def _place(six: Six, name: str) -> int:
    """Where a loss stands by mean rank, from 1; equals share the best place."""
    own = six[name].mean_rank.mean
    return 1 + sum(other.mean_rank.mean < own - NEGLIGIBLE for other in six.values())


def _is_last(six: Six, name: str) -> bool:
    own = six[name].mean_rank.mean
    return all(other.mean_rank.mean <= own + NEGLIGIBLE for other in six.values())


def _signed(value: float) -> str:
    text = f"{value:+.2f}"
    return text.replace("-", "−") if float(text) else "0.00"


def answer(
    six: Mapping[str, Six],
    ranks: Mapping[str, CriticalDifference],
    scores: Mapping[str, Scores],
) -> str:
    """The sentences on top."""
    if not six:
        return "Nothing has been run yet."
    most = max(len(one.tables) for one in scores.values())
    said = [f"On {most} of the paper's {len(TABLES)} tables {_order_holds(six)}."]
    sides = {shape: _ahead(one) for shape, one in six.items()}
    theirs = {shape: _printed_ahead(shape) for shape in six}
    if sides == theirs:
        said.append("As there, all three mixtures are ahead of CE, focal loss and EL behind it.")
    else:
        parts = [f"{_listed(names)} ({shape})" for shape, names in sides.items()]
        said.append(f"Ahead of CE by mean rank: {'; '.join(parts)}.")
    gains = []
    for shape, one in six.items():
        found = ranks.get(shape)
        sure = f", {p_text(_pair(found, GRADUAL, CE))}" if found is not None else ""
        mine = one[GRADUAL]
        gains.append(
            f"{_signed(mine.gain.mean)} points ({shape}: better on {mine.better} tables, worse on "
            f"{mine.worse}{sure})"
        )
    said.append(f"F=0-0.5 gains {' and '.join(gains)} over CE.")
    control = [
        f"{_signed(summary(one, (*ARMS, CONTROL))[CONTROL].gain.mean)} ({shape})"
        for shape, one in scores.items()
    ]
    said.append(f"CE with its learning rate scaled instead gains {' and '.join(control)}.")
    return " ".join(said)


def _order_holds(six: Mapping[str, Six]) -> str:
    """Whether F=0-0.5 has the best mean rank and EL the last, with every classifier."""
    begins = all(_place(one, GRADUAL) == 1 for one in six.values())
    ends = all(_is_last(one, EL) for one in six.values())
    if begins and ends:
        return "its order holds: F=0-0.5 has the best mean rank and EL the last"
    place = [f"number {_place(one, GRADUAL)} ({shape})" for shape, one in six.items()]
    end = [f"number {_place(one, EL)} ({shape})" for shape, one in six.items()]
    if ends:
        return (
            f"its order holds in part: EL has the last mean rank, but F=0-0.5 is not first "
            f"throughout, it is {' and '.join(place)}, after {_listed(_before(six))}"
        )
    if begins:
        return (
            f"its order holds in part: F=0-0.5 has the best mean rank, but EL is not last "
            f"throughout, it is {' and '.join(end)} of {len(ARMS)}"
        )
    return (
        f"its order does not hold: by mean rank F=0-0.5 is {' and '.join(place)} and EL is "
        f"{' and '.join(end)} of {len(ARMS)}"
    )


def _before(six: Mapping[str, Six]) -> list[str]:
    """Losses that stand before the gradual mixture somewhere."""
    return [
        name
        for name in ARMS
        if any(_place(one, name) < _place(one, GRADUAL) for one in six.values())
    ]


def _ahead(six: Six) -> list[str]:
    """Losses with a better mean rank than CE."""
    return [name for name in ARMS if _place(six, name) < _place(six, CE)]


def _printed_ahead(shape: str) -> list[str]:
    printed = TABLE_4[shape]
    return [name for name in ARMS if printed[name].mean_rank < printed[CE].mean_rank]


def _pair(ranks: CriticalDifference, one: str, other: str) -> float:
    """Conover's adjusted p-value of a pair of the six."""
    return float(ranks.pairs.adjusted[ARMS.index(one), ARMS.index(other)])


def order_text(shape: str, six: Six, ranks: CriticalDifference) -> str:
    """Theirs and ours from the best to the last, and what is the same."""
    printed = TABLE_4[shape]
    theirs = sorted(printed, key=lambda name: printed[name].mean_rank)
    pairs = [(a, b) for place, a in enumerate(theirs) for b in theirs[place + 1 :]]
    same = sum(_place(six, a) < _place(six, b) for a, b in pairs)
    places = [
        f"{name} is number {_place(six, name)} of {len(ARMS)} (number "
        f"{ranks.names.index(name) + 1} by ranks of table means)"
        for name in (GRADUAL, EL)
    ]
    said = [
        f"{shape[0].upper()}{shape[1:]}: by mean rank {same} of {len(pairs)} pairs of losses stand "
        f"as in the paper; {' and '.join(places)}."
    ]
    better = list(ranks.names[: ranks.names.index(CE)])
    sure = [name for name in better if _pair(ranks, name, CE) <= ranks.significance]
    if not better:
        said.append("By ranks of table means no loss is ahead of CE.")
    else:
        beyond = f"beyond chance: {_listed(sure)}" if sure else "none of them beyond chance"
        verb = "ranks" if len(better) == 1 else "rank"
        said.append(
            f"By ranks of table means {_listed(better)} {verb} ahead of CE, {beyond} (Conover, "
            f"5 % level)."
        )
    rivals = [name for name in better if name != GRADUAL]
    apart = [name for name in rivals if _pair(ranks, name, GRADUAL) <= ranks.significance]
    if GRADUAL in better and rivals and not apart:
        said.append(f"F=0-0.5 is not told apart from {_listed(rivals)}.")
    return " ".join(said)


def control_text(scores: Scores) -> str:
    """How the control did against CE and against the gradual mixture."""
    means = scores.means()
    columns = {name: means[:, scores.columns([name])[0]] for name in (CE, GRADUAL, CONTROL)}
    parts = []
    for other in (CE, GRADUAL):
        gap = columns[CONTROL] - columns[other]
        outcome = ""
        if len(gap) > 1:
            test = wilcoxon(means[:, scores.columns([CONTROL, other])])
            outcome = f", {p_text(test.p_value)} by Wilcoxon's test"
        tie = 1e-8
        parts.append(
            f"{_signed(float(gap.mean()))} points against {other} (better on "
            f"{int((gap > tie).sum())}, worse on {int((gap < -tie).sum())} of {len(gap)} "
            f"tables{outcome})"
        )
    said = f"{scores.shape[0].upper()}{scores.shape[1:]}: the control has {' and '.join(parts)}."
    found = ranking(scores, (*ARMS, CONTROL))
    if found is None:
        return said
    place = found.names.index(CONTROL) + 1
    return f"{said} Among all seven it is number {place} by mean rank of table means."


def _listed(words: list[str]) -> str:
    if not words:
        return "none"
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
