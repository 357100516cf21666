"""Train the winner on all rows and save it; predict with what was saved."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expacc.cli.screen import Screen, shell, shown_path, user_input
from expacc.cli.tables import describe, read_one
from expacc.plain import UsageError

if TYPE_CHECKING:
    from expacc.compare.deploy import Deployed
    from expacc.data import Table


@dataclass(frozen=True)
class FitOptions:
    """What to train; None where the user left it open.

    Args:
        loss: its name.
        study: folder of a study, whose winner and settings are taken.
        model: 'linear' or 'mlp'.
        trials: of the search.
        seed: of everything random.
        device: where to train.
    """

    loss: str | None = None
    study: Path | None = None
    model: str | None = None
    trials: int | None = None
    seed: int | None = None
    device: str = "cpu"


def fit(
    data: str, options: FitOptions, out: Path | None, *, reading: Mapping[str, Any], screen: Screen
) -> None:
    """Train, save, and say how to predict."""
    table = read_one(data, reading)
    describe([table], screen)
    deployed = _train(table, options, screen)
    folder = deployed.save(out or Path(f"expacc-{table.name}-model"))
    chosen = deployed.classifier.best_params_
    numbers = ", ".join(f"{k.replace('_', ' ')} {_short(v)}" for k, v in chosen.items())
    screen.say(f"Trained on {table.rows:,} rows: {numbers} ({deployed.facts['how']}).")
    screen.say(f"Model: {shown_path(folder)}", "bold")
    screen.say(f"Predict: {shell(['expacc', 'predict', shown_path(folder), 'NEW.csv'])}")
    screen.give({"folder": str(folder), "chosen": chosen, **deployed.facts})


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _train(table: "Table", options: FitOptions, screen: Screen) -> "Deployed":
    from expacc.compare.deploy import train_by_choice, train_loss, winner_of
    from expacc.compare.study import Settings, load_record
    from expacc.report.loss_names import DEFAULT_LOSSES

    loss = options.loss.replace("-", "_") if options.loss else None
    settings: dict[str, Any] = {}
    if options.study is not None:
        record = load_record(options.study)
        loss = loss or winner_of(record, table)
        settings = {name: record.settings[name] for name in ("model", "trials", "seed")}
        if isinstance(settings["trials"], list):  # several tables: each has its own number again
            del settings["trials"]
    if loss is None and options.trials is not None:
        raise UsageError("--trials must come with --loss or --from; got neither.")
    own = {"model": options.model, "trials": options.trials, "seed": options.seed}
    settings |= {name: value for name, value in own.items() if value is not None}
    with user_input():
        Settings(losses=(loss,) if loss else DEFAULT_LOSSES, **settings)
    settings["device"] = options.device
    if loss is None:
        return train_by_choice(table, **settings)
    return train_loss(table, loss, **settings)


def predict(
    folder: Path, data: str, out: Path | None, *, reading: Mapping[str, Any], screen: Screen
) -> None:
    """Add a prediction and probabilities to every row of a table."""
    from expacc.compare.deploy import (
        Deployed,
        accuracy_on,
        check_place,
        with_predictions,
        write_table,
    )

    check_place(out)
    deployed = Deployed.load(folder)
    table = deployed.read(data, **reading)
    for note in (*table.notes, *deployed.preprocessor.notes_on(table)):
        screen.remark(note, "yellow" if note.startswith("Warning") else "")
    labels, chances = deployed.predict(table)
    names, columns = with_predictions(deployed, data, reading, labels, chances)
    write_table(names, columns, out)
    known = accuracy_on(table, labels)
    if known is not None:
        rows, share = known
        screen.remark(f"{100 * share:.1f} % of {rows:,} rows with a label are predicted right.")
    if out is not None:
        screen.remark(f"{table.rows:,} rows → {shown_path(out)}", "bold")
