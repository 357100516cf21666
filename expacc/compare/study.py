"""A study from tables to rows: plan it, run it, read it back, and say how long it will take."""

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from expacc.compare.record import (
    StudyRecord,
    TableFacts,
    check_pictures,
    check_rows_of_study,
    check_settings,
    read_notes,
    read_protocol,
    read_tables,
    with_target,
)
from expacc.compare.serialize import (
    digest_of,
    failed_rows,
    loss_items,
    named_splits,
    pack_splits,
    pack_table,
    reference_items,
)
from expacc.compare.settings import Settings as Settings
from expacc.compare.suspects import pack_source
from expacc.compare.training_budget import (
    MODELS,
    PROTOCOL,
    check_size,
    fold_seconds,
    plan_references,
    reference_seconds,
    trials_for,
)
from expacc.data import Table
from expacc.plain import Report, UsageError
from expacc.report.words import loss_name
from expacc.runner.engine import Engine, Outcome, run_items
from expacc.runner.items import WorkItem, versions
from expacc.runner.rows import RunningScores
from expacc.runner.store import FILE, Store
from expacc.runner.store_files import unreadable_error

EXECUTOR = "expacc.compare.work:execute"
START = 5.0  # seconds until workers are up


@dataclass(frozen=True)
class Study:
    """A planned study.

    Args:
        settings: as asked for.
        tables: what they are, for the report.
        items: the work.
        shared: data for the workers.
        notes: lines for the user.
        left_out: lines on what is not run beside the losses, and why.
    """

    settings: Settings
    tables: Mapping[str, TableFacts]
    items: tuple[WorkItem, ...]
    shared: Mapping[str, Any]
    notes: tuple[str, ...]
    left_out: tuple[str, ...] = ()

    @property
    def runs(self) -> int:
        """How many rows there will be."""
        return sum(item.runs for item in self.items)

    @property
    def trials(self) -> int | list[int]:
        """Of the search: the number, or the different ones of several tables."""
        counts = sorted({int(item.payload.get("trials", 0)) for item in self.items} - {0})
        return counts[0] if len(counts) == 1 else counts


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
    tables: Sequence[Table],
    settings: Settings,
    device: str = "cpu",
    *,
    only_plan: bool = False,
    gpus: float = 0.0,
) -> Study:
    """Cut a study into work items: one per table, fold and share of noise.

    Args:
        tables: with different names.
        settings: what to do with them.
        device: of the training.
        only_plan: folds have a size but no rows, and the study cannot be run.
        gpus: the share of a GPU that an item takes on a Ray cluster, whose device it then is.

    Returns:
        What ``run_study`` runs.

    Example:
        >>> from expacc.data import read_table
        >>> study = plan_study([read_table("iris")], Settings(trials=2, folds="2"))
        >>> len(study.items), study.runs
        (4, 56)
    """
    if not gpus:
        check_device(device)
    if device != "cpu" and settings.model not in MODELS:
        raise UsageError(f"device must be cpu for model {settings.model}; got {device!r}.")
    facts, items, notes = {}, [], []
    beside: list[WorkItem] = []
    left_out: list[str] = []
    shared: dict[str, Any] = {}
    for table in tables:
        if table.name in facts:
            raise UsageError(f"tables must have different names; got {table.name!r} twice.")
        check_size(table)
        try:
            splits, remarks = named_splits(table, settings.folds, settings.seed)
        except ValueError as error:  # more folds than rows, a class too rare …
            raise UsageError(f"{table.name}: {error}") from None
        notes += [f"{table.name}: {remark}" for remark in remarks]
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
            columns=tuple(column.name for column in table.columns),
            reading=table.reading,
            source="" if only_plan else pack_source(table),
        )
        trials = settings.trials or trials_for(table, settings.model, settings.hidden)
        budget = {name: getattr(settings, name) for name in ("losses", "model", "seeds")}
        budget |= {"trials": trials}
        asked = budget | {"losses": list(settings.losses), "seed": settings.seed, "device": device}
        asked |= settings.network
        budget["hidden"] = settings.hidden
        folds = facts[table.name].folds
        items += loss_items(table.name, folds, settings.label_noise, asked)
        sizes = [split.train_rows for split in splits]
        first = read_protocol(settings.folds).parts
        chosen, beyond = plan_references(table, settings.references, sizes, first=first, **budget)
        beside += reference_items(table.name, folds, settings.label_noise, chosen, settings.seed)
        left_out += beyond
    notes += left_out
    # Last, so that they keep no loss waiting.
    items = [replace(item, gpus=gpus) for item in items]
    return Study(settings, facts, (*items, *beside), shared, tuple(notes), tuple(left_out))


def identity(study: Study) -> dict[str, Any]:
    """What makes a study this one, for the store."""
    return {
        **{
            name: _plain(value)
            for name, value in asdict(study.settings).items()
            if name not in ("references", "hidden", "dropout")
        },  # references touch no loss: a study can have them later
        **study.settings.network,
        "trials": study.trials,
        "protocol": PROTOCOL,
        "tables": {name: _identity_of(study, name) for name in study.tables},
    }


def _identity_of(study: Study, name: str) -> dict[str, str]:
    """The file, the target, and all that was read: other options are another study."""
    facts, values = study.tables[name], digest_of(name, study.shared)
    return {"file": facts.sha256, "target": facts.target, "values": values}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def run_study(
    study: Study,
    folder: str | Path,
    *,
    command: str = "",
    next_step: str = "",
    engine: Engine = "local",
    workers: int | None = None,
    address: str | None = None,
    progress: bool = True,
    report: Report | None = None,
    resume: bool = True,
) -> tuple[StudyRecord, Outcome]:
    """Run what is not done yet, and return all of it.

    Args:
        study: as planned.
        folder: created if there is none; a study that is there goes on.
        command: what to type to repeat it, for the record.
        next_step: what to type to train what it recommends, likewise.
        engine, workers, address, progress: as for ``run_items``.
        report: called as parts are done, with the number of final runs and the mean accuracy of
            each loss so far, as ``{"accuracy/focal": 0.93}``.
        resume: False begins anew and deletes the rows that are there.

    Returns:
        The study as it is on disk, and what this call did.
    """
    now = datetime.datetime.now(datetime.UTC)
    begun = {
        "started": now.strftime("%Y-%m-%d %H:%M UTC"),
        "tables": [facts.to_json() for facts in study.tables.values()],
    }
    with Store.open(folder, identity(study), resume=resume, notes=begun) as store:
        with _believed(store):
            before = float(read_notes(store.notes()).get("seconds", 0.0))
        store.set_note("command", command)
        store.set_note("next_step", next_step)
        store.set_note("left_out", list(study.left_out))
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
            best=RunningScores(loss_name, report),
        )
        store.set_note("seconds", before + outcome.seconds)
    return load_record(folder), outcome


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
            next_step=notes.get("next_step", ""),
            left_out=tuple(notes.get("left_out", ())),
            pictures=check_pictures(notes.get("pictures", {})),
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
        table, fold = item.payload["table"], item.payload["fold"]
        rows = len(study.shared[f"{table}/split/{fold}/train"])
        if "references" in item.payload:
            names = item.payload["references"]
            spent.append(sum(reference_seconds(name, rows, *shapes[table]) for name in names))
            continue
        asked = {name: item.payload[name] for name in ("losses", "model", "trials", "seeds")}
        asked["hidden"] = item.payload.get("hidden")
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
