"""The papers: each folder's ``paper.toml`` says which recipes there are and what was printed.

A table is declared with its columns, and means with their standard deviations::

    [table_3]
    runs = 10
    columns = ["cross_entropy", "expected_error"]
    [table_3.rows]
    magic = [[20.84, 0.26], [20.54, 0.27]]

``numbers("leaky", "table_3")["magic"]["cross_entropy"]`` is then ``Number(20.84, 0.26, 10)``. A
cell may be a plain number, which has no spread. Whatever else a paper's pages need stands in
sections of any other shape, and is read with ``load_paper``.
"""

import functools
import tomllib
from collections.abc import Mapping
from importlib import import_module, resources
from typing import Any

from expacc.recipes.page import Number
from expacc.recipes.recipe import Recipe

__all__ = ["PAPERS", "load_paper", "numbers", "paper_titles", "recipes_of"]

FILE = "paper.toml"
PAPERS = ["exact", "leaky", "mixing"]  # the folders, in the order of the recipes


def paper_titles() -> dict[str, str]:
    """Short name of a paper → its title."""
    found: dict[str, str] = {}
    for paper in map(load_paper, PAPERS):
        found |= {paper["name"]: paper["title"], **paper.get("titles", {})}
    return found


@functools.cache
def load_paper(folder: str) -> Mapping[str, Any]:
    """The content of a paper's ``paper.toml``.

    Args:
        folder: of the paper, beside this file: 'exact', 'leaky', 'mixing'.

    >>> load_paper("mixing")["name"]
    'mixing'
    """
    text = resources.files("expacc.recipes").joinpath(folder, FILE).read_text(encoding="utf-8")
    return tomllib.loads(text)


def numbers(folder: str, table: str) -> dict[str, dict[str, Number]]:
    """A printed table: row → column → number.

    >>> numbers("leaky", "table_3")["magic"]["cross_entropy"]
    Number(mean=20.84, spread=0.26, count=10)
    """
    section = load_paper(folder)[table]
    found = {}
    for name, cells in section["rows"].items():
        pairs = zip(section["columns"], cells, strict=True)
        found[name] = {column: _number(cell, section.get("runs", 0)) for column, cell in pairs}
    return found


def _number(cell: float | list[float], runs: int) -> Number:
    mean, *spread = cell if isinstance(cell, list) else [cell]
    return Number(float(mean), float(spread[0]) if spread else None, runs)


def recipes_of(folder: str) -> list[Recipe]:
    """The recipes that a paper declares; what they run is imported when it is asked for."""
    paper = load_paper(folder)
    found = []
    for name, one in paper.get("recipes", {}).items():
        settings = {
            "paper": paper["name"],
            **one,
            "needs": tuple(one.get("needs", ())),
            "plan": functools.partial(_call, one["plan"]),
            "write": functools.partial(_call, one["write"]),
        }
        found.append(Recipe(name, **settings))
    return found


def _call(path: str, *given: Any) -> Any:
    """Call the function with the path 'package.module:name'; its module may bring torch."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)(*given)
