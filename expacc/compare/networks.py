"""Compare losses on a network of one's own: what is asked for, if it can be done, the study."""

import datetime
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from expacc.compare.leaderboard import Leaderboard, leaderboard
from expacc.compare.networks_checks import (
    class_names,
    counted,
    digest_of_labels,
    digest_of_rows,
    epochs_of,
    folds_of,
    read_optimizer,
    triangle,
    try_network,
)
from expacc.compare.networks_data import read_rows
from expacc.compare.networks_losses import DEFAULT, check_loss_value, make_loss, read_losses
from expacc.compare.networks_noise import read_noise
from expacc.compare.networks_plan import FACTORS, Plan, failed_runs, items_of
from expacc.compare.networks_work import Runs
from expacc.compare.page import write_report
from expacc.compare.pictures import Draw, draw_bytes, thumbnails
from expacc.compare.record import GIVEN, NETWORK, TEST_SET, StudyRecord, TableFacts
from expacc.compare.study import load_record
from expacc.compare.suspects import pack_names
from expacc.plain import Report, UsageError, check_choice
from expacc.report.words import NULL, STOPPED, loss_name
from expacc.runner.engine import run_items
from expacc.runner.items import WorkItem
from expacc.runner.rows import RunningScores
from expacc.runner.store import Store
from expacc.training import Augment
from expacc.training.loaders import find_device

PROTOCOL = "networks 1"  # what a study's rows depend on; a change of it is another study


@dataclass(frozen=True, eq=False)
class NetworkComparison:
    """What ``compare_networks`` found.

    Attributes:
        record: the study with all its rows.
        board: the leaderboard made of them.
        folder: where study, report.html and the tables are.
    """

    record: StudyRecord
    board: Leaderboard
    folder: Path

    @property
    def answer(self) -> str:
        """In a sentence, and those that belong to it."""
        return " ".join((self.board.answer.sentence, *self.board.answer.also))

    @property
    def accuracy(self) -> dict[str, float]:
        """Loss → mean test accuracy, a fraction, at the smallest share of wrong labels."""
        return {one.loss: one.accuracy for one in self.board.boards[0].losses if one.accuracy}


@dataclass(frozen=True, eq=False)
class NetworkStudy:
    """What is about to run.

    Attributes:
        plan: what a run needs.
        settings: as asked for.
        facts: of the data.
        items: the runs, done or not.
    """

    plan: Plan
    settings: Mapping[str, Any]
    facts: TableFacts
    items: tuple[WorkItem, ...]

    @property
    def identity(self) -> dict[str, Any]:
        """What makes it this study and no other."""
        return {**self.settings, "tables": {self.facts.name: self.facts.sha256}}


