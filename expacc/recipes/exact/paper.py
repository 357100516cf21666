"""What the EXACT paper prints, from ``paper.toml``, in the shapes that the recipes use.

Karpukhin, Dereka and Kolesnikov, "EXACT: How to Train Your Accuracy", arXiv 2205.09615.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from expacc.recipes.page import Claim, Page, Section
from expacc.recipes.paper import load_paper, numbers

__all__ = [
    "COST",
    "INTEGRAL",
    "METHODS",
    "SEEDS",
    "TABLES",
    "TABLE_1",
    "TABLE_2",
    "TABLE_4",
    "TABLE_5",
    "TABLE_6",
    "TABLE_8",
    "TOY",
    "Settings",
    "page_of",
]

_PAPER = load_paper("exact")
SEEDS: int = _PAPER["seeds"]
TABLES: tuple[str, ...] = tuple(_PAPER["tables"])
METHODS: dict[str, str] = _PAPER["methods"]  # method → what the paper calls it
TOY: dict[str, dict[str, tuple[float, float, float]]] = _PAPER["toy"]
INTEGRAL: dict[str, Any] = _PAPER["integral"]
COST: dict[str, Any] = _PAPER["cost"]
TABLE_1, TABLE_2, TABLE_4, TABLE_5, TABLE_6 = (
    numbers("exact", f"table_{place}") for place in (1, 2, 4, 5, 6)
)


@dataclass(frozen=True)
class Settings:
    """A line of Table 8, or what a search found in its place.

    Args:
        learning_rate: at the start; None for scikit-learn.
        clip: the largest norm of the gradient; None for none.
        margin: of hinge and EXACT; None for none.
        regularization: L2 on the weights; of scikit-learn 1/C, 0 for no penalty.
    """

    learning_rate: float | None = None
    clip: float | None = None
    margin: float | None = None
    regularization: float = 0.0

    def record(self) -> dict[str, float]:
        """Those that there are, for a row."""
        return {name: float(value) for name, value in vars(self).items() if value is not None}


TABLE_8 = {
    method: {
        table: Settings(**dict(zip(printed["columns"], cells, strict=True)))
        for table, cells in printed["rows"].items()
    }
    for method, printed in _PAPER["table_8"].items()
}


def page_of(
    name: str, facts: Mapping[str, Any], sections: Iterable[Section], claims: Iterable[Claim] = ()
) -> Page:
    """The page of a recipe: title, claim and deviations as ``paper.toml`` has them.

    Args:
        name: of the recipe.
        facts: of the work; named in braces in the text.
        sections: the body; tables without rows, and sections without anything, are left out.
        claims: what the paper says, piece by piece.
    """
    text = _PAPER["pages"][name]
    told = [
        one
        for said in text["deviations"]
        for one in (_PAPER["protocol"]["deviations"] if said == "protocol" else [said])
    ]
    full = (replace(one, grids=tuple(g for g in one.grids if g.rows)) for one in sections)
    return Page(
        title=text["title"],
        claim=text["claim"],
        answer="",
        sections=tuple(one for one in full if one.beside or one.grids or one.charts),
        deviations=tuple(one.format(**facts) for one in told),
        claims=tuple(claims),
    )
