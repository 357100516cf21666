"""What the EXACT paper prints, from ``paper.toml``: its tables as numbers, its settings.

Karpukhin, Dereka and Kolesnikov, "EXACT: How to Train Your Accuracy", arXiv 2205.09615.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from expacc.recipes.page import Number

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
]

_PAPER = tomllib.loads((files(__package__) / "paper.toml").read_text("utf-8"))
SEEDS: int = _PAPER["seeds"]
TABLES: tuple[str, ...] = tuple(_PAPER["tables"])
METHODS: dict[str, str] = _PAPER["methods"]  # method → what the paper calls it
TOY: dict[str, dict[str, tuple[float, float, float]]] = _PAPER["toy"]
INTEGRAL: dict[str, Any] = _PAPER["integral"]
COST: dict[str, Any] = _PAPER["cost"]


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


def _cells(printed: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Table → column → what the paper prints there."""
    return {table: dict(zip(printed["columns"], printed[table], strict=True)) for table in TABLES}


def _numbers(printed: Mapping[str, Any]) -> dict[str, dict[str, Number]]:
    return {
        table: {column: Number(*cell, SEEDS) for column, cell in row.items()}
        for table, row in _cells(printed).items()
    }


TABLE_1, TABLE_2, TABLE_4, TABLE_5, TABLE_6 = (
    _numbers(_PAPER[f"table_{n}"]) for n in (1, 2, 4, 5, 6)
)
TABLE_8 = {
    method: {table: Settings(**row) for table, row in _cells(printed).items()}
    for method, printed in _PAPER["table_8"].items()
}
