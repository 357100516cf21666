"""The runs of a study of a user's own network: one trains, is watched, and is scored once."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-not-found,import-untyped,unused-ignore]
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from expacc.compare.networks_data import Labels, NetworkRows, Noise, Parts, parts_of
from expacc.compare.networks_losses import make_loss
from expacc.compare.record import RUN
from expacc.compare.references import judge
from expacc.compare.serialize import row_of
from expacc.compare.standing import STOPPED_ACCURACY
from expacc.compare.trials import best_trial, thinned
from expacc.estimator.calibration import Calibration, fit_calibration
from expacc.optim import GradientNormalizer
from expacc.report.words import NULL, REFERENCE, STOPPED
from expacc.runner.items import Reply, WorkItem, run_item
from expacc.runner.rows import Predictions, Row
from expacc.training import Augment, EpochRecord, ResidentData, fit
from expacc.training.epochs import PRECISIONS
from expacc.training.randomness import caller_randomness_kept, reseed, seed_of

# Of the learning rate, in the order of the trials: the first is what the optimiser was made with.
FACTORS = (1.0, 0.5, 2.0, 0.25, 4.0, 0.125, 8.0)
CHECKPOINT_SECONDS = 30.0
WRONG = "wrong_label"  # what is watched: how many wrong labels are learnt
POLL = 0.1  # seconds between two looks at how far runs are


class Stopped(BaseException):
    """Ctrl-C, told to a run in a thread: no failure of the run."""


@dataclass(frozen=True, eq=False)
class Plan:
    """All that a run needs to know.

    Attributes:
        build: makes a network.
        losses: name → name or function.
        train: rows of training, and of testing by folds.
        test: rows of testing; None tests by folds.
        folds: name → training rows and test rows, by number.
        labels: the given label of every row, those of training first.
        noises: by share.
        optimizer: makes one for a network.
        schedule: share of training done → factor of the learning rate.
        classes, epochs, batch, trials, validation, seed: as asked for.
        device, precision, augment, graphs, compile: how ``fit`` is called.
        folder: of the study.
        checkpoints: whether runs can go on after a kill.
        side_by_side: runs at a time.
    """

    build: Callable[[], nn.Module]
    losses: Mapping[str, Any]
    train: NetworkRows
    test: NetworkRows | None
    folds: Mapping[str, tuple[Labels, Labels]]
    labels: Labels
    noises: Mapping[float, Noise]
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    schedule: Callable[[float], float]
    classes: int
    epochs: int
    batch: int
    trials: int
    validation: float
    seed: int
    device: torch.device
    precision: Any
    augment: Augment | None
    graphs: bool
    compile: bool
    folder: Path
    checkpoints: bool
    side_by_side: int = 1
    lock: threading.Lock = field(default_factory=threading.Lock)  # global generators, building

    def parts(self, fold: str, noise: float, seed: str) -> Parts:
        """What a seed trains on: the same for every loss."""
        name = f"{fold}/{noise:g}/{seed}"
        return parts_of(
            fold,
            self.folds[fold][0],
            self.labels[: len(self.train)],
            self.noises[noise],
            classes=self.classes,
            share=self.validation,
            seed=self.seed,
            name=name,
        )


def items_of(table: str, plan: Plan, seeds: int) -> list[WorkItem]:
    """An item for each run: the trials of every loss, then its final runs, and the null row's."""
    items = []
    for noise in plan.noises:
        for fold in plan.folds:
            asked = {"table": table, "fold": fold, "noise": noise, "seed": plan.seed}
            runs = [
                ("trial", loss, place)
                for place in range(plan.trials if plan.trials > 1 else 0)
                for loss in plan.losses
            ]
            runs += [
                ("final", loss, seed) for seed in range(seeds) for loss in (*plan.losses, NULL)
            ]
            for kind, loss, place in runs:
                key = f"{table}|{noise:g}|{fold}|{RUN}|{kind}|{loss}|{place}"
                items.append(WorkItem(key, {**asked, "kind": kind, "loss": loss, "place": place}))
    return items


def failed_runs(item: WorkItem, reason: str) -> list[Row]:
    """The rows of a run that gave none."""
    asked = item.payload
    rows = [row_of(item, asked["kind"], asked["loss"], asked["place"], failure=reason)]
    if asked["kind"] == "final" and asked["loss"] == REFERENCE:
        rows.append(row_of(item, "final", STOPPED, asked["place"], failure=reason))
    return rows


