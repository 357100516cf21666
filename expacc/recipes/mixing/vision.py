"""mixing-vision (Table 1), mixing-cot (Table 5), mixing-regularisation (Table 6): networks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from expacc.data.images import ImageSet
from expacc.recipes.mixing.uci import CE, CONSTANT, CONTROL, GRADUAL, SWITCH
from expacc.recipes.page import Claim, Comparison, Number, Page
from expacc.recipes.paper import Layout, numbers
from expacc.recipes.recipe import RecipeOptions, Work
from expacc.recipes.vision.page import Cells, cost_section, gaps_grid, layout_of
from expacc.recipes.vision.plan import Cell, protocol_of, work_of
from expacc.recipes.vision.sets import read_sets
from expacc.report.words import NONE, listed, signed
from expacc.runner.rows import Row

COT = "COT"
_MIXED = "mixed_expected_error"
LOSSES: dict[str, dict[str, Any]] = {
    CE: {"name": "cross_entropy"},
    CONSTANT: {"name": _MIXED, "focus": "0"},
    SWITCH: {"name": _MIXED, "focus": "0,0.5"},
    GRADUAL: {"name": _MIXED, "focus": "0-0.5"},
    CONTROL: {"name": "cross_entropy", "as_large": True},
    COT: {"name": "cross_entropy", "complement": True},
}
MIXES = [CE, CONSTANT, SWITCH, GRADUAL, CONTROL]
TABLE_1 = {table: numbers("mixing", f"table_1_{table}") for table in ("cifar-100", "cinic-10")}
TABLE_5 = {"cifar-100": numbers("mixing", "table_5")}
TABLE_6 = {"cinic-10": numbers("mixing", "table_6")}
STAND_IN = "cifar-10"  # with the schedule of CIFAR-100
SEEDS = {"cinic-10": 3}  # the others: four
BATCH, RATE, DECAY = 128, 0.1, 1e-4
QUICK_TESTS = 1000

# Set → epochs, where the rate falls to a tenth, changes.
_CIFAR = (240, (1 / 2, 2 / 3, 5 / 6), ["crop", "flip"])
SCHEDULES: dict[str, tuple[int, tuple[float, ...], list[str]]] = {
    "cifar-100": _CIFAR,
    "cinic-10": (90, (1 / 3, 2 / 3), ["crop", "flip"]),
    STAND_IN: _CIFAR,
}
_OF_COT = (200, (1 / 2, 3 / 4), ["crop", "flip"])
TURNED = {"resnet18", "resnet34", "preact_resnet18", "resnext29-2x64d", "shufflenet_v2"}

# What is cut from the paper's protocol; 'share' of its epochs, if no number of them is given.
PROTOCOLS: dict[str, dict[str, Any]] = {
    "full": {"networks": list(TABLE_1["cifar-100"]), "share": 1.0, "rows": None, "seeds": None},
    "short": {"networks": ["resnet20", "resnet32"], "share": 1 / 4, "rows": None, "seeds": 2},
    "small": {"networks": ["resnet20"], "epochs": 10, "rows": 5000, "seeds": 2},
    "quick": {"networks": ["resnet20"], "epochs": 2, "rows": 1000, "seeds": 1},
}
# Regularisation → changes beside crops and flips, share of the features dropped.
REGULARISED: dict[str, tuple[list[str], float]] = {
    "baseline": (["turn"], 0.0),
    "random erasing": (["turn", "erase"], 0.0),
    "random erasing, no rotation": (["erase"], 0.0),
    "colour jitter": (["turn", "jitter"], 0.0),
    "dropout": (["turn"], 0.2),
}


def _cell(
    table: str,
    labels: Mapping[str, str],
    network: str,
    options: RecipeOptions,
    methods: Sequence[str],
    schedule: tuple[int, tuple[float, ...], list[str]] | None = None,
) -> Cell:
    how = PROTOCOLS[protocol_of(options)]
    epochs, falls, changes = schedule or SCHEDULES[table]
    turned = table == "cinic-10" and network in TURNED
    return Cell(
        table,
        labels,
        network,
        how.get("epochs") or round(how["share"] * epochs),
        losses=LOSSES,
        settings={method: [{"learning_rate": RATE}] for method in methods},
        seeds=options.seeds or how["seeds"] or SEEDS.get(table, 4),
        rows=how["rows"],
        test_rows=QUICK_TESTS if options.quick else None,
        how={
            "optimizer": "sgd",
            "changes": [*changes, *(["turn"] if turned else [])],
            "batch": BATCH,
            "weight_decay": DECAY,
            "rate_falls": falls,
        },
    )


def _work(
    cells: Sequence[Cell],
    sets: Mapping[str, ImageSet],
    missing: Sequence[str],
    options: RecipeOptions,
) -> Work:
    protocol = protocol_of(options)
    how = PROTOCOLS[protocol]
    told: dict[str, Any] = {
        "batch": BATCH,
        "networks": listed(how["networks"]),
        "rows_text": f"{how['rows'] or 0:,}",
    }
    return work_of(
        cells, sets, options, missing=missing, protocol=protocol, facts={**told, "batch": BATCH}
    )


def plan(options: RecipeOptions) -> Work:
    """A cell per set and network."""
    sets, missing = read_sets(options.data, [STAND_IN, *TABLE_1])
    cells = [
        _cell(table, {"network": network}, network, options, MIXES)
        for table in sets
        for network in PROTOCOLS[protocol_of(options)]["networks"]
    ]
    return _work(cells, sets, missing, options)


def plan_cot(options: RecipeOptions) -> Work:
    """A cell per set and network, trained as in the comparison with COT."""
    sets, missing = read_sets(options.data, [STAND_IN, *TABLE_5])
    full = protocol_of(options) == "full"
    cells = [
        _cell(table, {"network": network}, network, options, [CE, GRADUAL, COT], _OF_COT)
        for table in sets
        for network in (TABLE_5["cifar-100"] if full else ["resnet20"])
    ]
    return _work(cells, sets, missing, options)


def plan_regularisation(options: RecipeOptions) -> Work:
    """A cell per regularisation, of the first set that is there."""
    sets, missing = read_sets(options.data, [STAND_IN, *TABLE_6])
    table = "cinic-10" if "cinic-10" in sets else STAND_IN
    network = "resnet34" if protocol_of(options) == "full" else "resnet20"
    cells = []
    for name, (changes, dropout) in REGULARISED.items():
        cell = _cell(table, {"regularisation": name}, network, options, [CE, GRADUAL])
        cell.how["changes"][2:] = changes
        cells.append(replace(cell, how={**cell.how, **({"dropout": dropout} if dropout else {})}))
    return _work(cells, sets, missing, options)


# ---------------------------------------------------------------------------------------- the pages

Printed = Mapping[str, Mapping[str, Mapping[str, Number]]]  # set → cell → method


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page of Table 1 from the rows that there are."""
    pairs = [(one, CE) for one in (CONSTANT, SWITCH, GRADUAL)] + [(CONTROL, GRADUAL)]
    return page_of("mixing-vision", "network", rows, facts, TABLE_1, MIXES, pairs)


