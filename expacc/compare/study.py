"""A study from tables to rows: plan it, run it, read it back, and say how long it will take."""

import datetime
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from expacc.compare.record import (
    StudyRecord,
    TableFacts,
    check_folds,
    check_rows_of_study,
    check_settings,
    read_notes,
    read_protocol,
    read_tables,
    with_target,
)
from expacc.compare.serialize import failed_rows, pack_splits, pack_table, runs_in
from expacc.compare.suspects import pack_source
from expacc.compare.training_budget import MODELS, PROTOCOL, check_size, fold_seconds, trials_for
from expacc.data import Split, Splits, Table, five_by_two, given_splits, holdout, stratified_folds
from expacc.plain import UsageError, check_choice, check_count
from expacc.registry import list_losses, spec_of
from expacc.report.words import DEFAULT_LOSSES, REFERENCE, loss_name
from expacc.runner.engine import Engine, Outcome, run_items
from expacc.runner.items import WorkItem, versions
from expacc.runner.rows import Row
from expacc.runner.store import FILE, Store
from expacc.runner.store_files import unreadable_error

EXECUTOR = "expacc.compare.work:execute"
START = 5.0  # seconds until workers are up
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
        allowed = tuple(name for name in list_losses() if name != NEVER_ALONE)
        for loss in self.losses:
            check_choice("losses", spec_of(loss).base, allowed)
        if REFERENCE not in self.losses:
            object.__setattr__(self, "losses", (REFERENCE, *self.losses))
        object.__setattr__(self, "losses", tuple(dict.fromkeys(self.losses)))
        check_choice("model", self.model, tuple(MODELS))
        if self.trials is not None:
            check_count("trials", self.trials)
        check_count("seeds", self.seeds)
        for share in self.label_noise:
            if not 0 <= share < 1:
                raise ValueError(f"label_noise must lie in [0, 1); got {share}.")
        if self.seed < 0:
            raise ValueError(f"seed must be >= 0; got {self.seed}.")
        check_folds(self.folds)


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


def _splits(table: Table, settings: Settings) -> tuple[list[Split], tuple[str, ...]]:
    """The folds under the names that rows carry: 1a … 5b, 1 … 10, 1.1 … 3.10 or holdout; notes."""
    protocol = read_protocol(settings.folds)
    labels, parts, repeats = table.target.codes, protocol.parts, protocol.repeats
    options: dict[str, Any] = {
        "seed": settings.seed,
        "name": table.name,
        "classes": table.target.classes,
    }
    splits: Splits
    if protocol.kind == "holdout" and table.given:
        splits = given_splits(table)
    elif protocol.kind == "holdout":
        splits = holdout(labels, 0.3, **options)
    elif protocol.kind == "5x2":
        splits = five_by_two(labels, **options)
    else:
        splits = stratified_folds(labels, parts, repeats, **options)
    found = list(splits)
    names = [str(place + 1) for place in range(len(found))]
    if protocol.kind == "5x2":
        names = list(protocol.folds)
    elif len(found) == 1:
        names = ["holdout"]
    elif repeats > 1:
        names = [f"{place // parts + 1}.{place % parts + 1}" for place in range(len(found))]
    named = [split.renamed(name) for split, name in zip(found, names, strict=True)]
    return named, tuple(splits.notes)


def check_device(device: str) -> str:
    """The device, if torch can use it here."""
    if device == "cpu":
        return device  # torch takes seconds to import
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):  # torch's own go on for lines
        raise UsageError(
            f"device must be one that torch can use here; got {device!r}. Use cpu."
        ) from None
    return device


def plan_study(
    tables: Sequence[Table], settings: Settings, device: str = "cpu", *, only_plan: bool = False
) -> Study:
    """Cut a study into work items: one per table, fold and share of noise.

    Args:
        tables: with different names.
        settings: what to do with them.
        device: of the training.
        only_plan: folds have a size but no rows, and the study cannot be run.

    Returns:
        What ``run_study`` runs.

    Example:
        >>> from expacc.data import read_table
        >>> study = plan_study([read_table("iris")], Settings(trials=2, folds="2"))
        >>> len(study.items), study.runs
        (2, 50)
    """
    check_device(device)
    facts, items, notes = {}, [], []
    shared: dict[str, Any] = {}
    for table in tables:
        if table.name in facts:
            raise UsageError(f"tables must have different names; got {table.name!r} twice.")
        check_size(table)
        try:
            splits, remarks = _splits(table, settings)
        except ValueError as error:  # more folds than rows, a class too rare …
            raise UsageError(f"{table.name}: {error}") from None
        notes += [f"{table.name}: {remark}" for remark in remarks]
        shared |= pack_table(table)
        if only_plan:
            sizes = {split.name: range(split.train_rows) for split in splits}
            shared |= {f"{table.name}/split/{fold}/train": rows for fold, rows in sizes.items()}
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
            reading=table.reading,
            source="" if only_plan else pack_source(table),
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


