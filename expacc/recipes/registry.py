"""The recipes by name: those that each paper's ``paper.toml`` declares."""

import difflib
from importlib import import_module

from expacc.recipes.paper import PAPERS, recipes_of
from expacc.recipes.recipe import Recipe

__all__ = ["MODULES", "PAPERS", "recipe", "recipes"]

# Further modules that end with RECIPES and are cheap to import.
MODULES: list[str] = []


def recipes() -> dict[str, Recipe]:
    """Every recipe by its name, in the order of the papers.

    Raises:
        ValueError: two recipes have the same name.
    """
    found: dict[str, Recipe] = {}
    declared = [one for folder in PAPERS for one in recipes_of(folder)]
    declared += [one for module in MODULES for one in import_module(module).RECIPES]
    for one in declared:
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
