"""The recipes of the leaky-expected-error paper: leerr-uci and the two of MNIST."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from expacc.recipes.page import Page
from expacc.recipes.recipe import Recipe, RecipeOptions, Work

if TYPE_CHECKING:
    from expacc.runner.rows import Row

__all__ = ["RECIPES"]

# Work and pages bring torch and matplotlib, which the list of recipes does not need.


def _plan_uci(ask: RecipeOptions) -> Work:
    from expacc.recipes.leaky.uci import plan

    return plan(ask)


def _write_uci(rows: Sequence["Row"], facts: Mapping[str, Any]) -> Page:
    from expacc.recipes.leaky.uci_page import write

    return write(rows, facts)


def _plan_logistic(ask: RecipeOptions) -> Work:
    from expacc.recipes.leaky.logistic import plan

    return plan(ask)


def _write_logistic(rows: Sequence["Row"], facts: Mapping[str, Any]) -> Page:
    from expacc.recipes.leaky.logistic_page import write

    return write(rows, facts)


def _plan_mlp(ask: RecipeOptions) -> Work:
    from expacc.recipes.leaky.mlp import plan

    return plan(ask)


def _write_mlp(rows: Sequence["Row"], facts: Mapping[str, Any]) -> Page:
    from expacc.recipes.leaky.mlp_page import write

    return write(rows, facts)


RECIPES: tuple[Recipe, ...] = (
    Recipe(
        name="leerr-uci",
        paper="leaky expected error",
        shows="Table 3",
        what="logistic regression on UCI tables: NegLog, EErr and LEErr on 5×2 folds, paired tests",
        needs=("leerr-uci",),
        minutes=2,
        plan=_plan_uci,
        write=_write_uci,
    ),
    Recipe(
        name="leerr-mnist-logistic",
        paper="leaky expected error",
        shows="Figures 2, 3, 4",
        what="logistic regression on MNIST: training curves, ten folds, gradient norms, plateaus",
        needs=("mnist",),
        minutes=16,
        plan=_plan_logistic,
        write=_write_logistic,
    ),
    Recipe(
        name="leerr-mnist-mlp",
        paper="leaky expected error",
        shows="Table 4",
        what="a 300-200-100 network with dropout on MNIST, with and without 5 % label noise",
        needs=("mnist",),
        minutes=65,
        plan=_plan_mlp,
        write=_write_mlp,
    ),
)
