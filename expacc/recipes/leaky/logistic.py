"""leerr-mnist-logistic: training curves, ten folds, gradient norms.

The paper does not say how pixels were scaled and where weights began, and that decides what its
figures show: so there are several conditions. All losses of a fold start from the same weights and
see the same batches; curves on the sealed test rows are scored at the end, all epochs at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from expacc.data import derive_seed
from expacc.recipes.leaky.digits import digits_data, pack, read_digits, unpack
from expacc.recipes.leaky.protocol import xavier
from expacc.recipes.recipe import RecipeOptions, Work
from expacc.recipes.sweep import Ask, Data, Place, Sweep, grid
from expacc.runner.items import Shared
from expacc.training import Layer, Model, Run, TrainConfig, Trained


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
# All three are ce_weight · (-log p) + error_weight · (1 - p), Eq. 5 and 6.
WEIGHTS = {
    "cross_entropy": (1.0, 0.0),
    "expected_error": (0.0, 1.0),
    "leaky_expected_error": (0.1, 1.0),
}
ALL = "all"  # the fold that trains on all rows
FOLDS = 10
EPOCHS, PATIENCE, BATCH = 200, 15, 100
RATE, LARGE_RATE = 1e-4, 1e-2
QUICK_ROWS, QUICK_EPOCHS, QUICK_FOLDS = 12_000, 30, 2


def plan(options: RecipeOptions) -> Work:
    """One item per condition for Figure 2, and one per condition and fold for Figure 3."""
    digits = read_digits(options.data)
    folds = options.seeds or (QUICK_FOLDS if options.quick else FOLDS)
    how: dict[str, Any] = {
        "rows": QUICK_ROWS if options.quick else None,
        "epochs": QUICK_EPOCHS if options.quick else EPOCHS,
        "patience": PATIENCE,
        "batch": BATCH,
        "all_folds": folds,
    }
    # On folds EErr at 1e-2, too, as in Section 3.1.
    whole = {loss: grid(learning_rate=[RATE]) for loss in WEIGHTS}
    cut = {**whole, "expected_error": grid(learning_rate=[RATE, LARGE_RATE])}
    items = [
        SWEEP.item(
            f"{condition}|{fold}",
            options,
            table="mnist",
            folds=[fold],
            settings=whole if fold == ALL else cut,
            points=how["epochs"] if fold == ALL else 1,
            labels={"condition": condition},
            **how,
        )
        for condition in CONDITIONS
        for fold in (ALL, *(str(number + 1) for number in range(folds)))
    ]
    train, test = len(digits.part(how["rows"]).train_labels), len(digits.test_labels)
    facts = {"train_rows": train, "test_rows": test, "quick": options.quick, "folds": folds}
    return SWEEP.work(items, shared=pack(digits), facts={**how, **facts})


def _open(ask: Ask, shared: Shared, names: Sequence[str]) -> list[Data]:
    digits = unpack(shared).part(ask["rows"])
    return [digits_data(digits, ask, names, largest=_condition(ask).largest)]


def _condition(ask: Ask) -> Condition:
    return CONDITIONS[ask["labels"]["condition"]]


def _run(ask: Ask, data: Data, place: Place) -> Run:
    features, classes = data.rows.features.shape[1], data.rows.classes
    # One random start per fold, whatever the scale of pixels.
    begin = xavier((features, classes), ask["seed"], "mnist", place.fold)
    if _condition(ask).start == "zeros":
        begin = Trained((Layer(torch.zeros(classes, features), torch.zeros(classes)),))
    ce_weight, error_weight = WEIGHTS[place.method]
    return Run(
        f"{place.method}/{place.setting['learning_rate']:g}",
        data.train[place.fold],
        data.held.get(place.fold),
        loss="mixed_expected_error",
        loss_params={"ce_weight": ce_weight, "error_weight": error_weight},
        learning_rate=place.setting["learning_rate"],
        start=begin,
        group=f"mnist/{place.fold}",
    )


def _config(ask: Ask, place: Place) -> TrainConfig:
    """On all rows for the whole time, or on a fold with patience."""
    whole = place.fold == ALL
    return TrainConfig(
        Model(),
        "adam",
        batch=ask["batch"],
        epochs=ask["epochs"],
        patience=None if whole else ask["patience"],
        keep="every" if whole else "best",
        curves=("train", "gradient") if whole else ("gradient",),
        seed=derive_seed(ask["seed"], "leerr-mnist-logistic") % (1 << 31),
    )


SWEEP = Sweep(
    "expacc.recipes.leaky.logistic:SWEEP",
    _open,
    run=_run,
    config=_config,
    share_batches=True,
    curves=("gradient_norm", "train_accuracy", "validation_accuracy"),
)
