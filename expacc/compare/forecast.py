"""Roughly how long a study will take on idle cores: the order of magnitude, no more."""

import json
from collections.abc import Sequence
from pathlib import Path

from expacc.compare.runtime_model import fold_seconds
from expacc.compare.study import Study, identity
from expacc.runner.items import WorkItem
from expacc.runner.store import FILE, Store

__all__ = ["expected_seconds", "items_done"]

START = 5.0  # seconds until workers are up


def expected_seconds(study: Study, items: Sequence[WorkItem], *, workers: int) -> float:
    """Seconds for these items of a study, with so many processes at a time."""
    if not items:
        return 0.0
    shapes = {name: _shape(study, name) for name in {item.payload["table"] for item in items}}
    spent = [_seconds(study, item, shapes[item.payload["table"]]) for item in items]
    # The last item may run alone.
    return START + max(max(spent), sum(spent) / max(1, workers))


def _shape(study: Study, name: str) -> tuple[int, int]:
    """Features, one for each level of a category, and classes."""
    facts = json.loads(bytes(study.shared[f"{name}/facts"]))
    features = sum(max(1, len(levels)) for _, _, levels in facts["columns"])
    return features, len(facts["classes"])


def _seconds(study: Study, item: WorkItem, shape: tuple[int, int]) -> float:
    ask = item.payload
    name = ask["table"]
    return fold_seconds(
        len(study.shared[f"{name}/split/{ask['fold']}/train"]),
        *shape,
        losses=ask["losses"],
        model=ask["model"],
        trials=ask["trials"],
        seeds=ask["seeds"],
    )


def items_done(study: Study, folder: str | Path) -> set[str]:
    """The items that a folder has already; none if it holds another study or nothing."""
    if not (Path(folder) / FILE).is_file():
        return set()
    with Store.read(folder) as store:
        same = store.study() == json.loads(json.dumps(identity(study)))
        return store.done_items() & {item.key for item in study.items} if same else set()
