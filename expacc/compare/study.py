"""A study from tables to rows: plan it, run it, and read it back."""

import datetime
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from expacc.compare.record import StudyRecord, TableFacts
from expacc.compare.record_checks import (
    check_rows_of_study,
    check_settings,
    read_notes,
    read_tables,
)
from expacc.compare.runtime_model import check_size, trials_for
from expacc.compare.serialize import pack_splits, pack_table
from expacc.compare.training_budget import PROTOCOL
from expacc.compare.work import MODELS, failed_rows, runs_in
from expacc.data import Split, Splits, Table, five_by_two, given_splits, holdout, stratified_folds
from expacc.errors import check_choice, check_count, check_number
from expacc.report.loss_names import DEFAULT_LOSSES, REFERENCE, loss_name
from expacc.runner.engine import Engine, Outcome, run_items
from expacc.runner.items import WorkItem, versions
from expacc.runner.rows import Row
from expacc.runner.store import Store
from expacc.runner.store_errors import unreadable
from expacc.training import LOSS_NAMES

__all__ = ["Settings", "Study", "load_record", "plan_study", "progress_of", "run_study"]

EXECUTOR = "expacc.compare.work:execute"
NEVER_ALONE = "complement_entropy"  # it knows nothing of the true class's own score


@dataclass(frozen=True)
class Settings:
    """What a study does; two studies with equal settings and tables have equal rows.

    Args:
        losses: names of ``expacc.training.LOSS_NAMES``; cross entropy is always among them.
        model: 'linear' or 'mlp' (64 hidden units).
        trials: of the search, per loss and fold; None for as many, 8 to 20, as a table of that
            size can have in about a minute.
        folds: '5x2', a number of folds, 'RxK' for repeats, or 'holdout'.
        seeds: final runs per fold, averaged.
        label_noise: shares of training labels to replace.
        seed: of everything random.
    """

    losses: tuple[str, ...] = DEFAULT_LOSSES
    model: str = "linear"
    trials: int | None = None
    folds: str = "5x3"
    seeds: int = 2
    label_noise: tuple[float, ...] = (0.0,)
    seed: int = 0

    def __post_init__(self) -> None:
        allowed = tuple(name for name in LOSS_NAMES if name != NEVER_ALONE)
        for loss in self.losses:
            check_choice("losses", loss, allowed)
        if REFERENCE not in self.losses:
            object.__setattr__(self, "losses", (REFERENCE, *self.losses))
        object.__setattr__(self, "losses", tuple(dict.fromkeys(self.losses)))
        check_choice("model", self.model, tuple(MODELS))
        if self.trials is not None:
            check_count("trials", self.trials)
        check_count("seeds", self.seeds)
        for share in self.label_noise:
            check_number("label_noise", share, low=0, high=1, open_high=True)
        _read_folds(self.folds)


@dataclass(frozen=True)
class Study:
    """A planned study.

    Args:
        settings: as asked for.
        tables: what they are, for the report.
        items: the work.
        shared: data for the workers.
        notes: lines for the user.
    """

    settings: Settings
    tables: Mapping[str, TableFacts]
    items: tuple[WorkItem, ...]
    shared: Mapping[str, Any]
    notes: tuple[str, ...]

    @property
    def runs(self) -> int:
        """How many rows there will be."""
        return sum(item.runs for item in self.items)

    @property
    def trials(self) -> int | list[int]:
        """Of the search: the number, or the different ones of several tables."""
        counts = sorted({int(item.payload["trials"]) for item in self.items})
        return counts[0] if len(counts) == 1 else counts


def _read_folds(folds: str) -> tuple[str, int, int]:
    """Kind, repeats and folds of the setting."""
    if folds in ("5x2", "holdout"):
        return folds, 5, 2
    repeats, _, count = folds.replace("×", "x").rpartition("x")
    if not count.isdecimal() or (repeats and not repeats.isdecimal()):
        raise ValueError(f"folds must be 5x2, a number, RxK or holdout; got {folds!r}.")
    if int(count) < 2:
        raise ValueError(f"folds must be at least 2; got {folds!r}. For one split use holdout.")
    return "folds", int(repeats or 1), int(count)


