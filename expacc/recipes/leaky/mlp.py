"""leerr-mnist-mlp: a 300-200-100 network with dropout on MNIST, with and without noise.

The paper tunes learning rate and dropout on the development rows of every fold. That takes a GPU:
on a CPU the default is one setting, half of the folds and fewer epochs; ``--seeds`` asks for the
whole, that many folds of it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from expacc.data import derive_seed
from expacc.recipes.leaky.digits import digits_data, pack, read_digits, unpack
from expacc.recipes.leaky.protocol import xavier
from expacc.recipes.recipe import RecipeOptions, Work
from expacc.recipes.sweep import Ask, Data, Place, Sweep, grid
from expacc.runner.items import Shared
from expacc.training import Model, Run, TrainConfig

LOSSES = ("cross_entropy", "leaky_expected_error")
NOISES = (0.0, 0.05)
HIDDEN = (300, 200, 100)
PATIENCE, BATCH, FOLDS = 30, 128, 10
AT_ONCE = 5  # folds of an item on a GPU: what a kill may cost

# What is tried, and how long: the paper's protocol, what two cores do in an hour, and a minute.
PROTOCOLS: dict[str, dict[str, Any]] = {
    "full": {"rates": [3e-4, 1e-3], "dropouts": [0.1, 0.2, 0.3], "epochs": 400, "rows": None},
    "short": {"rates": [1e-3], "dropouts": [0.2], "epochs": 50, "rows": None},
    "quick": {"rates": [1e-3], "dropouts": [0.2], "epochs": 4, "rows": 10_000},
}
USUAL_FOLDS = {"full": FOLDS, "short": 5, "quick": 2}


def protocol_of(options: RecipeOptions) -> str:
    """'full' on a GPU or where seeds are asked for, 'short' on a CPU, 'quick'."""
    if options.quick:
        return "quick"
    return "full" if options.seeds is not None or options.device != "cpu" else "short"


def plan(options: RecipeOptions) -> Work:
    """On a CPU an item per fold, loss and share of noise; on a GPU five folds and all losses."""
    digits = read_digits(options.data)
    protocol = protocol_of(options)
    folds = options.seeds or USUAL_FOLDS[protocol]
    how = {**PROTOCOLS[protocol], "patience": PATIENCE, "batch": BATCH, "all_folds": folds}
    # By dropout first: of equally good settings the first is taken.
    tried = grid(dropout=how["dropouts"], learning_rate=how["rates"])
    items = []
    for noise, numbers, losses in _cuts(folds, options.device):
        named = numbers[0] if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
        items.append(
            SWEEP.item(
                f"{protocol}|{noise:g}|{named}|{losses[0] if len(losses) == 1 else 'all'}",
                options,
                table="mnist",
                folds=numbers,
                settings=dict.fromkeys(losses, tried),
                search="keep",
                noise=noise,
                **how,
            )
        )
    train = len(digits.part(how["rows"]).train_labels)
    facts = {"protocol": protocol, "train_rows": train, "test_rows": len(digits.test_labels)}
    return SWEEP.work(items, shared=pack(digits), facts={**how, **facts})


def _cuts(folds: int, device: str) -> Iterator[tuple[float, list[str], list[str]]]:
    """Share of noise, folds (from 1) and losses of every item."""
    numbers = [str(number) for number in range(1, folds + 1)]
    at_once, some = (1, 1) if device == "cpu" else (AT_ONCE, len(LOSSES))  # a GPU wants many runs
    for noise in NOISES:
        for low in range(0, folds, at_once):
            for first in range(0, len(LOSSES), some):
                yield noise, numbers[low : low + at_once], list(LOSSES[first : first + some])


def _open(ask: Ask, shared: Shared, names: Sequence[str]) -> list[Data]:
    # Noise in training and development rows, as in the paper, and the same for all folds.
    return [digits_data(unpack(shared).part(ask["rows"]), ask, names, label_noise=ask["noise"])]


def _run(ask: Ask, data: Data, place: Place) -> Run:
    rate, dropout = place.setting["learning_rate"], place.setting["dropout"]
    widths = (data.rows.features.shape[1], *HIDDEN, data.rows.classes)
    return Run(
        f"mnist/{ask['noise']:g}/{place.fold}/{place.method}/{rate:g}/{dropout:g}",
        data.train[place.fold],
        data.held[place.fold],
        loss=place.method,
        learning_rate=rate,
        start=xavier(widths, ask["seed"], "mnist", int(place.fold)),
    )


def _config(ask: Ask, place: Place) -> TrainConfig:
    dropout = place.setting["dropout"]
    return TrainConfig(
        Model(HIDDEN, input_dropout=dropout, hidden_dropout=dropout),
        "adam",
        batch=ask["batch"],
        epochs=ask["epochs"],
        patience=ask["patience"],
        seed=derive_seed(ask["seed"], "leerr-mnist-mlp") % (1 << 31),
    )


SWEEP = Sweep(
    "expacc.recipes.leaky.mlp:SWEEP",
    _open,
    run=_run,
    config=_config,
    curves=("validation_accuracy",),
)
