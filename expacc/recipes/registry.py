"""The recipes by name. A module of recipes is imported when its names are asked for."""

import difflib
from importlib import import_module

from expacc.recipes.recipe import Recipe

__all__ = ["MODULES", "recipe", "recipes"]

# Each ends with RECIPES and is cheap to import: no torch, no matplotlib.
MODULES = [
    "expacc.recipes.exact.recipes",
    "expacc.recipes.leaky.recipes",
    "expacc.recipes.mixing.recipes",
]


def recipes() -> dict[str, Recipe]:
    """Every recipe by its name, in the order of the papers.

    Raises:
        ValueError: two recipes have the same name.
    """
    found: dict[str, Recipe] = {}
    for module in MODULES:
        for one in import_module(module).RECIPES:
            if one.name in found:
                raise ValueError(f"recipes must have different names; got {one.name!r} twice.")
            found[one.name] = one
    return found


def recipe(name: str) -> Recipe:
    """The recipe of that name.

    Raises:
        ValueError: there is none; names the one that was probably meant.
    """
    known = recipes()
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    meant = f" Did you mean {close[0]}?" if close else ""
    raise ValueError(
        f"NAME must be a recipe; got {name!r}.{meant} expacc reproduce lists all {len(known)}."
    )