def _splits(table: Table, settings: Settings) -> Splits:
    labels, classes = table.target.codes, table.target.classes
    kind, repeats, count = _read_folds(settings.folds)
    if kind == "holdout":
        if table.given:
            return given_splits(table)
        return holdout(labels, 0.3, seed=settings.seed, name=table.name, classes=classes)
    if kind == "5x2":
        return five_by_two(labels, seed=settings.seed, name=table.name, classes=classes)
    return stratified_folds(
        labels, count, repeats, seed=settings.seed, name=table.name, classes=classes
    )


def _named(splits: Splits, settings: Settings) -> list[Split]:
    """The splits under the names that rows carry: 1a … 5b, 1 … 10, 1.1 … 3.10 or holdout."""
    kind, repeats, count = _read_folds(settings.folds)
    found = list(splits)
    if kind == "5x2":
        names = [f"{place // 2 + 1}{'ab'[place % 2]}" for place in range(len(found))]
    elif len(found) == 1:
        names = ["holdout"]
    elif kind == "folds" and repeats > 1:
        names = [f"{place // count + 1}.{place % count + 1}" for place in range(len(found))]
    else:
        names = [str(place + 1) for place in range(len(found))]
    return [split.renamed(name) for split, name in zip(found, names, strict=True)]


def check_device(device: str) -> str:
    """The device, if torch can use it here."""
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):  # torch's own go on for lines
        raise ValueError(
            f"device must be one that torch can use here; got {device!r}. Use cpu."
        ) from None
    return device


def plan_study(
    tables: Sequence[Table], settings: Settings, device: str = "cpu", *, only_plan: bool = False
) -> Study:
    """Cut a study into work items: one per table, fold and share of noise.

    With ``only_plan`` folds have a size but no rows, and it cannot be run.
    """
    check_device(device)
    facts, items, notes = {}, [], []
    shared: dict[str, Any] = {}
    for table in tables:
        if table.name in facts:
            raise ValueError(f"tables must have different names; got {table.name!r} twice.")
        check_size(table)
        try:
            dealt = _splits(table, settings)
        except ValueError as error:
            raise ValueError(f"{table.name}: {error}") from None
        notes += [f"{table.name}: {note}" for note in dealt.notes]
        splits = _named(dealt, settings)
        shared |= pack_table(table)
        if only_plan:
            shared |= {
                f"{table.name}/split/{split.name}/train": range(split.train_rows)
                for split in splits
            }
        else:
            shared |= pack_splits(table.name, splits)
        facts[table.name] = TableFacts(
            name=table.name,
            rows=table.rows,
            features=len(table.columns),
            classes=tuple(table.target.classes),
            labels=np.asarray(table.target.codes, np.int32),
            notes=tuple(table.notes),
            sha256=table.sha256,
            target=table.target.name,
            folds=tuple(split.name for split in splits),
        )
        trials = settings.trials or trials_for(table, settings.model)
        for noise in settings.label_noise:
            for split in splits:
                payload = {
                    "table": table.name,
                    "fold": split.name,
                    "noise": noise,
                    "losses": list(settings.losses),
                    "model": settings.model,
                    "trials": trials,
                    "seeds": settings.seeds,
                    "seed": settings.seed,
                    "device": device,
                }
                key = f"{table.name}|{noise:g}|{split.name}"
                items.append(WorkItem(key, payload, runs_in(payload)))
    return Study(settings, facts, tuple(items), shared, tuple(notes))


def identity(study: Study) -> dict[str, Any]:
    """What makes a study this one, for the store."""
    return {
        **{name: _plain(value) for name, value in asdict(study.settings).items()},
        "trials": study.trials,
        "protocol": PROTOCOL,
        "tables": {name: _identity_of(study, name) for name in study.tables},
    }


