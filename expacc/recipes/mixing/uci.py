"""mixing-uci: seven losses on every table, with its folds, seeds and learning rates.

An item is a table and an architecture, all folds together. All losses of a fold and seed start from
the same weights and see the same batches, as in the paper. The best epoch and learning rate are
those of the validation rows; the sealed test rows are scored once.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from expacc.data import SealedTest, Table, TrainRows
from expacc.functional.softmax import focus_weights
from expacc.recipes.paper import load_paper
from expacc.recipes.recipe import RecipeOptions, Work, missing_data, need_data, tables_of
from expacc.recipes.sweep import Ask, Data, Place, Sweep, grid, stacked
from expacc.runner.items import Shared, WorkItem
from expacc.schedules import focus_constant, focus_gradual, focus_switch
from expacc.training import Model, Run, TrainConfig

FOLDER = "uci121"
TABLES: tuple[str, ...] = tuple(load_paper("mixing")["tables"]["names"].split())
# The losses as Table 4 calls them, in its order; then the control that its text describes.
ARMS: tuple[str, ...] = tuple(load_paper("mixing")["linear"]["rows"])
CE, CONSTANT, SWITCH, GRADUAL, EL, FOCAL = ARMS
CONTROL = "CE, rate scaled"
EVERY = (*ARMS, CONTROL)
LINEAR, NETWORK = SHAPES = ("linear", "one hidden layer")

RATES = (0.01, 0.005, 0.001)  # of equally good ones the first, as in the authors' sweep
BATCH, EPOCHS, SEEDS = 8, 50, 2
QUICK_TABLES, QUICK_LOOK, QUICK_FOLDS, QUICK_EPOCHS = 6, 20, 2, 20
PARTS = ("train", "validation", "test")
_FAR = 20.0  # standard deviations
_MEMORY = 12 << 20  # bytes of weights to train at once: what the caches of a CPU hold

# All but focal are mixtures (Eq. 12, 14).
_MIXES: dict[str, dict[str, Any]] = {
    CE: {"ce_weight": 1.0, "error_weight": 0.0},
    CONSTANT: {"focus": focus_constant},
    SWITCH: {"focus": focus_switch},
    GRADUAL: {"focus": focus_gradual},
    EL: {"ce_weight": 0.0, "error_weight": 1.0},
    CONTROL: {"ce_weight": 1.0, "error_weight": 0.0},
}


@dataclass(frozen=True)
class Shape:
    """How large a table is: what decides how long its runs take.

    Args:
        rows: of the whole table.
        train: the most training rows of a fold.
        features: columns.
        classes: of the label.
        folds: names of those with rows to train on, to validate on and to test on.
    """

    rows: int
    train: int
    features: int
    classes: int
    folds: tuple[str, ...]

    @classmethod
    def of(cls, table: Table) -> "Shape":
        """Of a table."""
        usable = [
            split for split in table.given if all(getattr(split, part).size > 0 for part in PARTS)
        ]
        return cls(
            rows=table.rows,
            train=max((len(split.train) for split in usable), default=0),
            features=len(table.columns),
            classes=len(table.target.classes),
            folds=tuple(split.name for split in usable),
        )

    def weights(self, shape: str) -> int:
        """How many a run of an architecture has."""
        out = self.classes if shape == LINEAR else self.features + self.classes
        return out * (self.features + 1)

    def effort(self, shape: str) -> int:
        """About what a run costs beside others, to begin with the long ones."""
        return self.train * (500 + self.weights(shape))


def plan(options: RecipeOptions) -> Work:
    """An item per table and architecture, the longest first."""
    folder = need_data(options.data, FOLDER)
    tables, left_out = read_tables(folder, QUICK_LOOK if options.quick else None)
    if options.quick:  # neither the tiny ones nor those that take long
        tables = dict(list(tables.items())[-QUICK_TABLES:])
    absent = [] if options.quick else [name for name in TABLES if name not in tables]
    seeds = list(range(options.seeds or (1 if options.quick else SEEDS)))
    how: dict[str, Any] = {
        "batch": BATCH,
        "epochs": QUICK_EPOCHS if options.quick else EPOCHS,
    }
    items: list[tuple[int, WorkItem]] = []
    shared: dict[str, Any] = {}
    facts = {}
    for name, table in tables.items():
        size = Shape.of(table)
        folds = list(size.folds[: QUICK_FOLDS if options.quick else None])
        shared |= _pack(table)
        facts[name] = asdict(size) | {"folds": folds, "apart": scales_differ(table)}
        for shape in SHAPES:
            for part in _parts(size, shape, folds, len(seeds)):
                item = SWEEP.item(
                    f"{name}|{shape}" + (f"|{part[0]}" if len(part) < len(folds) else ""),
                    options,
                    table=name,
                    folds=part,
                    settings={arm: grid(learning_rate=RATES) for arm in EVERY},
                    seeds=seeds,
                    search="keep",
                    labels={"shape": shape},
                    features=size.features,
                    **how,
                )
                runs = len(part) * len(seeds) * len(EVERY) * len(RATES)  # none is trained again
                items.append((size.effort(shape) * len(part), replace(item, runs=runs)))
    items.sort(key=lambda pair: -pair[0])
    missing = [missing_data(FOLDER, *absent)] if absent else []
    return SWEEP.work(
        [item for _, item in items],
        shared=shared,
        missing=[*missing, *left_out],
        facts={
            **how,
            "tables": facts,
            "absent": absent,
            "seeds": seeds,
            "quick": options.quick,
            "rates": list(RATES),
        },
    )


def _parts(size: Shape, shape: str, folds: list[str], seeds: int) -> list[list[str]]:
    """The folds of each item: all, unless the weights are so many that they would take turns."""
    each = 3 * 4 * len(EVERY) * len(RATES) * size.weights(shape)  # weights, velocities and rates
    return [folds] if max(1, _MEMORY // each) >= len(folds) * seeds else [[fold] for fold in folds]


def read_tables(folder: Path, most: int | None = None) -> tuple[dict[str, Table], list[str]]:
    """The folder's tables by name, and a sentence for each that has no fold to use.

    ``most`` reads so many of the smallest only.

    Raises:
        ValueError: there are none at all.
    """
    found = tables_of(folder, FOLDER)
    if not found:
        raise ValueError(missing_data(FOLDER, *TABLES))
    if most is not None:
        found = sorted(found, key=lambda one: (_bytes(one.path), one.name))[:most]
    tables, left_out = {}, []
    for one in found:
        table = one.read()
        if Shape.of(table).folds:
            tables[one.name] = table
        else:
            left_out.append(
                f"{FOLDER}/{one.name} is left out: none of its folds has rows to train on, to "
                f"validate on and to test on."
            )
    return tables, left_out


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def scales_differ(table: Table) -> bool:
    """Whether test rows are on another scale than training rows: an error of preparation.

    That is, whether a column's means differ by more than any sample would. Columns that are nearly
    constant in the training rows are measured in the unit of standardised ones, 1.
    """
    values = np.stack([np.asarray(column.values, np.float64) for column in table.columns], 1)
    for split in table.given:
        if split.train.size and split.test.size:
            train, test = values[split.train], values[split.test]
            gap = np.abs(train.mean(0) - test.mean(0))
            if bool((gap > _FAR * np.maximum(train.std(0), 1.0)).any()):
                return True
    return False


def _pack(table: Table) -> dict[str, Any]:
    """What ``_open`` needs: arrays under the table's name. Features are taken as they come."""
    packed: dict[str, Any] = {
        f"{table.name}/features": np.stack(
            [np.asarray(column.values, np.float32) for column in table.columns], 1
        ),
        f"{table.name}/labels": np.ascontiguousarray(table.target.codes),
        f"{table.name}/classes": "\n".join(table.target.classes).encode(),
    }
    for split in table.given:
        for part in PARTS:
            rows = np.ascontiguousarray(getattr(split, part))
            packed[f"{table.name}/{split.name}/{part}"] = rows
    return packed


