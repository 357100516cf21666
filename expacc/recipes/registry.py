"""The recipes by name: those that each paper's ``paper.toml`` declares."""

import difflib
import functools
from importlib import import_module
from typing import Any

from expacc.recipes.paper import load_paper
from expacc.recipes.recipe import Recipe

PAPERS = ["exact", "leaky", "mixing"]  # the folders, in the order of the recipes
# Further modules that end with RECIPES and are cheap to import.
MODULES: list[str] = []


def paper_titles() -> dict[str, str]:
    """Short name of a paper → its title."""
    found: dict[str, str] = {}
    for paper in map(load_paper, PAPERS):
        found |= {paper["name"]: paper["title"], **paper.get("titles", {})}
    return found


def recipes_of(folder: str) -> list[Recipe]:
    """The recipes that a paper declares; what they run is imported when it is asked for."""
    paper, found = load_paper(folder), []
    for name, one in paper["recipes"].items():
        called = {step: functools.partial(_call, one[step]) for step in ("plan", "write")}
        needs = tuple(one.get("needs", ()))
        found.append(Recipe(name, **{"paper": paper["name"], **one, "needs": needs, **called}))
    return found


def _call(path: str, *given: Any) -> Any:
    """Call the function with the path 'package.module:name'; its module may bring torch."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)(*given)


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