def compare_networks(
    build: Callable[[], nn.Module],
    train: Any,
    test: Any = None,
    *,
    losses: Sequence[str] | Mapping[str, Any] = DEFAULT,
    seeds: int = 5,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    optimizer: str | Callable[[nn.Module], Optimizer] = "adamw",
    schedule: Callable[[float], float] = triangle,
    trials: int = 3,
    label_noise: Any = 0.0,
    validation: float = 0.1,
    augment: Augment | None = None,
    folds: int = 3,
    classes: Sequence[str] | None = None,
    name: str = "data",
    target: str = "label",
    row_names: Sequence[str] | None = None,
    pictures: Callable[[Sequence[int]], Sequence[bytes]] | None = None,
    notes: Sequence[str] = (),
    network: str = "",
    device: str | torch.device = "auto",
    precision: str = "auto",
    graphs: bool = False,
    compile: bool = False,
    side_by_side: int = 1,
    seed: int = 0,
    out: str | os.PathLike[str] = "network-study",
    resume: bool = True,
    progress: bool = True,
    report: Report | None = None,
    before: Callable[[NetworkStudy], object] | None = None,
    command: str = "",
) -> NetworkComparison:
    """Compare losses on a network of your own, beyond what chance would give.

    Every loss gets as many trials of the learning rate, on training rows that are held out, and is
    then trained from the same weights, in the same order, with the same changes of pictures and the
    same wrong labels, once for each seed. Beside the losses stand cross entropy stopped where the
    validation rows want it, and cross entropy from other seeds, which shows what chance does.
    A study that was stopped goes on where it was.

    Args:
        build: makes a new network; called with the generators seeded, once for each run.
        train: (inputs, labels) as tensors or arrays, a Dataset or a DataLoader. Pictures of bytes
            are scaled and standardised; of a DataLoader the data set and batch size are taken.
        test: likewise; None deals the training rows to ``folds`` parts and tests each once.
        losses: names (`expacc losses`), or name → name or function of (logits, target). Cross
            entropy is always among them.
        seeds: runs of each loss.
        epochs: of each run; 10 if neither it nor ``steps`` is given.
        steps: of the optimiser, rounded up to whole epochs.
        batch_size: rows of a batch; 128 if neither it nor a DataLoader says so.
        optimizer: 'adamw', 'sgd' or a function of the network.
        schedule: share of training done → factor of the learning rate.
        trials: learning rates that each loss tries: as the optimiser was made, a half, twice …
        label_noise: the share of training labels that another class replaces, several shares, or an
            array with a noisy label for every training row. Test labels stay.
        validation: share of the training rows, with their wrong labels, that are held out.
        augment: what is done to pictures in training.
        folds: parts, where there is no test set.
        classes: their names, in the order of the labels.
        name: of the data, for the report.
        target: what is predicted, for the report.
        row_names: of the rows of train and then of test, such as files, for the suspects; else
            they are numbers from 0.
        pictures: small PNG files of rows by number, for the suspects on the page; of pictures in
            bytes they are made anyway.
        notes: lines on the data, for the report.
        network: what it is, where its class and number of weights do not say: another text is
            another study.
        device: 'auto' is a GPU if there is one.
        precision: 'float32', 'bfloat16', or 'auto': bfloat16 on a GPU.
        graphs, compile: as for ``fit``.
        side_by_side: runs at a time, each in a thread; for small networks on a GPU.
        seed: of everything random.
        out: folder of the study and its report.
        resume: False begins anew and deletes what is there.
        progress: show a bar on stderr.
        report: called as runs are done, with their number and the mean accuracy of each loss.
        before: called with what will run, before it does; what it raises stops the study.
        command: what was typed, for the report.

    Returns:
        The answer, the leaderboard and all rows.

    Raises:
        UsageError: an argument is not as it must be; one sentence says what to do.

    Example:
        >>> from tempfile import mkdtemp
        >>> x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> found = compare_networks(
        ...     lambda: torch.nn.Linear(4, 2), (x[:120], y[:120]), (x[120:], y[120:]), seeds=2,
        ...     epochs=2, trials=1, losses=["leaky_expected_error"], out=mkdtemp(), progress=False)
        >>> sorted(found.accuracy)[0]
        'cross_entropy'
    """
    counted(seeds=seeds, trials=trials, side_by_side=side_by_side)
    if graphs and side_by_side > 1:
        raise UsageError("graphs must be False for runs side by side; got True. Use one of them.")
    if trials > len(FACTORS):
        raise UsageError(f"trials must be at most {len(FACTORS)}; got {trials}.")
    chosen = read_losses(losses)
    rows = read_rows(train, "train", progress=progress)
    tested = None if test is None else read_rows(test, "test", progress=progress)
    if tested is not None and tested.shape != rows.shape:
        raise UsageError(
            f"test must have rows of the shape of train's, {rows.shape}; got {tested.shape}."
        )
    labels = np.concatenate([rows.labels] + ([] if tested is None else [tested.labels]))
    names = class_names(classes, labels)
    place, make = find_device(device), read_optimizer(optimizer)
    outputs, described = try_network(build, make, rows, place)
    if outputs != len(names):
        cure = "" if classes else " Name all classes with classes=[…] if some are in no row."
        raise UsageError(
            f"build must return a network with one output for each class, {len(names)}; got "
            f"{outputs}.{cure}"
        )
    for one, loss in chosen.items():
        function, _ = make_loss(loss, outputs)
        check_loss_value(function, one, torch.zeros(4, outputs), torch.arange(4) % outputs)
    noises = read_noise(label_noise, rows.labels, outputs)
    if (
        isinstance(validation, bool)
        or not isinstance(validation, int | float)
        or not (0 < validation < 1)
    ):
        raise UsageError(f"validation must lie in (0, 1); got {validation!r}.")
    batch = batch_size or (rows.loader.batch_size if rows.loader is not None else None) or 128
    counted(batch_size=batch)
    if augment is not None and not rows.pictures:
        raise UsageError(
            "augment must be None unless rows are pictures, tensors (channels, height, width); "
            f"got rows of shape {rows.shape}."
        )
    if precision == "auto":
        precision = "bfloat16" if place.type == "cuda" else "float32"
    check_choice("precision", precision, ("float32", "bfloat16", "float16"))
    parts = folds_of(rows, tested, folds, seed, names)
    fewest = round(min(len(own) for own, _ in parts.values()) * (1 - validation))
    plan = Plan(
        build=build,
        losses=chosen,
        train=rows.on(place),
        test=None if tested is None else tested.on(place),
        folds=parts,
        labels=labels,
        noises={noise.share: noise for noise in noises},
        optimizer=make,
        schedule=schedule,
        classes=outputs,
        epochs=epochs_of(epochs, steps, fewest, batch),
        batch=batch,
        trials=trials,
        validation=float(validation),
        seed=seed,
        device=place,
        precision=precision,
        augment=augment,
        graphs=graphs,
        compile=compile,
        folder=Path(out),
        checkpoints=importlib.util.find_spec("safetensors") is not None,
        side_by_side=side_by_side,
    )
    try:
        for fold in parts:
            for noise in plan.noises:
                plan.parts(fold, noise, "trial")
    except ValueError as error:
        raise UsageError(f"validation: {error}") from None
    settings = {
        "losses": [*chosen, STOPPED, NULL],
        "model": NETWORK,
        "trials": trials,
        "folds": TEST_SET if tested is not None else str(folds),
        "seeds": seeds,
        "label_noise": list(plan.noises),
        "seed": seed,
        "noise": GIVEN if noises[0].labels is not None else "drawn",
        "noisy": "" if noises[0].labels is None else digest_of_labels(noises[0].labels),
        "epochs": plan.epochs,
        "batch_size": batch,
        "network": f"{network}: {described}" if network else described,
        "schedule": getattr(schedule, "__qualname__", type(schedule).__name__),
        "validation": plan.validation,
        "augment": "none" if augment is None else str(augment),
        "precision": precision,
        "protocol": PROTOCOL,
    }
    if row_names is None and tested is not None:
        row_names = [f"train {k}" for k in range(len(rows))]
        row_names += [f"test {k}" for k in range(len(tested))]
    if row_names is not None and len(row_names) != len(labels):
        raise UsageError(
            f"row_names must be one for each row, {len(labels)}; got {len(row_names)}."
        )
    facts = TableFacts(
        name=name,
        rows=len(labels),
        features=int(np.prod(rows.shape)),
        classes=names,
        labels=labels.astype(np.int32),
        target=target,
        folds=tuple(parts),
        sha256=digest_of_rows(rows, tested),
        notes=tuple(notes),
        source="" if row_names is None else pack_names(row_names),
    )
    study = NetworkStudy(plan, settings, facts, tuple(items_of(name, plan, seeds)))
    if before is not None:
        before(study)
    draw = pictures or draw_bytes(rows.inputs, None if tested is None else tested.inputs)
    return _run(study, draw, command, resume=resume, progress=progress, report=report)


def _run(
    study: NetworkStudy,
    draw: Draw | None,
    command: str,
    *,
    resume: bool,
    progress: bool,
    report: Report | None,
) -> NetworkComparison:
    plan = study.plan
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    begun = {"started": now, "tables": [study.facts.to_json()]}
    try:
        opened = Store.open(plan.folder, study.identity, resume=resume, notes=begun)
    except (ValueError, OSError) as error:  # which speak of the command line
        if command or "--out" not in str(error):
            raise
        told = str(error).replace("--overwrite", "resume=False").replace("--out", "out")
        raise UsageError(told) from None
    with opened as store:
        before = float(store.notes().get("seconds", 0.0))
        outcome = run_items(
            store,
            study.items,
            Runs(plan, store.rows()),
            failed_rows=failed_runs,
            progress=progress,
            best=RunningScores(loss_name, report),
        )
        store.set_note("seconds", before + outcome.seconds)
        store.set_note("command", command)
        if draw is not None:
            store.set_note("pictures", thumbnails(load_record(plan.folder), draw))
    record = load_record(plan.folder)
    board = leaderboard(record)
    write_report(record, plan.folder, board)
    return NetworkComparison(record, board, plan.folder)
