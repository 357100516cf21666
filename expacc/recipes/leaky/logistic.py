"""The work of leerr-mnist-logistic: training curves, ten folds, gradient norms.

The paper does not say how pixels were scaled and where weights began, and that decides what its
figures show: so there are several conditions.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from expacc.data import Split, TrainRows, derive_seed
from expacc.recipes.leaky.digits import Digits, folds_of, pack, read_digits, unpack
from expacc.recipes.leaky.lockstep import Contender, Course, train_in_lockstep
from expacc.recipes.leaky.start import xavier
from expacc.recipes.recipe import RecipeOptions, Work
from expacc.runner.items import Shared, WorkItem
from expacc.runner.rows import Row
from expacc.training import Layer, TensorTable, Trained

__all__ = [
    "ALL",
    "CONDITIONS",
    "LARGE_RATE",
    "RATE",
    "Condition",
    "contenders",
    "execute",
    "failed_rows",
    "plan",
]


@dataclass(frozen=True)
class Condition:
    """What the paper leaves open.

    Args:
        title: for the page.
        largest: the value of a white pixel: 255 as the files have them, or 1.
        start: weights of 0, which is usual for logistic regression, or Xavier's random ones, which
            the paper has in its main experiments.
    """

    title: str
    largest: float
    start: Literal["zeros", "xavier"]


CONDITIONS = {
    "raw-zeros": Condition("pixels 0–255, weights from 0", 255.0, "zeros"),
    "raw-xavier": Condition("pixels 0–255, random weights", 255.0, "xavier"),
    "unit-xavier": Condition("pixels 0–1, random weights", 1.0, "xavier"),
}
ALL = "all"  # the fold that trains on all rows
FOLDS = 10
EPOCHS, PATIENCE, BATCH = 200, 15, 100
RATE, LARGE_RATE = 1e-4, 1e-2
QUICK_ROWS, QUICK_EPOCHS, QUICK_FOLDS = 12_000, 30, 2


def plan(ask: RecipeOptions) -> Work:
    """One item per condition for Figure 2, and one per condition and fold for Figure 3."""
    digits = read_digits(ask.data)
    folds = ask.seeds or (QUICK_FOLDS if ask.quick else FOLDS)
    settings: dict[str, Any] = {
        "rows": QUICK_ROWS if ask.quick else None,
        "epochs": QUICK_EPOCHS if ask.quick else EPOCHS,
        "patience": PATIENCE,
        "batch": BATCH,
        "folds": folds,
        "seed": ask.seed,
        "device": ask.device,
    }
    items = []
    for condition in CONDITIONS:
        for fold in (ALL, *(str(number + 1) for number in range(folds))):
            payload = {**settings, "condition": condition, "fold": fold}
            items.append(WorkItem(f"{condition}|{fold}", payload, len(contenders(fold))))
    train, test = len(digits.part(settings["rows"]).train_labels), len(digits.test_labels)
    return Work(
        items=tuple(items),
        executor="expacc.recipes.leaky.logistic:execute",
        failed_rows=failed_rows,
        shared=pack(digits),
        facts={**settings, "train_rows": train, "test_rows": test, "quick": ask.quick},
    )


def contenders(fold: str) -> list[Contender]:
    """NegLog, EErr and LEErr at 1e-4; on folds EErr at 1e-2, too, as in Section 3.1."""
    losses = ("cross_entropy", "expected_error", "leaky_expected_error")
    usual = [Contender(loss, RATE) for loss in losses]
    return usual if fold == ALL else [*usual, Contender("expected_error", LARGE_RATE)]


def execute(item: WorkItem, shared: Shared) -> list[Row]:
    """Train all contenders of a fold in lockstep; one row each."""
    start = time.perf_counter()
    ask = item.payload
    digits = unpack(shared).part(ask["rows"])
    largest = CONDITIONS[ask["condition"]].largest
    whole = digits.learn(largest=largest)
    rivals = contenders(ask["fold"])
    split = None
    if ask["fold"] != ALL:
        split = folds_of(digits, ask["folds"], ask["seed"])[int(ask["fold"]) - 1]
    courses = _train(whole, split, rivals, ask)
    each = (time.perf_counter() - start) / len(rivals)
    on_test = _score(digits, courses, largest)
    return [
        _row(item, rival, _result(course, accuracies), each)
        if course.diverged is None
        else _failed(item, rival, f"diverged in epoch {course.diverged}")
        for rival, course, accuracies in zip(rivals, courses, on_test, strict=True)
    ]


def _train(
    whole: TrainRows, split: Split | None, rivals: list[Contender], ask: Mapping[str, Any]
) -> list[Course]:
    """On all rows for the whole time, or on a fold with patience."""
    features, classes = whole.features.shape[1], len(whole.classes)
    # One random start per fold, whatever the scale of pixels.
    begin = xavier((features, classes), ask["seed"], "mnist", ask["fold"])
    if CONDITIONS[ask["condition"]].start == "zeros":
        begin = Trained((Layer(torch.zeros(classes, features), torch.zeros(classes)),))
    train = np.arange(len(whole)) if split is None else split.train
    return train_in_lockstep(
        TensorTable(torch.from_numpy(whole.features), torch.from_numpy(whole.labels), classes),
        torch.from_numpy(train),
        None if split is None else torch.from_numpy(split.test),
        rivals,
        begin,
        key=f"mnist/{ask['fold']}",
        batch=ask["batch"],
        epochs=ask["epochs"],
        patience=None if split is None else ask["patience"],
        every_epoch=split is None,
        seed=derive_seed(ask["seed"], "leerr-mnist-logistic") % (1 << 31),
        device=ask["device"],
    )


def _score(digits: Digits, courses: list[Course], largest: float) -> list[list[float]]:
    """Accuracy on the test rows of all kept weights of all courses, in one go."""
    names = [
        [f"{place}|{number}" for number in range(len(course.models))]
        for place, course in enumerate(courses)
    ]
    flat = [name for own in names for name in own]
    models = [model for course in courses for model in course.models]

    def predict(features: Any) -> dict[str, Any]:
        inputs = torch.from_numpy(features)
        found = (model.logits(inputs).argmax(1).numpy() for model in models)
        return dict(zip(flat, found, strict=True))

    scores = digits.seal(flat, largest=largest).score_together(flat, predict)
    return [[scores[name].accuracy for name in own] for own in names]


def _result(course: Course, on_test: list[float]) -> dict[str, Any]:
    """Metrics and curves of a good run."""
    metrics = {
        "accuracy": on_test[-1],
        "epochs": float(len(course.norms)),
        "best_epoch": float(course.best_epoch),
        "stopped": float(course.stopped),
    }
    curves = {"gradient_norm": tuple(course.norms)}
    if course.train:
        metrics["train_accuracy"] = course.train[-1]
        curves |= {"train_accuracy": tuple(course.train), "test_accuracy": tuple(on_test)}
    if course.held:
        metrics["validation_accuracy"] = max(course.held)
        curves["validation_accuracy"] = tuple(course.held)
    return {"metrics": metrics, "curves": curves}


def _row(item: WorkItem, rival: Contender, found: dict[str, Any], seconds: float = 0.0) -> Row:
    ask = item.payload
    return Row(
        key=f"{item.key}|{rival.loss}|{rival.learning_rate:g}",
        item=item.key,
        kind="final",
        table="mnist",
        loss=rival.loss,
        fold=ask["fold"],
        numbers={"learning_rate": rival.learning_rate, "condition": ask["condition"]},
        seconds=seconds,
        **found,
    )


def _failed(item: WorkItem, rival: Contender, reason: str) -> Row:
    return _row(item, rival, {"failure": reason})


def failed_rows(item: WorkItem, reason: str) -> list[Row]:
    """The rows of an item that gave none."""
    return [_failed(item, rival, reason) for rival in contenders(item.payload["fold"])]
