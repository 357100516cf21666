"""leaky-cifar: ResNet-18 on ten folds of CIFAR-10, with two losses."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from expacc.recipes.leaky import LEAKY, LEVEL, LOSSES, REFERENCE
from expacc.recipes.page import Claim, Comparison, Page
from expacc.recipes.paper import Layout, numbers
from expacc.recipes.recipe import RecipeOptions, Work
from expacc.recipes.sweep import grid
from expacc.recipes.vision.page import Cells, cost_section, gaps_grid, layout_of
from expacc.recipes.vision.plan import Cell, protocol_of, work_of
from expacc.recipes.vision.sets import read_sets
from expacc.report.words import listed, p_value_text, signed
from expacc.runner.rows import Row
from expacc.stats import corrected_paired_t

SET, BATCH = "cifar-10", 128
NAMES = {loss: LOSSES[loss] for loss in (REFERENCE, LEAKY)}
TABLE_5 = numbers("leaky", "table_5")[SET]
RATES = (3e-4, 1e-3)

PROTOCOLS: dict[str, dict[str, Any]] = {
    "full": {"epochs": 200, "folds": 10, "rates": RATES, "network": "resnet18", "rows": None},
    "short": {"epochs": 20, "folds": 5, "rates": RATES[1:], "network": "resnet18", "rows": None},
    "small": {"epochs": 10, "folds": 5, "rates": RATES[1:], "network": "resnet20", "rows": 5000},
    "quick": {"epochs": 2, "folds": 2, "rates": RATES[1:], "network": "resnet20", "rows": 1500},
}
QUICK_TESTS = 1000


def plan(options: RecipeOptions) -> Work:
    """An item per fold and loss; seeds asked for are so many folds, as elsewhere in the paper."""
    protocol = protocol_of(options)
    how = PROTOCOLS[protocol]
    sets, missing = read_sets(options.data, [SET])
    folds = min(options.seeds or how["folds"], 10)
    cell = Cell(
        SET,
        {},
        how["network"],
        how["epochs"],
        losses={loss: {"name": loss} for loss in NAMES},
        settings={loss: grid(learning_rate=how["rates"]) for loss in NAMES},
        seeds=1,
        folds=[str(number) for number in range(1, folds + 1)],
        rows=how["rows"],
        test_rows=QUICK_TESTS if options.quick else None,
        how={
            "optimizer": "adam",
            "changes": ["crop", "flip"],
            "batch": BATCH,
            "weight_decay": 0.0,
            "rate_falls": [],
            "start": "xavier",
        },
    )
    facts = {
        "batch": BATCH,
        "epochs": how["epochs"],
        "folds": folds,
        "rate": listed([f"{rate:g}" for rate in how["rates"]]),
        "rows_text": f"{how['rows'] or 0:,}",
    }
    return work_of([cell], sets, options, missing=missing, protocol=protocol, facts=facts)


# ----------------------------------------------------------------------------------------- the page


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    cells, key = Cells(rows, [], facts), (SET,)
    layout = layout_of("leaky", "leaky-cifar", facts)
    beside = [
        Comparison((SET, name), TABLE_5[loss], cells.number(key, loss), cells.note(key, loss))
        for loss, name in NAMES.items()
    ]
    grids = [gaps_grid(layout, cells, [(LEAKY, REFERENCE)], NAMES)]
    if (gaps := cells.differences(key, LEAKY, REFERENCE)) and len(gaps) > 1:
        gap = cells.gap(key, LEAKY, REFERENCE)
        rows_of_all = float(facts["cells"][0]["rows"])
        corrected = corrected_paired_t(
            [one / 100 for one in gaps], 0.9 * rows_of_all, 0.1 * rows_of_all
        )
        line = (f"{len(gaps)}", signed(gap.mean), p_value_text(gap.p_value)) if gap else ()
        grids.append(layout.grid("tests", [(*line, p_value_text(float(corrected.p_value)))]))
    return layout.page(
        (
            layout.section("table-5", beside=beside, grids=grids),
            cost_section(layout, cells, NAMES),
        ),
        _claims(layout, cells),
    )


def _claims(layout: Layout, cells: Cells) -> Iterator[Claim]:
    gap = cells.gap((SET,), LEAKY, REFERENCE)
    margin = signed(TABLE_5[LEAKY].mean - TABLE_5[REFERENCE].mean)
    yield layout.claim("more", str(gap or ""), None if gap is None else gap.mean > 0, margin=margin)
    told = gap is not None and gap.pairs > 1
    yield layout.claim(
        "apart",
        p_value_text(gap.p_value) if gap and told else "",
        gap.p_value >= LEVEL if gap and told else None,
    )
