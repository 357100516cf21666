"""The recipe mixing-gradients: Figure 1 of the mixing paper, and what its text says of it."""

from typing import TYPE_CHECKING

from expacc.recipes.recipe import RecipeOptions, Work

if TYPE_CHECKING:
    from expacc.runner.items import WorkItem
    from expacc.runner.rows import Row

__all__ = ["plan"]

# (ce_weight, error_weight). Eq. 14 with F = 0 … 0.5, between the two losses alone, and Figure 1's
# "vice versa": error_weight 1 beside a smaller ce_weight. The values in the figure's legend are not
# in the text of the paper; the first family has those of its schedule.
MIXES = (
    *((1.0, 0.0), (1.0, 1.0), (1.0, 1.25), (1.0, 5 / 3), (1.0, 2.5), (1.0, 5.0), (0.0, 1.0)),
    *((0.5, 1.0), (0.2, 1.0), (0.1, 1.0)),
)
CLASSES = (2, 10, 100)
QUICK_CLASSES = (2, 10)


def plan(ask: RecipeOptions) -> Work:
    """An item per mix, and one for what the text says."""
    from expacc.runner.items import WorkItem

    classes = QUICK_CLASSES if ask.quick else CLASSES
    shared = {"classes": list(classes), "seed": ask.seed}
    items = [
        WorkItem(
            f"mix-{ce:.3g}-{error:.3g}",
            {"part": "mix", "ce_weight": ce, "error_weight": error, **shared},
        )
        for ce, error in MIXES
    ]
    return Work(
        items=(*items, WorkItem("text", {"part": "text", **shared})),
        executor="expacc.recipes.mixing.gradients_work:execute",
        failed_rows=_failed,
        facts={"classes": list(classes)},
    )


def _failed(item: "WorkItem", reason: str) -> list["Row"]:
    from expacc.runner.rows import Row

    return [
        Row(
            key=f"{item.key}/failed",
            item=item.key,
            kind="final",
            table=item.payload["part"],
            loss="mixed_expected_error",
            fold="",
            numbers={k: v for k, v in item.payload.items() if k.endswith("_weight")},
            failure=reason,
        )
    ]
