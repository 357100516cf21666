"""The recipes of the EXACT paper's tables, and of the doubt that a blog had about them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from expacc.recipes.page import Page
from expacc.recipes.recipe import Recipe, RecipeOptions, Work

if TYPE_CHECKING:
    from expacc.runner.rows import Row

__all__ = ["RECIPES"]

Rows = Sequence["Row"]
Facts = Mapping[str, Any]


def _plan_uci(ask: RecipeOptions) -> Work:
    from expacc.recipes.exact.plan import plan_uci

    return plan_uci(ask)


def _write_uci(rows: Rows, facts: Facts) -> Page:
    from expacc.recipes.exact.page import write

    return write(rows, facts)


def _plan_ablation(ask: RecipeOptions) -> Work:
    from expacc.recipes.exact.plan import plan_ablation

    return plan_ablation(ask)


def _write_ablation(rows: Rows, facts: Facts) -> Page:
    from expacc.recipes.exact.parts_page import write_ablation

    return write_ablation(rows, facts)


def _plan_normalizer(ask: RecipeOptions) -> Work:
    from expacc.recipes.exact.plan import plan_normalizer

    return plan_normalizer(ask)


def _write_normalizer(rows: Rows, facts: Facts) -> Page:
    from expacc.recipes.exact.parts_page import write_normalizer

    return write_normalizer(rows, facts)


def _plan_noise(ask: RecipeOptions) -> Work:
    from expacc.recipes.exact.plan import plan_noise

    return plan_noise(ask)


def _write_noise(rows: Rows, facts: Facts) -> Page:
    from expacc.recipes.exact.noise_page import write

    return write(rows, facts)


RECIPES: tuple[Recipe, ...] = (
    Recipe(
        name="exact-uci",
        paper="EXACT",
        shows="Tables 1, 2 and 8",
        what="linear models on UCI tables: scikit-learn, cross entropy, hinge, EXACT; clean search",
        needs=("exact-uci",),
        minutes=15,
        plan=_plan_uci,
        write=_write_uci,
    ),
    Recipe(
        name="exact-ablation",
        paper="EXACT",
        shows="Table 4",
        what="EXACT without margin, variance schedule or gradient normaliser",
        needs=("exact-uci",),
        minutes=7,
        plan=_plan_ablation,
        write=_write_ablation,
    ),
    Recipe(
        name="exact-normalizer",
        paper="EXACT",
        shows="Tables 5 and 6",
        what="cross entropy and hinge with the gradient normaliser",
        needs=("exact-uci",),
        minutes=3,
        plan=_plan_normalizer,
        write=_write_normalizer,
    ),
    Recipe(
        name="exact-noise",
        paper="blog",
        shows="the blog's doubt about EXACT",
        what="normal, Gumbel, logistic and Laplace noise, and -log P, in the paper's protocol",
        needs=("exact-uci",),
        minutes=25,
        plan=_plan_noise,
        write=_write_noise,
    ),
)