def write_cot(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page of Table 5 from the rows that there are."""
    pairs = [(GRADUAL, CE), (COT, CE), (COT, GRADUAL)]
    return page_of("mixing-cot", "network", rows, facts, TABLE_5, [CE, GRADUAL, COT], pairs)


def write_regularisation(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page of Table 6 from the rows that there are."""
    name, pairs = "mixing-regularisation", [(GRADUAL, CE)]
    return page_of(name, "regularisation", rows, facts, TABLE_6, [CE, GRADUAL], pairs)


def page_of(
    name: str,
    label: str,
    rows: Sequence[Row],
    facts: Mapping[str, Any],
    printed: Printed,
    methods: Sequence[str],
    pairs: Sequence[tuple[str, str]],
) -> Page:
    """A page of networks: numbers beside print, differences on the same seeds, what it took.

    Args:
        name: of the recipe.
        label: of the rows, which tells cells of a set apart.
        rows: of the store.
        facts: of the work.
        printed: the paper's numbers.
        methods: in the order of the paper.
        pairs: what is compared, first less second.
    """
    cells, layout = Cells(rows, [label], facts), layout_of("mixing", name, facts)
    called = {method: method for method in methods}
    planned = [(table, one) for table, one in (cell["key"] for cell in facts["cells"])]
    beside = [
        Comparison(
            (*key, method),
            printed.get(key[0], {}).get(key[1], {}).get(method),
            cells.number(key, method),
            cells.note(key, method),
        )
        for key in planned
        for method in methods
    ]
    return layout.page(
        (
            layout.section(
                "numbers", beside=beside, grids=[gaps_grid(layout, cells, pairs, called)]
            ),
            cost_section(layout, cells, called),
        ),
        _claims(layout, cells, planned, printed, methods),
    )


def _claims(
    layout: Layout,
    cells: Cells,
    planned: Sequence[tuple[str, str]],
    printed: Printed,
    methods: Sequence[str],
) -> Iterator[Claim]:
    for key in planned:
        where, own = {"where": ", ".join(key)}, printed.get(key[0], {}).get(key[1])
        for what, first, second in (
            ("gradual", GRADUAL, CE),
            ("control", GRADUAL, CONTROL),
            ("cot", COT, GRADUAL),
        ):
            if {first, second} <= {*methods}:
                known = own is not None and {first, second} <= own.keys()
                theirs = signed(own[first].mean - own[second].mean) if own and known else NONE
                gap = cells.gap(key, first, second)
                holds = None if gap is None else gap.mean > 0
                yield layout.claim(what, str(gap or ""), holds, theirs=theirs, **where)
