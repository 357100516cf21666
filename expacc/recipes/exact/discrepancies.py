"""Why a number differs from the paper's: what the rows and the paper itself say about it."""

from collections.abc import Mapping
from typing import Any, Literal

from expacc.recipes.exact.paper import TABLE_1, TABLE_2, TABLE_4
from expacc.recipes.exact.rows import Scores, number_text
from expacc.recipes.page import Comparison, verdict

__all__ = ["cause"]

Where = Literal["test", "train"]
CLOSE = 0.35  # points: half of what counts as equal


def cause(
    row: Comparison,
    table: str,
    method: str,
    where: Where,
    scores: Scores,
    facts: Mapping[str, Any],
) -> str:
    """Sentences on a number that is not as printed; which ones, the rows decide."""
    found = [
        *_printed_twice(row, table, method, where),
        *_decay(row, table, method, where, scores, facts),
        *_sampled(row, table, method, where, scores),
        *_grain(row, table, where, facts),
        *_seeds(row, table, method, where, scores),
    ]
    return " ".join(found) or "No cause found."


def _printed_twice(row: Comparison, table: str, method: str, where: Where) -> list[str]:
    """Table 4 gives EXACT's test accuracy a second time."""
    if method != "exact" or where != "test" or row.ours is None:
        return []
    again = TABLE_4[table]["exact"]
    if verdict(Comparison(row.labels, again, row.ours)) != "within":
        return []
    return [
        f"The paper prints this number twice, {number_text(TABLE_2[table]['exact'])} here and "
        f"{number_text(again)} in Table 4, {abs(row.ours.mean - again.mean):.2f} from ours."
    ]


def _decay(
    row: Comparison, table: str, method: str, where: Where, scores: Scores, facts: Mapping[str, Any]
) -> list[str]:
    """Section 5.4 has a weight decay that Table 8 has not."""
    number = scores.number("decay", table, method, where)
    if number is None:
        return []
    words = (
        f"With the weight decay of Section 5.4, {facts['decay']:g}, where Table 8 prints 0, it is "
        f"{number_text(number)}"
    )
    near = verdict(Comparison(row.labels, row.theirs, number)) == "within"
    return [f"{words}, as in the paper." if near else f"{words}."]


def _sampled(row: Comparison, table: str, method: str, where: Where, scores: Scores) -> list[str]:
    number = scores.number("sampled", table, "exact: sampled", where)
    if method != "exact" or number is None or row.ours is None:
        return []
    words = f"By the authors' sampled gradient, with the same settings, it is {number_text(number)}"
    if abs(number.mean - row.ours.mean) <= CLOSE:
        return [f"{words}: the integral is not the cause."]
    return [f"{words}."]


def _grain(row: Comparison, table: str, where: Where, facts: Mapping[str, Any]) -> list[str]:
    count = facts["tables"][table][f"{where}_rows"]
    one = 100 / count
    gap = abs(row.difference or 0.0)
    if gap > 2.5 * one:
        return []
    return [f"One of the {count} {where} rows is {one:.2f} points."]


def _seeds(row: Comparison, table: str, method: str, where: Where, scores: Scores) -> list[str]:
    """Where some of our seeds have the paper's number and others have not."""
    printed = (TABLE_2 if where == "test" else TABLE_1)[table][method].mean
    each = scores.each("given", table, method, where).values()
    same = sum(abs(value - printed) < 0.005 for value in each)
    if not 0 < same < len(each):
        return []
    return [f"{same} of our {len(each)} seeds have the paper's number."]