class Runs:
    """What carries out the items of a study, several side by side; see ``run_items``.

    Args:
        plan: of the study.
        stored: rows of trials that are done.
    """

    def __init__(self, plan: Plan, stored: Sequence[Row]) -> None:
        self.plan = plan
        self.trials = {row.key: row for row in stored if row.kind == "trial"}
        self._stop = threading.Event()

    def __call__(
        self, items: Sequence[WorkItem], stopped: Callable[[], bool]
    ) -> Iterator[tuple[WorkItem, Reply] | float | None]:
        """Replies as runs end, and between them how many are under way."""
        waiting, most = list(items), self.plan.side_by_side
        running: dict[Future[Reply], tuple[WorkItem, dict[str, float]]] = {}
        with ThreadPoolExecutor(most) as pool:
            try:
                while running or (waiting and not stopped()):
                    while waiting and len(running) < most and not stopped():
                        trials = any(one.payload["kind"] == "trial" for one, _ in running.values())
                        if trials and waiting[0].payload["kind"] == "final":
                            break  # whose learning rate they choose
                        item, told = waiting.pop(0), {"done": 0.0}
                        running[pool.submit(self._reply, item, told)] = item, told
                    done, _ = wait(running, POLL, FIRST_COMPLETED)
                    for future in done:
                        item, _ = running.pop(future)
                        if isinstance(future.exception(), Stopped):
                            continue
                        reply = future.result()
                        self.trials |= {r.key: r for r in reply.rows if r.kind == "trial"}
                        yield item, reply
                        shutil.rmtree(self._folder(item), ignore_errors=True)
                    if stopped():
                        self._stop.set()
                    yield float(sum(told["done"] for _, told in running.values()))
            finally:
                self._stop.set()

    def _reply(self, item: WorkItem, told: dict[str, float]) -> Reply:
        def tell(done: float) -> None:
            told["done"] = done
            if self._stop.is_set():
                raise Stopped

        return run_item(lambda item, _: self.run(item, tell), item, {}, every_thread=True)

    def _folder(self, item: WorkItem) -> Path:
        """Of a run's checkpoint."""
        return self.plan.folder / "runs" / f"{seed_of(0, item.key):x}"

    def factor(self, item: WorkItem, loss: str) -> float:
        """Of the learning rate: a trial's own, or what the trials of the loss chose."""
        asked = item.payload
        if asked["kind"] == "trial":
            return FACTORS[asked["place"]]
        same = (asked["table"], asked["fold"], asked["noise"], loss)
        found = [
            row
            for row in self.trials.values()
            if (row.table, row.fold, row.noise, row.loss) == same
        ]
        found.sort(key=lambda row: int(row.key.rpartition("|")[2]))
        if not found:
            return 1.0
        taught = self.plan.parts(asked["fold"], asked["noise"], "trial").labels
        none = np.zeros(0, np.bool_)
        right = [
            none if said is None else said.predicted == taught[said.rows]
            for said in (row.predictions for row in found)
        ]
        place = best_trial(found, right)
        if place is None:
            raise FloatingPointError("every trial diverged")
        return float(found[place].numbers["factor"])

    def run(self, item: WorkItem, tell: Callable[[float], object]) -> list[Row]:
        """Train one network and score it; the rows of its readings."""
        asked, plan = item.payload, self.plan
        trial, null = asked["kind"] == "trial", asked["loss"] == NULL
        loss = REFERENCE if null else asked["loss"]
        label = "trial" if trial else str(asked["place"])
        parts = plan.parts(asked["fold"], asked["noise"], label)
        factor = self.factor(item, loss)
        name = f"{asked['fold']}/{asked['noise']:g}/{label}{'/null' if null else ''}"
        seed = seed_of(plan.seed, name)
        with plan.lock, caller_randomness_kept(plan.device):
            reseed(seed, "weights", plan.device)
            model = plan.build().to(plan.device)
        optimizer = plan.optimizer(model)
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * factor
        rate = float(optimizer.param_groups[0]["lr"])
        function, normalised = make_loss(plan.losses[loss], plan.classes)
        read = Reader(plan, parts)
        training = read.training()
        total = plan.epochs * len(training)
        start = time.perf_counter()
        result = fit(
            model,
            (training, read.held()),
            function,
            epochs=plan.epochs,
            optimizer=optimizer,
            scheduler=LambdaLR(optimizer, lambda step: plan.schedule(min(1.0, step / total))),
            scheduler_every="step",
            normalizer=GradientNormalizer(optimizer) if normalised else None,
            device=plan.device,
            precision=plan.precision,
            compile=plan.compile,
            checkpoint=self._folder(item) if plan.checkpoints else None,
            checkpoint_seconds=CHECKPOINT_SECONDS,
            weights="last" if trial else "both",
            watch=read.wrong(),
            channels_last=plan.device.type == "cuda" and plan.train.pictures,
            graphs=plan.graphs,
            seed=seed,
            progress=tell,
        )
        history = result.history
        more: dict[str, Any] = {
            "numbers": {"learning_rate": rate, "factor": factor, "epochs": plan.epochs},
            "curves": _curves(history),
            "seconds": time.perf_counter() - start,
        }
        held = read.logits(model, read.held())
        taught = parts.labels[parts.held]
        if not np.isfinite(held).all():
            return failed_runs(item, "logits of validation rows are not finite")
        if trial:
            metrics, said = judge(held, Calibration(), parts.held, taught)
            metrics = {
                "validation_accuracy": metrics["accuracy"],
                "validation_loss": history[-1].validation_loss or 0.0,
            }
            return [row_of(item, "trial", loss, asked["place"], metrics=metrics, predictions=said,
                           **more)]  # fmt: skip
        best = result.best_epoch or plan.epochs
        rows = []
        last, early = read.score(model, _calibrated(held, taught)), None
        if result.best_weights is not None:
            model.load_state_dict(result.best_weights)
            early = read.score(model, _calibrated(read.logits(model, read.held()), taught))
        readings = [(asked["loss"], last, history[-1])]
        if asked["loss"] == REFERENCE:
            readings.append((STOPPED, early, history[best - 1]))
        for called, reading, record in readings:
            if reading is None:
                rows.append(row_of(item, "final", called, asked["place"],
                                   failure="logits of test rows are not finite"))  # fmt: skip
                continue
            metrics, said = reading
            metrics = metrics | {
                "train_accuracy": record.accuracy,
                "validation_accuracy": record.validation_accuracy or 0.0,
                **({STOPPED_ACCURACY: early[0]["accuracy"]} if early else {}),
                **{f"{name}_accuracy": share for name, share in record.watched.items()},
            }
            numbers = {**more["numbers"], "stopped_at": record.epoch / plan.epochs}
            own = {**more, "numbers": numbers, "metrics": metrics, "predictions": said}
            if called == STOPPED:
                own["seconds"] = 0.0  # it came with the other
            rows.append(row_of(item, "final", called, asked["place"], **own))
        return rows


