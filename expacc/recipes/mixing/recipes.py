"""The recipes of the mixing paper: its gradients, and its experiment on 121 UCI tables."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from expacc.recipes.mixing.gradients import GRADIENTS
from expacc.recipes.page import Page
from expacc.recipes.recipe import Recipe, RecipeOptions, Work

if TYPE_CHECKING:
    from expacc.runner.rows import Row

__all__ = ["RECIPES", "UCI"]


def _plan(ask: RecipeOptions) -> Work:
    from expacc.recipes.mixing.work import plan

    return plan(ask)


def _write(rows: Sequence["Row"], facts: Mapping[str, Any]) -> Page:
    from expacc.recipes.mixing.page import write

    return write(rows, facts)


UCI = Recipe(
    name="mixing-uci",
    paper="mixing",
    shows="Table 4, Figure 3, Eq. 20 to 22",
    what="six losses and a control, linear and with a hidden layer, on the prepared UCI tables",
    needs=("uci121",),
    minutes=17.0,
    plan=_plan,
    write=_write,
)

RECIPES: tuple[Recipe, ...] = (GRADIENTS, UCI)
