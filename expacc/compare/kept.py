"""What an item has done so far, as parts that its study keeps: whoever is killed goes on there.

A part is given to the study when some seconds of work are done, and holds what was finished since
the last one, by name: numbers and texts as JSON, arrays as their bytes. The same bits come back.
"""

import base64
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from expacc.compare.training_budget import run_seconds
from expacc.files import parse_json
from expacc.registry import spec_of
from expacc.report.words import DEFAULT_LOSSES
from expacc.runner.items import keep
from expacc.runner.rows import Row, to_columns, to_row
from expacc.training import Layer, Run, RunResult, TensorTable, TrainConfig, Trained
from expacc.training.loop import chunks_of

EVERY = 3.0  # seconds of work between two parts
LONGEST = 6.0  # seconds of runs of networks that train together, as estimated; half is usual
ON_GPU = 10.0  # times as many train together
# Times as long as estimated: losses beside the usual ones, those without a slope in closed form.
SLOW, SLOWEST = 5.0, 40.0
QUICK = {*DEFAULT_LOSSES, "expected_error", "generalized_cross_entropy"}
_KINDS = {"float32", "float64", "uint8"}


class Entry(NamedTuple):
    """Something finished, in the form in which it is kept."""

    facts: Any
    arrays: Sequence[NDArray[Any]] = ()


class Kept:
    """What was finished before, and since.

    Args:
        parts: of the item, as it came.
    """

    def __init__(self, parts: Sequence[bytes]) -> None:
        self._known: dict[str, Entry] = {}
        for part in parts:
            self._known |= unpacked(part)
        self._fresh: dict[str, Callable[[], Entry]] = {}
        self._since = time.monotonic()

    def get(self, names: Sequence[str]) -> list[Entry]:
        """What is known by these names, if all are; once, so that it takes no memory for longer."""
        if not all(name in self._known for name in names):
            return []
        return [self._known.pop(name) for name in names]

    def put(self, entries: Mapping[str, Callable[[], Entry]]) -> None:
        """Something is finished; its form is asked for only if it is kept."""
        self._fresh |= entries
        if time.monotonic() - self._since >= EVERY:
            keep(packed({name: make() for name, make in self._fresh.items()}))
            self._fresh, self._since = {}, time.monotonic()


def parted(
    rows: TensorTable, runs: Mapping[Any, Run], config: TrainConfig, asked: Mapping[str, Any]
) -> list[list[Any]]:
    """The tags of runs of networks, in groups that train together in some seconds each.

    They are the chunks of ``train_runs``, cut where they are long by the estimate, never by the
    clock: a matrix product may round a run's numbers otherwise in other company, and whoever goes
    on with a study must have the company of before.

    Args:
        rows: that they train on.
        runs: by tag, in order.
        config: what they have in common.
        asked: of the study: 'model', 'hidden' and 'device'.
    """
    shape = rows.features.shape[1], rows.classes, asked["model"], asked.get("hidden")
    device = asked.get("device", "cpu")
    most = LONGEST * (1.0 if device == "cpu" else ON_GPU)
    tags = list(runs)
    groups: list[list[Any]] = []
    for chunk in chunks_of(rows, list(runs.values()), config, device):
        left, seen = 0.0, set[str]()
        for number, place in enumerate(chunk):
            run = runs[tags[place]]
            loss = str(run.loss)
            together, each = run_seconds(loss, len(run.rows), *shape)
            slow = 1.0 if loss in QUICK else SLOW if spec_of(loss).slope else SLOWEST
            cost = slow * (each + (loss not in seen) * together)
            if number and cost <= left:
                groups[-1].append(tags[place])
            else:
                groups.append([tags[place]])
                cost, left, seen = slow * (each + together), most, set()
            left -= cost
            seen.add(loss)
    return groups


def packed(entries: Mapping[str, Entry]) -> bytes:
    """One text of all facts, its length before it, then the arrays.

    >>> found = unpacked(packed({"a": Entry([0.1], [np.array([1.0, np.nan])])}))["a"]
    >>> found.facts, found.arrays[0].tolist()
    ([0.1], [1.0, nan])
    """
    facts = json.dumps(
        {
            name: [one.facts, [[array.dtype.name, array.shape] for array in one.arrays]]
            for name, one in entries.items()
        }
    ).encode()
    arrays = [array.tobytes() for one in entries.values() for array in one.arrays]
    return b"".join([len(facts).to_bytes(8, "little"), facts, *arrays])


def unpacked(part: bytes) -> dict[str, Entry]:
    """The entries of a part; none of one that ``packed`` did not make."""
    found = {}
    try:
        place = 8 + int.from_bytes(part[:8], "little")
        for name, (facts, shapes) in parse_json(part[8:place]).items():
            arrays = []
            for kind, shape in shapes:
                if kind not in _KINDS:
                    return {}
                array = np.frombuffer(part, kind, int(np.prod(shape, dtype=int)), place)
                arrays.append(array.reshape(shape))
                place += array.nbytes
            found[name] = Entry(facts, arrays)
    except (ValueError, TypeError, AttributeError, OverflowError):
        return {}
    return found if place == len(part) else {}


def entry_of_run(result: RunResult, seconds: float) -> Entry:
    """A run of a network: its curves, the weights that were kept, and its time."""
    models = [result.model, result.at_stop]
    layers = [layer for one in models if one is not None for layer in one.layers]
    facts = {
        "key": result.key,
        "epochs": result.epochs,
        "best_epoch": result.best_epoch,
        "stopped": result.stopped,
        "failed_step": result.failed_step,
        "curves": {name: list(curve) for name, curve in result.curves.items()},
        "layers": [0 if one is None else len(one.layers) for one in models],
        "seconds": seconds,
    }
    return Entry(
        facts, [part.cpu().numpy() for layer in layers for part in (layer.weight, layer.bias)]
    )


def run_of(entry: Entry) -> tuple[RunResult, float]:
    """The run of an entry, and its seconds."""
    facts = dict(entry.facts)
    tensors = [torch.from_numpy(array.copy()) for array in entry.arrays]
    layers = [Layer(*pair) for pair in zip(tensors[::2], tensors[1::2], strict=True)]
    first, second = facts.pop("layers")
    seconds = facts.pop("seconds")
    facts["curves"] = {name: tuple(curve) for name, curve in facts["curves"].items()}
    model = Trained(tuple(layers[:first])) if first else None
    at_stop = Trained(tuple(layers[first:])) if second else None
    return RunResult(model=model, at_stop=at_stop, **facts), seconds


def entry_of_row(row: Row, arrays: Sequence[NDArray[Any]] = ()) -> Entry:
    """A row, and arrays that go with it."""
    columns = [
        {"bytes": base64.b85encode(value).decode()} if isinstance(value, bytes) else value
        for value in to_columns(row)
    ]
    return Entry(columns, arrays)


def row_of_entry(entry: Entry) -> Row:
    """The row of an entry."""
    values = [
        base64.b85decode(value["bytes"]) if isinstance(value, dict) else value
        for value in entry.facts
    ]
    # As they are stored, seconds and failure come last; ``to_row`` takes them in the middle.
    *plain, numbers, metrics, curves, predictions, digest, seconds, failure = values
    return to_row((*plain, seconds, failure, numbers, metrics, curves, predictions, digest))
