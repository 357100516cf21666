"""The commands about studies: compare, show and report one; train its winner, predict with it."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expacc.cli.screen import RunOptions, Screen, shell, shown_path, user_input
from expacc.cli.tables import describe, flags_of, read_all, read_one
from expacc.plain import UsageError

if TYPE_CHECKING:
    from expacc.compare.deploy import Deployed
    from expacc.compare.leaderboard import Leaderboard
    from expacc.compare.record import StudyRecord
    from expacc.compare.study import Settings, Study
    from expacc.data import Table


def read_losses(text: Sequence[str] | None, model: str = "linear") -> tuple[str, ...]:
    """Names and families between commas; of a family those that the model can be trained on."""
    from expacc.compare.settings import trains_on
    from expacc.registry import choose_losses
    from expacc.report.words import DEFAULT_LOSSES

    words = [word.strip() for part in text or () for word in part.split(",") if word.strip()]
    if not words:
        return DEFAULT_LOSSES
    return tuple(name for name in choose_losses(words) if trains_on(model, name) or name in words)


def read_widths(text: str | None) -> tuple[int, ...] | None:
    """Whole numbers between commas."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 0 < int(word) <= 65536 for word in words):
        raise UsageError(
            f"--hidden must be units of layers between commas, such as 256,256; got {text!r:.60}."
        )
    return tuple(map(int, words))


def read_shares(text: str) -> tuple[float, ...]:
    """Shares between commas."""
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f"--inject-label-noise must be shares between commas, such as 0,0.05,0.2; got {text!r}."
        ) from None
    return tuple(dict.fromkeys(shares))


def compare(
    data: Sequence[str],
    settings: "Settings",
    how: RunOptions,
    *,
    reading: Mapping[str, Any],
    screen: Screen,
) -> None:
    """Run the study, or what is left of it, and print its answer."""
    from expacc.compare.study import plan_study, run_study

    command = how.command or ("expacc", "compare", *data, *flags_of(reading))
    tables = read_all(data, reading, screen, command)
    chosen = tables[0].options.target if len(tables) == 1 else None
    if chosen is not None and "target" not in reading:  # when asked for it
        how = replace(how, command=(*command, "--target", str(chosen)))
    describe(tables, screen)
    study = plan_study(tables, settings, how.device, only_plan=how.dry_run, gpus=how.gpus)
    for note in study.notes:
        screen.remark(note, "dim")
    out = how.out or _default_folder(data, tables)
    if how.dry_run:
        _forecast(study, out, screen)
        return
    screen.remark(f"{_planned(study)} → {shown_path(out)}", "bold")
    which = data if len(tables) == 1 else ["TABLE.csv"]
    fit = shell(["expacc", "fit", *which, *flags_of(reading), "--from", shown_path(out)])
    with how.resumable(out), how.tracker(out) as report:
        record, outcome = run_study(
            study,
            out,
            command=shlex.join(how.command),
            next_step=fit,
            engine=how.engine,  # type: ignore[arg-type] # checked there
            workers=how.at_once,
            address=how.address,
            progress=screen.progress,
            report=report,
            resume=not how.overwrite,
        )
        if outcome.skipped:
            screen.remark(f"{outcome.skipped} of {len(study.items)} parts were there already.")
        answer(record, out, screen)


def _default_folder(data: Sequence[str], tables: Sequence["Table"]) -> Path:
    if len(data) > 1:
        return Path("expacc-study")
    name = tables[0].name if len(tables) == 1 else Path(data[0]).absolute().name
    return Path(f"expacc-{name}")


def _planned(study: "Study") -> str:
    from expacc.report.words import trials_text

    asked = study.settings
    tables = f"{len(study.tables)} table{'s' if len(study.tables) > 1 else ''}"
    noise = f", label noise {', '.join(f'{s:g}' for s in asked.label_noise)}"
    return (
        f"{study.runs:,} runs: {len(asked.losses)} losses, {asked.model} model, {tables}, folds "
        f"{asked.folds}, {trials_text(study.trials)} each"
        f"{noise if any(asked.label_noise) else ''}"
    )


