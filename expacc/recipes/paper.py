"""The papers: each folder's ``paper.toml`` has what was printed, and the words of its pages.

A table is declared with its columns, and means with their standard deviations::

    [table_3]
    runs = 10
    columns = ["cross_entropy", "expected_error"]
    [table_3.rows]
    magic = [[20.84, 0.26], [20.54, 0.27]]

``numbers("leaky", "table_3")["magic"]["cross_entropy"]`` is then ``Number(20.84, 0.26, 10)``. A
cell may be a plain number, which has no spread.

A page is declared under ``[pages.NAME]``: title, claim, deviations; ``claims.KEY`` with ``says``,
``paper`` and ``headline``; and ``parts.KEY`` for every section, table and chart, with ``head`` for
the columns of a table and ``size`` for a chart's panels. In a text the end of a line is a blank, an
empty line begins another paragraph, and names in braces stand for facts of the work, or for what
the code gives along. ``Layout`` puts rows into it.
"""

import functools
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from expacc.recipes.page import Claim, Comparison, Grid, Number, Page, Section

if TYPE_CHECKING:  # they bring matplotlib, which the list of recipes does not need
    from expacc.report.figures import Chart, Drawing
    from expacc.report.panels import Panel

FILE = "paper.toml"
Rows = Iterable[Sequence[str]]


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


class Layout:
    """The declared page of a recipe, to be filled with rows.

    Args:
        folder: of the paper.
        name: of the recipe.
        facts: of the work, and whatever else its texts name in braces.
    """

    def __init__(self, folder: str, name: str, facts: Mapping[str, Any]) -> None:
        self.name, self._paper, self._facts = name, load_paper(folder), facts
        self._page = self._paper["pages"][name]

    def part(self, key: str, **words: Any) -> dict[str, Any]:
        """The words of a section, table or chart."""
        part = dict(self._page["parts"][key])
        heads = part["head"].split(" | ") if "head" in part else ()
        part["head"] = tuple(self._say(one, words) for one in heads)
        part["text"] = self._paragraphs(part.get("text", ""), words)
        texts = ("title", "note", "caption", "finding")
        return {**part, **{name: self._say(part.get(name, ""), words) for name in texts}}

    def _paragraphs(self, text: str, words: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(self._say(one, words) for one in text.split("\n\n") if one)

    def _say(self, text: str, words: Mapping[str, Any]) -> str:
        return " ".join(text.split()).format(**{**self._facts, **words})

    def grid(
        self,
        key: str,
        rows: Rows,
        *,
        columns: Iterable[str] = (),
        marked: Iterable[tuple[int, int]] = (),
        **words: Any,
    ) -> Grid:
        """A table.

        Args:
            key: of the part.
            rows: cells; of none the table is left out of its section.
            columns: in place of the '*' in its head.
            marked: cells to set in bold.
            words: for its texts.
        """
        part = self.part(key, **words)
        heads = [list(columns) if one == "*" else [one] for one in part["head"]]
        head = tuple(one for some in heads for one in some)
        cells = tuple(tuple(row) for row in rows)
        return Grid(part["title"], head, cells, part["note"], tuple(marked))

    def chart(
        self, key: str, finding: str, draw: "Drawing", *, part: str = "", **words: Any
    ) -> "Chart":
        """A chart with its anchor, whose words are those of ``part``, or else of ``key``."""
        from expacc.report.figures import chart

        text = self.part(part or key, **words)
        found = finding or text["finding"]
        return chart(key, text["title"], text["caption"], found, draw)

    def panels(
        self,
        key: str,
        shown: Sequence["Panel"],
        finding: str = "",
        *,
        part: str = "",
        draw: Callable[..., Any] | None = None,
        **words: Any,
    ) -> tuple["Chart", ...]:
        """A chart of panels, as large as declared; none of no panel.

        Args:
            key: of the chart.
            shown: the panels.
            finding: in words; '' for what is declared, or else where every line begins and ends.
            part: whose words it has, if not those of ``key``.
            draw: another kind of chart, of the same arguments.
            words: for its texts.
        """
        from expacc.report import panels

        if not shown:
            return ()
        text = self._page["parts"][part or key]
        size = dict(text.get("size", {}))
        if "across" in size:
            size["across"] = min(size["across"], len(shown))
        drawn = functools.partial(draw or panels.panels, shown=shown, **size)
        told = finding or ("" if "finding" in text else _told(shown))
        return (self.chart(key, told, drawn, part=part, **words),)

    def claim(self, key: str, ours: str, holds: bool | None, **words: Any) -> Claim:
        """A claim, and what was found; ``holds`` is None where it was not run."""
        text = self._page["claims"][key]
        says, paper = (self._say(text[name], words) for name in ("says", "paper"))
        return Claim(says, paper, ours, holds, text.get("headline", False))

    def section(
        self,
        key: str,
        *,
        beside: Iterable[Comparison] = (),
        grids: Iterable[Grid] = (),
        charts: Iterable["Chart"] = (),
        **words: Any,
    ) -> Section:
        """A section; ``head``, ``unit`` and ``slack`` are of what stands beside the paper's."""
        part = self.part(key, **words)
        return Section(
            part["title"],
            part["text"],
            tuple(beside),
            part["head"],
            grids=tuple(grid for grid in grids if grid.rows),
            charts=tuple(charts),
            **{name: part[name] for name in ("unit", "slack") if name in part},
        )

    def page(self, sections: Iterable[Section], claims: Iterable[Claim] = ()) -> Page:
        """The page of the sections that have anything to show."""
        common = self._paper.get("deviations", {})
        told = self._page["deviations"].split("\n\n")
        return Page(
            title=self._page["title"],
            claim=" ".join(self._page["claim"].split()),
            answer="",
            sections=tuple(one for one in sections if one.beside or one.grids or one.charts),
            deviations=self._paragraphs("\n\n".join(common.get(one, one) for one in told), {}),
            claims=tuple(claims),
        )


def _told(shown: Sequence["Panel"]) -> str:
    """Where every named line begins and ends."""
    panels = []
    for panel in shown:
        lines = [line for line in panel.lines if line.label and len(line.y)]
        ends = [
            " to ".join(f"{line.y[at]:.3g}" for at in (0, -1)).replace("-", "−") for line in lines
        ]
        told = [f"{line.label} from {end}" for line, end in zip(lines, ends, strict=True)]
        panels.append(f"{panel.title}: {', '.join(told)}")
    return f"Lines from left to right. {'; '.join(panels)}."
