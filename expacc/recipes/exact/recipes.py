"""The recipes of the EXACT paper's figures and tables, and of the doubts that a blog had.

Work and pages bring torch and matplotlib, which the list of recipes does not need: both are named
here, and imported when they are called.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from expacc.recipes.recipe import Recipe

if TYPE_CHECKING:
    from expacc.runner.items import WorkItem
    from expacc.runner.rows import Row

__all__ = ["RECIPES", "failed_row"]


def _later(name: str) -> Callable[..., Any]:
    """A function of this folder, 'module:function', imported when it is called."""
    module, _, function = name.partition(":")

    def call(*given: Any) -> Any:
        return getattr(import_module(f"{__package__}.{module}"), function)(*given)

    return call


def failed_row(item: "WorkItem", reason: str) -> list["Row"]:
    """The row of an item of a figure's recipe that gave none."""
    from expacc.runner.rows import Row

    asked = item.payload
    return [
        Row(
            key=f"{item.key}/failed",
            item=item.key,
            kind="final",
            table=str(asked.get("toy") or asked.get("case") or asked.get("part", "")),
            loss=str(asked.get("loss") or asked.get("method") or "exact"),
            fold=str(asked.get("part", "")),
            numbers=dict(asked),
            failure=reason,
        )
    ]


RECIPES: tuple[Recipe, ...] = (
    Recipe(
        name="exact-toy",
        paper="EXACT",
        shows="Figures 1, 3, 4, 10, Appendices D and E, and the blog's objection",
        what="the thresholds that cross entropy, hinge and EXACT find; landscapes; "
        "temperature trained",
        needs=(),
        minutes=2,
        plan=_later("toy_work:plan"),
        write=_later("toy_page:write"),
    ),
    Recipe(
        name="exact-integral",
        paper="EXACT",
        shows="Figures 8 and 9, Appendix C",
        what="errors of the integral and its gradient: Monte Carlo, Genz, ours, 1 to 1024 samples",
        needs=(),
        minutes=1,
        plan=_later("integral:plan"),
        write=_later("integral_page:write"),
    ),
    Recipe(
        name="exact-cost",
        paper="EXACT",
        shows="Figure 7, Section 6.3",
        what="time and memory against classes and samples, growth exponents, overhead in training",
        needs=(),
        minutes=3,
        plan=_later("cost:plan"),
        write=_later("cost_page:write"),
        alone=True,
    ),
    Recipe(
        name="exact-uci",
        paper="EXACT",
        shows="Tables 1, 2 and 8",
        what="linear models on UCI tables: scikit-learn, cross entropy, hinge, EXACT; clean search",
        needs=("exact-uci",),
        minutes=15,
        plan=_later("plan:plan_uci"),
        write=_later("uci_page:write"),
    ),
    Recipe(
        name="exact-ablation",
        paper="EXACT",
        shows="Table 4",
        what="EXACT without margin, variance schedule or gradient normaliser",
        needs=("exact-uci",),
        minutes=7,
        plan=_later("plan:plan_ablation"),
        write=_later("parts_page:write_ablation"),
    ),
    Recipe(
        name="exact-normalizer",
        paper="EXACT",
        shows="Tables 5 and 6",
        what="cross entropy and hinge with the gradient normaliser",
        needs=("exact-uci",),
        minutes=3,
        plan=_later("plan:plan_normalizer"),
        write=_later("parts_page:write_normalizer"),
    ),
    Recipe(
        name="exact-noise",
        paper="blog",
        shows="the blog's doubt about EXACT",
        what="normal, Gumbel, logistic and Laplace noise, and -log P, in the paper's protocol",
        needs=("exact-uci",),
        minutes=25,
        plan=_later("plan:plan_noise"),
        write=_later("noise_page:write"),
    ),
)