def _forecast(study: "Study", out: Path, screen: Screen) -> None:
    """What would run, and how long it would take."""
    from expacc.compare.study import expected_seconds, items_done
    from expacc.report.words import duration, loss_name
    from expacc.runner.engine import cores

    done = items_done(study, out)
    left = [item for item in study.items if item.key not in done]
    seconds = expected_seconds(study, left, workers=cores())
    screen.say(_planned(study))
    screen.say(f"losses: {', '.join(map(loss_name, study.settings.losses))}")
    for facts in study.tables.values():
        screen.say(
            f"{facts.name}: {facts.rows:,} rows, {facts.features} features, {len(facts.classes)} "
            f"classes of {facts.target!r}"
        )
    if done:
        screen.say(f"{len(done)} of {len(study.items)} parts are done in {shown_path(out)}.")
    screen.say(f"Roughly {duration(seconds)} on {cores()} idle cores; it would write to {out}.")
    screen.give(
        {
            "runs": study.runs,
            "items": len(study.items),
            "items_done": len(done),
            "seconds": round(seconds, 1),
            "out": str(out),
            "losses": list(study.settings.losses),
            "tables": list(study.tables),
            "targets": {name: facts.target for name, facts in study.tables.items()},
        }
    )


def answer(
    record: "StudyRecord", out: Path, screen: Screen, board: "Leaderboard | None" = None
) -> None:
    """Print the answer and the leaderboard, write the report, and say where it is.

    With ``board`` the report is there already.
    """
    from expacc.compare.leaderboard import leaderboard, leaderboard_json
    from expacc.compare.page import write_report
    from expacc.compare.page_tables import next_steps
    from expacc.compare.terminal import print_leaderboard

    path = out / "report.html"
    if board is None:
        board = leaderboard(record)
        path = write_report(record, out, board)
    if not screen.as_json:
        print_leaderboard(board, screen.console())
    screen.say("")
    for step in next_steps(record, board):
        screen.say(f"{step.what} {step.command}".strip())
    screen.say(f"Report: {shown_path(path)}", "bold")
    screen.give({**json.loads(leaderboard_json(record, board)), "report": str(path)})
    finals = [row for row in record.rows if row.kind == "final"]
    if finals and all(row.failure for row in finals):
        raise UsageError(
            f"every run of every loss failed, first with: {finals[0].failure} "
            "Put that right, then add --overwrite to the command."
        )


def show(folder: Path, screen: Screen) -> None:
    """The leaderboard of a study that runs or has run."""
    from expacc.compare.leaderboard import leaderboard, leaderboard_json
    from expacc.compare.study import load_record, progress_of
    from expacc.compare.terminal import print_leaderboard

    running, done, planned = progress_of(folder)
    board = leaderboard(record := load_record(folder))
    if not screen.as_json:
        print_leaderboard(board, screen.console())
    if running or done < (planned or 0):
        word = "Running" if running else "Not finished"
        screen.say(f"{word}: {done} of {planned or '?'} parts are done.", "dim")
    state = {"running": running, "items_done": done, "items": planned}
    screen.give({**json.loads(leaderboard_json(record, board)), **state})


