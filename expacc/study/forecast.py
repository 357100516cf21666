"""Roughly how long a study will take on idle cores: the order of magnitude, no more."""

import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path

from expacc.study.compare import Study, identity
from expacc.study.items import WorkItem
from expacc.study.pace import pace
from expacc.study.selection import INNER_FOLDS, SMALL
from expacc.study.store import FILE, Store
from expacc.study.work import MODELS

__all__ = ["expected_seconds", "items_done"]

# Fitted by hand to CPU seconds of single items on one core, on tables of 150 to 1,800 rows, 4 to 61
# features, 2 to 10 classes.
START = 5.0  # seconds until workers are up
PER_STEP = 4.5e-4  # seconds per loss and step: it costs something however few runs share it
PER_ROW = 1.2e-8  # seconds per run and row of a batch
PER_PRODUCT = {"linear": 1.3e-9, "mlp": 5e-10}  # per run, row and weight; large products go faster


def expected_seconds(study: Study, items: Sequence[WorkItem], *, workers: int) -> float:
    """Seconds for these items of a study, with so many processes at a time."""
    if not items:
        return 0.0
    spent = [_seconds(study, item) for item in items]
    # The last item may run alone.
    return START + max(max(spent), sum(spent) / max(1, workers))


def _seconds(study: Study, item: WorkItem) -> float:
    ask = item.payload
    name, model = ask["table"], ask["model"]
    facts = json.loads(bytes(study.shared[f"{name}/facts"]))
    rows = len(study.shared[f"{name}/split/{ask['fold']}/train"])
    features = sum(max(1, len(levels)) for _, _, levels in facts["columns"])
    widths = (features, *MODELS[model].hidden, len(facts["classes"]))
    weights = sum(a * b for a, b in itertools.pairwise(widths))
    inner = INNER_FOLDS if rows < SMALL else 1
    runs = ask["trials"] * inner + ask["seeds"]
    total = 0.0
    for loss in ask["losses"]:
        batch, epochs = pace(rows, loss)
        steps = 2 * epochs * math.ceil(rows / batch)  # of the search and of the final runs
        seen = runs * epochs * rows
        total += PER_STEP * steps + seen * (PER_ROW + PER_PRODUCT[model] * weights)
    return total


def items_done(study: Study, folder: str | Path) -> set[str]:
    """The items that a folder has already; none if it holds another study or nothing."""
    if not (Path(folder) / FILE).is_file():
        return set()
    with Store.read(folder) as store:
        same = store.study() == json.loads(json.dumps(identity(study)))
        return store.done_items() & {item.key for item in study.items} if same else set()