def _open(ask: Ask, shared: Shared, names: Sequence[str]) -> list[Data]:
    table = ask["table"]
    features, labels = (np.asarray(shared[f"{table}/{name}"]) for name in ("features", "labels"))
    classes = tuple(bytes(shared[f"{table}/classes"]).decode().split("\n"))

    def learn(chosen: Any) -> TrainRows:
        wrong = np.zeros(len(chosen), np.bool_)
        return TrainRows(features[chosen], labels[chosen], classes, chosen, wrong)

    folds = {}
    for fold in ask["folds"]:
        train, held, test = (np.array(shared[f"{table}/{fold}/{part}"], np.int64) for part in PARTS)
        sealed = SealedTest(features[test], labels[test], test, names)
        folds[fold] = (learn(train), learn(held), sealed)
    return [stacked(folds)]


def gradient_volume(ce_weight: float, error_weight: float) -> float:
    """The area under the mixture's gradient in the label's own logit, over that of CE.

    Eq. 20 and 21: ∫ |error_weight p² + (ce_weight - error_weight) p - ce_weight| dp, from 0 to 1,
    is ce_weight/2 + error_weight/6, and 1/2 for cross entropy.

    >>> gradient_volume(1, 0), gradient_volume(1, 1.5)
    (1.0, 1.5)
    """
    return ce_weight + error_weight / 3


def _run(ask: Ask, data: Data, place: Place) -> Run:
    """The control is cross entropy with the gradual mixture's gradient volume, epoch by epoch."""
    rate: float = place.setting["learning_rate"]
    mix = _MIXES.get(place.method)

    def scaled(progress: float) -> float:
        return rate * gradient_volume(*focus_weights(focus_gradual(progress)))

    return Run(
        f"{place.fold}|{place.seed}|{place.method}|{rate:g}",
        data.train[place.fold],
        data.held[place.fold],
        loss="focal" if mix is None else "mixed_expected_error",
        loss_params={"gamma": 2.0, "alpha": 0.25} if mix is None else mix,
        learning_rate=scaled if place.method == CONTROL else rate,
        group=f"{ask['table']}|{ask['labels']['shape']}|{place.fold}|{place.seed}",
    )


def _config(ask: Ask, place: Place) -> TrainConfig:
    hidden = (ask["features"],) if ask["labels"]["shape"] == NETWORK else ()
    return TrainConfig(
        Model(hidden),
        "sgd",
        batch=ask["batch"],
        epochs=ask["epochs"],
        keep="latest best",  # as the paper's code has it
        seed=ask["seed"],
    )


SWEEP = Sweep(
    "expacc.recipes.mixing.uci:SWEEP", _open, run=_run, config=_config, share_batches=True
)