def report(folder: Path, screen: Screen) -> None:
    """Write the report anew from the rows."""
    from expacc.compare.page import write_report
    from expacc.compare.study import load_record

    path = write_report(load_record(folder), folder)
    screen.say(f"Report: {shown_path(path)}", "bold")
    screen.give({"report": str(path)})


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
        hidden: widths of the layers of 'mlp'.
        dropout: share of its units that are dropped.
    """

    loss: str | None = None
    study: Path | None = None
    model: str | None = None
    trials: int | None = None
    seed: int | None = None
    device: str = "cpu"
    hidden: tuple[int, ...] | None = None
    dropout: float = 0.0


def fit(
    data: str, options: FitOptions, out: Path | None, *, reading: Mapping[str, Any], screen: Screen
) -> None:
    """Train, save, and say how to predict."""
    from expacc.compare.study import load_record

    record = None if options.study is None else load_record(options.study)
    if record is not None:
        from expacc.compare.deploy import reading_of
        from expacc.compare.record import NETWORK

        if record.settings["model"] == NETWORK:
            raise UsageError(
                f"--from must be a study of tables; {options.study} is of a network. Its report "
                "says how to train it, in Python."
            )
        reading = {**reading_of(record, data), **reading}
    command = ["expacc", "fit", data, *(("--loss", options.loss) if options.loss else ())]
    table = read_one(data, reading, screen, command)
    describe([table], screen)
    deployed = _train(table, options, record)
    folder = deployed.save(out or Path(f"expacc-{table.name}-model"))
    chosen = deployed.classifier.best_params_
    numbers = ", ".join(f"{k.replace('_', ' ')} {_short(v)}" for k, v in chosen.items())
    screen.say(
        f"Trained on {table.rows:,} rows to predict {table.target.name!r}: {numbers} "
        f"({deployed.facts['how']})."
    )
    screen.say(f"Model: {shown_path(folder)}", "bold")
    screen.say(f"Predict: {shell(['expacc', 'predict', shown_path(folder), 'NEW.csv'])}")
    screen.give({"folder": str(folder), "chosen": chosen, **deployed.facts})


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _train(table: "Table", options: FitOptions, record: "StudyRecord | None") -> "Deployed":
    from expacc.compare.deploy import train_by_choice, train_loss, winner_of
    from expacc.compare.settings import Settings
    from expacc.report.words import DEFAULT_LOSSES

    loss = options.loss.replace("-", "_") if options.loss else None
    settings: dict[str, Any] = {}
    if record is not None:
        loss = loss or winner_of(record, table)
        asked = ["trials", "seed", *(("model", "hidden", "dropout") if not options.model else ())]
        settings = {name: record.settings[name] for name in asked if name in record.settings}
        if "hidden" in settings:
            settings["hidden"] = tuple(settings["hidden"])
        if isinstance(settings["trials"], list):  # several tables: each has its own number again
            del settings["trials"]
    if loss is None and options.trials is not None:
        raise UsageError("--trials must come with --loss or --from; got neither.")
    own = {name: getattr(options, name) for name in ("model", "trials", "seed", "hidden")}
    settings |= {name: value for name, value in own.items() if value is not None}
    if options.dropout:
        settings["dropout"] = options.dropout
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
    from expacc.compare.deploy import Deployed
    from expacc.compare.predictions import (
        accuracy_on,
        check_place,
        with_predictions,
        write_table,
    )
    from expacc.data.options import NoRows

    check_place(out)
    deployed = Deployed.load(folder)
    numbers = [name for name, kind in deployed.preprocessor.schema.columns if kind == "number"]
    try:
        table = deployed.read(data, **reading)
    except NoRows:
        names, columns = with_predictions(deployed, data, reading, [], None)
        write_table(names, columns, out, numbers)
        screen.remark(f"{data} has no rows: nothing to predict.", "yellow")
        return
    for note in (*table.notes, *deployed.preprocessor.notes_on(table)):
        screen.remark(note, "yellow" if note.startswith("Warning") else "")
    labels, chances = deployed.predict(table)
    names, columns = with_predictions(deployed, data, reading, labels, chances)
    write_table(names, columns, out, numbers)
    known = accuracy_on(table, labels)
    if known is not None:
        rows, share = known
        screen.remark(f"{100 * share:.1f} % of {rows:,} rows with a label are predicted right.")
    if out is not None:
        screen.remark(f"{table.rows:,} rows → {shown_path(out)}", "bold")