def _calibrated(logits: NDArray[np.float64], labels: Labels) -> Calibration:
    """Fitted on one thread: for a problem of two numbers others only wait for each other."""
    with threadpool_limits(1, user_api="blas"):
        return fit_calibration(logits, labels, np.ones(len(labels)))


class Reader:
    """The rows of a run, as ``fit`` and the scoring read them.

    Args:
        plan: of the study.
        parts: what the run trains on.
    """

    def __init__(self, plan: Plan, parts: Parts) -> None:
        self.plan, self.parts = plan, parts
        self.scaling = plan.train.scaling(parts.train)

    def _of(self, rows: Labels, **how: Any) -> Any:
        labels = self.parts.labels[rows]
        return self.plan.train.loader_of(
            rows, labels, batch=self.plan.batch, scaling=self.scaling, **how
        )

    def training(self) -> Any:
        """In another order each epoch."""
        return self._of(
            self.parts.train, train=True, augment=self.plan.augment, whole=self.plan.graphs
        )

    def held(self) -> Any:
        """The rows that were held out, with the labels that training has."""
        return self._of(self.parts.held)

    def wrong(self) -> dict[str, Any]:
        """Training rows whose label was spoilt, with that label; nothing without noise."""
        own = self.parts.train
        wrong = own[self.parts.labels[own] != self.plan.labels[own]]
        return {WRONG: self._of(wrong)} if len(wrong) else {}

    def score(
        self, model: nn.Module, calibration: Calibration
    ) -> tuple[dict[str, float], Predictions] | None:
        """What a network says of the test rows; None if that is no number."""
        plan = self.plan
        numbers = plan.folds[self.parts.fold][1]
        if plan.test is None:
            loader = plan.train.loader_of(
                numbers, plan.labels[numbers], batch=plan.batch, scaling=self.scaling
            )
        else:
            loader = plan.test.loader_of(
                numbers - len(plan.train), plan.labels[numbers], batch=plan.batch,
                scaling=self.scaling,
            )  # fmt: skip
        logits = self.logits(model, loader)
        if not np.isfinite(logits).all():  # whose argmax would be a class
            return None
        return judge(logits, calibration, numbers, plan.labels[numbers])

    @torch.no_grad()
    def logits(self, model: nn.Module, loader: Any) -> NDArray[np.float64]:
        """Of all rows of a loader, in its order."""
        plan, half = self.plan, PRECISIONS[self.plan.precision]
        model.eval()
        found = []
        loader = loader.to(plan.device) if isinstance(loader, ResidentData) else loader
        for inputs, _ in loader:
            with torch.autocast(plan.device.type, half, enabled=half is not None):
                given = inputs.to(plan.device) if isinstance(inputs, torch.Tensor) else inputs
                found.append(model(given).double().cpu())
        return torch.cat(found).numpy()


def _curves(history: Sequence[EpochRecord]) -> dict[str, tuple[float, ...]]:
    curves = {
        "validation_accuracy": [record.validation_accuracy or 0.0 for record in history],
        "train_accuracy": [record.accuracy for record in history],
        "validation_loss": [record.validation_loss or 0.0 for record in history],
    }
    for name in history[0].watched:
        curves[f"{name}_accuracy"] = [record.watched[name] for record in history]
    return {name: thinned(values) for name, values in curves.items()}
