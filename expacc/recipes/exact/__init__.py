"""EXACT, its tables and figures, and the blog's; here what is printed, as the recipes use it.

Karpukhin, Dereka and Kolesnikov, "EXACT: How to Train Your Accuracy", arXiv 2205.09615; its numbers
are in ``paper.toml``.
"""

from dataclasses import dataclass
from typing import Any

from expacc.recipes.paper import load_paper, numbers

_PAPER = load_paper("exact")
SEEDS: int = _PAPER["seeds"]
TABLES: tuple[str, ...] = tuple(_PAPER["tables"])
METHODS: dict[str, str] = _PAPER["methods"]  # method → what the paper calls it
NOISE_METHODS: dict[str, str] = _PAPER["noise"]["methods"]  # method → what we call it
NOISE_QUESTIONS: list[list[str]] = _PAPER["noise"]["questions"]  # first, and second method
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
