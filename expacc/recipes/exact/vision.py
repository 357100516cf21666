"""exact-vision: networks on MNIST, SVHN and CIFAR with three losses and three optimisers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from expacc.recipes.exact import METHODS, SEEDS
from expacc.recipes.page import Claim, Comparison, Page
from expacc.recipes.paper import Layout, load_paper, numbers
from expacc.recipes.recipe import RecipeOptions, Work
from expacc.recipes.vision.page import Cells, Gap, cost_section, gaps_grid, layout_of
from expacc.recipes.vision.plan import Cell, protocol_of, work_of
from expacc.recipes.vision.sets import read_sets
from expacc.report.words import listed, signed
from expacc.runner.rows import Row

LOSSES = ("cross_entropy", "hinge", "exact")
NAMES = {loss: METHODS[loss] for loss in LOSSES}
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
    cells = Cells(rows, ["optimizer"], facts)
    layout = layout_of("exact", "exact-vision", facts)
    beside = [
        Comparison(
            (table, OPTIMIZERS[optimizer], NAMES[loss]),
            TABLE_3[optimizer][loss][table],
            cells.number((table, optimizer), loss),
            cells.note((table, optimizer), loss),
        )
        for table in CHANGES
        for optimizer in OPTIMIZERS
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
    for table in CHANGES:
        for optimizer, name in OPTIMIZERS.items():
            where = {"where": f"{table}, {name}"}
            printed = {loss: TABLE_3[optimizer][loss][table].mean for loss in LOSSES}
            theirs = printed["exact"] - printed["cross_entropy"]
            gap: Gap | None = cells.gap((table, optimizer), "exact", "cross_entropy")
            same = None if gap is None else (gap.mean > 0) == (theirs > 0)
            yield layout.claim("gain", str(gap or ""), same, theirs=signed(theirs), **where)
            own = {
                loss: found.mean
                for loss in LOSSES
                if (found := cells.number((table, optimizer), loss))
            }
            best, ours = _best(printed), _best(own) if len(own) == len(LOSSES) else ""
            holds = (NAMES["exact"] in ours) == (NAMES["exact"] in best) if ours else None
            yield layout.claim("best", ours, holds, theirs=best, **where)


def _best(means: Mapping[str, float]) -> str:
    """The most accurate losses, in print's two digits."""
    top = max(round(mean, 2) for mean in means.values())
    return listed([NAMES[loss] for loss, mean in means.items() if round(mean, 2) == top])