def _identity_of(study: Study, name: str) -> dict[str, str]:
    """The file, the target, and all that was read: other options are another study."""
    digest = hashlib.sha256()
    for key, value in study.shared.items():
        if key.startswith(f"{name}/") and not key.startswith(f"{name}/split/"):
            data = value.tobytes() if isinstance(value, np.ndarray) else value
            digest.update(f"{key} {len(data)}\n".encode() + data)
    facts = study.tables[name]
    return {"file": facts.sha256, "target": facts.target, "values": digest.hexdigest()}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def best_so_far(rows: Sequence[Row]) -> str:
    """For the bar: the loss of the best mean accuracy in the final rows seen last."""
    scores: dict[str, list[float]] = {}
    for row in rows:
        if row.kind == "final" and row.failure is None:
            scores.setdefault(row.loss, []).append(row.metrics["accuracy"])
    if not scores:
        return ""
    means = {loss: float(np.mean(found)) for loss, found in scores.items()}
    best = max(means, key=means.__getitem__)
    return f"{loss_name(best)} {100 * means[best]:.1f} %"


class _Best:
    """The best loss over all rows so far."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def __call__(self, rows: Sequence[Row]) -> str:
        self.rows += [row for row in rows if row.kind == "final"]
        return best_so_far(self.rows)


def run_study(
    study: Study,
    folder: str | Path,
    *,
    command: str = "",
    engine: Engine = "local",
    workers: int | None = None,
    address: str | None = None,
    progress: bool = True,
    resume: bool = True,
) -> tuple[StudyRecord, Outcome]:
    """Run what is not done yet, and return all of it."""
    now = datetime.datetime.now(datetime.UTC)
    begun = {
        "started": now.strftime("%Y-%m-%d %H:%M UTC"),
        "tables": [_facts_json(facts) for facts in study.tables.values()],
    }
    with Store.open(folder, identity(study), resume=resume, notes=begun) as store:
        notes = _notes(store)
        store.set_note("command", command)
        outcome = run_items(
            store,
            study.items,
            EXECUTOR,
            failed_rows=failed_rows,
            shared=study.shared,
            engine=engine,
            workers=workers,
            address=address,
            progress=progress,
            best=_Best(),
        )
        spent = float(notes.get("seconds", 0.0)) + outcome.seconds
        store.set_note("seconds", spent)
    return load_record(folder), outcome


def _facts_json(facts: TableFacts) -> dict[str, Any]:
    return {
        **{name: _plain(value) for name, value in vars(facts).items() if name != "labels"},
        "labels": facts.labels.tolist(),
    }


def load_record(folder: str | Path) -> StudyRecord:
    """A study as it is on disk, running or finished, checked.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged, or a row does not agree with its predictions.
    """
    with Store.read(folder) as store:
        notes, settings, rows = _notes(store), store.study(), tuple(store.rows())
        made_with = store.made_with()
        try:
            check_settings(settings)
            tables = read_tables(notes)
            check_rows_of_study(rows, tables, settings)
        except ValueError as error:
            raise unreadable(store.path, f"{error}") from None
        return StudyRecord(
            settings={name: value for name, value in settings.items() if name != "tables"},
            tables=tables,
            rows=rows,
            versions=made_with[0] if made_with else versions(),
            started=notes.get("started", ""),
            seconds=float(notes.get("seconds", 0.0)),
            command=notes.get("command", ""),
        )


def progress_of(folder: str | Path) -> tuple[bool, int, int | None]:
    """Whether a study runs now, how many of its parts are done, and of how many if it says so."""
    with Store.read(folder) as store:
        planned = _notes(store).get("planned", {})
        return store.is_running(), len(store.done_items()), planned.get("items")


def _notes(store: Store) -> dict[str, Any]:
    try:
        return read_notes(store.notes())
    except ValueError as error:
        raise unreadable(store.path, f"{error}") from None
