"""exact-vision: networks on MNIST, SVHN and CIFAR with three losses and three optimisers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from expacc.recipes.exact import METHODS, SEEDS
from expacc.recipes.page import Claim, Comparison, Number, Page
from expacc.recipes.paper import Layout, load_paper, numbers
from expacc.recipes.recipe import RecipeOptions, Work
from expacc.recipes.vision.page import Cells, cost_section, gaps_grid, layout_of
from expacc.recipes.vision.plan import Cell, protocol_of, work_of
from expacc.recipes.vision.sets import read_sets
from expacc.report.words import NONE, signed
from expacc.runner.rows import Row

LOSSES = ("cross_entropy", "hinge", "exact")
NAMES = {loss: METHODS[loss] for loss in LOSSES}
PAIR = ("exact", "cross_entropy")
ERRORS = 2.0  # standard errors that a difference may be off the paper's
OPTIMIZERS = {"sgd": "SGD", "adam": "Adam", "asam": "ASAM"}
TABLE_3 = {optimizer: numbers("exact", f"table_3_{optimizer}") for optimizer in OPTIMIZERS}
TABLE_7: Mapping[str, Any] = load_paper("exact")["table_7"]

BATCH, DECAY, ADAM_RATE, LAST_RATE = 256, 1e-4, 1e-3, 1e-4
SIGMA = (10.0, 1.0)  # per epoch; the last is not reached
CHANGES = {
    "mnist": ["shift and turn"],
    "svhn": ["policy"],
    "cifar-10": ["policy", "flip"],
    "cifar-100": ["policy", "flip"],
}
NETWORKS = {"mnist": "m3cnn", "svhn": "wrn-16-8"}  # the others: WRN-28-10
EPOCHS = {"mnist": 150, "svhn": 150}  # the others: 500

# What is cut from the paper's protocol; a set that has no epochs is left out.
PROTOCOLS: dict[str, dict[str, Any]] = {
    "full": {"epochs": {}, "network": {}, "rows": None, "test_rows": None, "seeds": SEEDS},
    "short": {
        "epochs": {"mnist": 10, "svhn": 12, "cifar-10": 12, "cifar-100": 12},
        "network": dict.fromkeys(["svhn", "cifar-10", "cifar-100"], "wrn-16-4"),
        **{"rows": None, "test_rows": None, "seeds": 3},
    },
    "small": {
        "epochs": {"mnist": 5},
        "network": {},
        **{"rows": 10_000, "test_rows": None, "seeds": 1, "only": ["mnist"]},
    },
    "quick": {
        "epochs": {"mnist": 2},
        "network": {},
        **{"rows": 600, "test_rows": 600, "seeds": 1, "only": ["mnist"]},
    },
}


def setting(loss: str, table: str, optimizer: str) -> dict[str, float]:
    """A line of Table 7, for a row: 'learning_rate', and 'clip', 'margin' or 'normalizer'."""
    line = dict(zip(TABLE_7["columns"], TABLE_7[loss][table], strict=True))
    found = {name: float(value) for name, value in line.items() if value}
    if optimizer == "adam":
        found["learning_rate"] = ADAM_RATE
    return found | ({"normalizer": 1.0} if loss == "exact" else {})


def _loss(loss: str, table: str) -> dict[str, Any]:
    margin = {name: value for name, value in setting(loss, table, "").items() if name == "margin"}
    sigma = {"sigma": list(SIGMA)} if loss == "exact" else {}
    return {"name": loss, **margin, **sigma}


def cell(table: str, optimizer: str, protocol: str, seeds: int | None) -> Cell:
    """A set and an optimiser, in a protocol's length."""
    how = PROTOCOLS[protocol]
    return Cell(
        table,
        {"optimizer": optimizer},
        how["network"].get(table, NETWORKS.get(table, "wrn-28-10")),
        how["epochs"].get(table, EPOCHS.get(table, 500)),
        losses={loss: _loss(loss, table) for loss in LOSSES},
        settings={loss: [setting(loss, table, optimizer)] for loss in LOSSES},
        seeds=seeds or how["seeds"],
        rows=how["rows"],
        test_rows=how["test_rows"],
        how={
            "optimizer": optimizer,
            "changes": CHANGES[table],
            "batch": BATCH,
            "weight_decay": DECAY,
            "rate_end": LAST_RATE,
        },
    )


def plan(options: RecipeOptions) -> Work:
    """A cell per set and optimiser."""
    protocol = protocol_of(options)
    how = PROTOCOLS[protocol]
    sets, missing = read_sets(options.data, how.get("only", list(CHANGES)))
    cells = [
        cell(table, optimizer, protocol, options.seeds)
        for table in sets
        for optimizer in OPTIMIZERS
    ]
    facts = {"batch": BATCH, "rows_text": f"{how['rows'] or 0:,}"}
    return work_of(cells, sets, options, missing=missing, protocol=protocol, facts=facts)


# ----------------------------------------------------------------------------------------- the page


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    cells = Cells(rows, ["optimizer"], facts, OPTIMIZERS)
    layout = layout_of("exact", "exact-vision", facts)
    beside = [
        Comparison(
            (table, OPTIMIZERS[optimizer], NAMES[loss]),
            TABLE_3[optimizer][loss][table],
            cells.number((table, optimizer), loss),
            cells.note((table, optimizer), loss),
        )
        for table, optimizer in (cell["key"] for cell in facts["cells"])
        for loss in LOSSES
    ]
    pairs = [("exact", "cross_entropy"), ("exact", "hinge"), ("hinge", "cross_entropy")]
    return layout.page(
        (
            layout.section(
                "table-3", beside=beside, grids=[gaps_grid(layout, cells, pairs, NAMES)]
            ),
            cost_section(layout, cells, NAMES),
        ),
        _claims(layout, cells),
    )


def _claims(layout: Layout, cells: Cells) -> Iterator[Claim]:
    tally, counted = [0, 0], 0
    for table, optimizer in (cell["key"] for cell in cells.facts["cells"]):
        printed = {loss: TABLE_3[optimizer][loss][table] for loss in LOSSES}
        theirs = printed["exact"].mean - printed["cross_entropy"].mean
        gap = cells.gap((table, optimizer), "exact", "cross_entropy")
        holds = None
        if gap is not None and gap.error is not None:
            variance = sum((printed[loss].spread or 0) ** 2 / SEEDS for loss in PAIR)
            holds = abs(gap.mean - theirs) <= ERRORS * (variance + gap.error**2) ** 0.5
        where = f"{table}, {OPTIMIZERS[optimizer]}"
        yield layout.claim(
            "gain", str(gap or ""), holds, theirs=signed(theirs), where=where, errors=ERRORS
        )
        own = {loss: cells.number((table, optimizer), loss) for loss in LOSSES}
        if all(own.values()):
            counted += 1
            both: list[Mapping[str, Number | None]] = [printed, own]
            for place, found in enumerate(both):
                means = {loss: round(one.mean, 2) for loss, one in found.items() if one}
                tally[place] += means["exact"] == max(means.values())
    holds = tally[1] >= tally[0] if counted else None
    ours = f"{tally[1]} of {counted}" if counted else ""
    yield layout.claim("best", ours, holds, theirs=f"{tally[0]} of {counted or NONE}")
