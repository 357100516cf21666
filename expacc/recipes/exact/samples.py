"""exact-samples: accuracy against the sample size of the authors' estimate, and the integral."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from expacc.recipes.exact import vision
from expacc.recipes.page import Claim, Page
from expacc.recipes.paper import Layout
from expacc.recipes.recipe import RecipeOptions, Work
from expacc.recipes.vision.page import Cells, cost_section, gaps_grid, layout_of
from expacc.recipes.vision.plan import protocol_of, work_of
from expacc.recipes.vision.sets import read_sets
from expacc.report.panels import Line, Panel
from expacc.report.words import signed
from expacc.runner.rows import Row

SAMPLES = (1, 2, 4, 8, 16, 32, 64)
OURS = "exact"
LEVEL, NEAR = 0.05, 0.1  # of the test, and points that are called on par without one
_SGD = "sgd"


def name_of(samples: int) -> str:
    """As rows call it."""
    return f"exact: {samples} samples"


NAMES = {OURS: "EXACT, integral", **{name_of(n): f"EXACT, samples {n}" for n in SAMPLES}}
QUICK = (1, 64)


def plan(options: RecipeOptions) -> Work:
    """A cell a set, with SGD, as in exact-vision."""
    protocol = protocol_of(options)
    how = vision.PROTOCOLS[protocol]
    sets, missing = read_sets(options.data, how.get("only", list(vision.CHANGES)))
    chosen = QUICK if protocol in ("quick", "small") else SAMPLES
    cells = []
    for table in sets:
        whole = vision.cell(table, _SGD, protocol, options.seeds)
        losses: dict[str, Any] = {OURS: whole.losses[OURS]}
        losses |= {name_of(n): {**whole.losses[OURS], "samples": n} for n in chosen}
        settings = dict.fromkeys(losses, whole.settings[OURS])
        cells.append(replace(whole, labels={}, losses=losses, settings=settings))
    facts = {"batch": vision.BATCH, "rows_text": f"{how['rows'] or 0:,}"}
    return work_of(cells, sets, options, missing=missing, protocol=protocol, facts=facts)


# ----------------------------------------------------------------------------------------- the page


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    cells = Cells(rows, [], facts)
    layout = layout_of("exact", "exact-samples", facts)
    pairs = [(OURS, name_of(n)) for n in SAMPLES] + [(name_of(1), name_of(64))]
    lines = [
        (key[0], name, str(number), cells.note(key, method), f"{number.count}")
        for key in cells.keys
        for method, name in NAMES.items()
        if (number := cells.number(key, method)) is not None
    ]
    panels = [panel for key in cells.keys if (panel := _panel(cells, key[0])).lines]
    return layout.page(
        (
            layout.section(
                "figure-6",
                grids=[layout.grid("accuracy", lines), gaps_grid(layout, cells, pairs, NAMES)],
                charts=layout.panels("exact-figure-6", panels),
            ),
            cost_section(layout, cells, NAMES),
        ),
        _claims(layout, cells),
    )


def _panel(cells: Cells, table: str) -> Panel:
    """Mean accuracy by sample size, with standard deviations, and the integral's as a level."""
    lines = []
    own = {n: list(cells.values((table,), name_of(n)).values()) for n in SAMPLES}
    own = {n: values for n, values in own.items() if values}
    if own:
        means = [float(np.mean(values)) for values in own.values()]
        spread = [float(np.std(values)) for values in own.values()]
        low, high = ([m + sign * s for m, s in zip(means, spread, strict=True)] for sign in (-1, 1))
        lines.append(Line([*own], means, "samples", "#2f6fb3", "o", band=(low, high)))
    exact = cells.number((table,), OURS)
    level = None if exact is None else (exact.mean, "integral")
    ticks = {float(n): f"{n}" for n in SAMPLES}
    axes = ("samples", "test accuracy (%)")
    return Panel(table, lines, *axes, log="x", x_ticks=ticks, level=level)


def _claims(layout: Layout, cells: Cells) -> Iterator[Claim]:
    for cell in cells.facts["cells"]:
        key = tuple(cell["key"])
        for what, first, second in (
            ("one", name_of(1), name_of(64)),
            ("ours", OURS, name_of(16)),
        ):
            gap = cells.gap(key, first, second)
            holds = None
            if gap is not None and gap.pairs > 1:
                holds = gap.p_value >= LEVEL or abs(gap.mean) <= NEAR
            ours = "" if gap is None else str(gap) if gap.pairs > 1 else signed(gap.mean)
            yield layout.claim(what, ours, holds, where=key[0])