class _Best:
    """For the bar: the loss of the best mean accuracy over all final rows so far."""

    def __init__(self) -> None:
        self.scores: dict[str, list[float]] = {}

    def __call__(self, rows: Sequence[Row]) -> str:
        for row in rows:
            if row.kind == "final" and row.failure is None:
                self.scores.setdefault(row.loss, []).append(row.metrics["accuracy"])
        means = {loss: float(np.mean(found)) for loss, found in self.scores.items()}
        best = max(means, key=means.__getitem__, default="")
        return f"{loss_name(best)} {100 * means[best]:.1f} %" if best else ""


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
    """Run what is not done yet, and return all of it.

    Args:
        study: as planned.
        folder: created if there is none; a study that is there goes on.
        command: what to type to repeat it, for the record.
        engine, workers, address, progress: as for ``run_items``.
        resume: False begins anew and deletes the rows that are there.

    Returns:
        The study as it is on disk, and what this call did.
    """
    now = datetime.datetime.now(datetime.UTC)
    begun = {
        "started": now.strftime("%Y-%m-%d %H:%M UTC"),
        "tables": [_facts_json(facts) for facts in study.tables.values()],
    }
    with Store.open(folder, identity(study), resume=resume, notes=begun) as store:
        with _believed(store):
            before = float(read_notes(store.notes()).get("seconds", 0.0))
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
        store.set_note("seconds", before + outcome.seconds)
    return load_record(folder), outcome


def _facts_json(facts: TableFacts) -> dict[str, Any]:
    return {
        **{name: _plain(value) for name, value in vars(facts).items() if name != "labels"},
        "labels": facts.labels.tolist(),
    }


def load_record(folder: str | Path) -> StudyRecord:
    """A study as it is on disk, running or finished, checked.

    Args:
        folder: of the study.

    Returns:
        Its settings, tables and rows so far.

    Raises:
        FileNotFoundError: there is none.
        UsageError: it is damaged, or a row does not agree with its predictions.
    """
    with Store.read(folder) as store, _believed(store):
        notes, settings, rows = read_notes(store.notes()), store.study(), tuple(store.rows())
        check_settings(settings)
        tables = read_tables(notes)
        check_rows_of_study(rows, tables, settings)
        made_with = store.made_with()
        return StudyRecord(
            settings=with_target(settings, tables),
            tables=tables,
            rows=rows,
            versions=made_with[0] if made_with else versions(),
            started=notes.get("started", ""),
            seconds=float(notes.get("seconds", 0.0)),
            command=notes.get("command", ""),
        )


@contextmanager
def _believed(store: Store) -> Iterator[None]:
    """Say of which file it is that values do not agree."""
    try:
        yield
    except UsageError:
        raise
    except ValueError as error:
        raise unreadable_error(store.path, f"{error}") from None


def progress_of(folder: str | Path) -> tuple[bool, int, int | None]:
    """Whether a study runs now, how many of its parts are done, and of how many if it says so."""
    with Store.read(folder) as store, _believed(store):
        planned = read_notes(store.notes()).get("planned", {})
        return store.is_running(), len(store.done_items()), planned.get("items")


def expected_seconds(study: Study, items: Sequence[WorkItem], *, workers: int) -> float:
    """Roughly how long these items take on idle cores: the order of magnitude, no more.

    Args:
        study: whose items they are.
        items: what is left of it.
        workers: processes at a time.
    """
    shapes = {}
    for name in study.tables:  # features, one for each level of a category, and classes
        facts = json.loads(bytes(study.shared[f"{name}/facts"]))
        shapes[name] = facts["features"], len(facts["classes"])
    spent = []
    for item in items:
        asked = {name: item.payload[name] for name in ("losses", "model", "trials", "seeds")}
        table, fold = item.payload["table"], item.payload["fold"]
        rows = len(study.shared[f"{table}/split/{fold}/train"])
        spent.append(fold_seconds(rows, *shapes[table], **asked))
    # The last item may run alone.
    return START + max(max(spent), sum(spent) / max(1, workers)) if spent else 0.0


def items_done(study: Study, folder: str | Path) -> set[str]:
    """The items that a folder has already; none if it holds another study or nothing."""
    if not (Path(folder) / FILE).is_file():
        return set()
    with Store.read(folder) as store:
        same = store.study() == json.loads(json.dumps(identity(study)))
        return store.done_items() & {item.key for item in study.items} if same else set()
