"""The runs of a study of a user's own network: one trains, is watched, and is scored once."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim.lr_scheduler import LambdaLR

from expacc.compare.networks_losses import make_loss
from expacc.compare.networks_plan import FACTORS, Plan, failed_runs
from expacc.compare.networks_reading import Reader, calibrated, curves_of
from expacc.compare.references import judge
from expacc.compare.serialize import row_of
from expacc.compare.standing import STOPPED_ACCURACY
from expacc.compare.trials import best_trial
from expacc.estimator.calibration import Calibration
from expacc.optim import GradientNormalizer
from expacc.report.words import NULL, REFERENCE, STOPPED
from expacc.runner.items import Reply, WorkItem, run_item
from expacc.runner.rows import Row
from expacc.training import FitResult, fit
from expacc.training.randomness import caller_randomness_kept, reseed, seed_of

CHECKPOINT_SECONDS = 30.0
CLEARLY = 2.0  # standard errors: all final runs share the choice, so its luck would be a claim
POLL = 0.1  # seconds between two looks at how far runs are


class Stopped(BaseException):
    """Ctrl-C, told to a run in a thread: no failure of the run."""


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

        own_stream: Any = nullcontext()
        if self.plan.device.type == "cuda" and self.plan.side_by_side > 1:
            own_stream = torch.cuda.stream(
                torch.cuda.Stream(self.plan.device)  # type: ignore[no-untyped-call]
            )
        with own_stream:
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
        place = best_trial(found, right, errors=CLEARLY)
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
        start = time.perf_counter()
        with plan.lock, caller_randomness_kept(plan.device):
            reseed(seed, "weights", plan.device)
            model = plan.build().to(plan.device)
            if any(map(is_lazy, model.parameters())):  # drawn when they see a first row
                with torch.no_grad():
                    model(plan.train.example(plan.device))
            if plan.channels_last:  # before the optimizer, which may keep copies
                model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimizer = plan.optimizer(model)
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * factor
        numbers = {
            "learning_rate": float(optimizer.param_groups[0]["lr"]),
            "factor": factor,
            "epochs": plan.epochs,
        }
        read = Reader(plan, parts)
        try:
            result = self._fit(item, model, optimizer, read, loss, seed, tell)
        except FloatingPointError as error:
            return failed_runs(item, str(error).partition(" The last checkpoint")[0])
        held, taught = read.logits(model, read.held()), parts.labels[parts.held]
        if not np.isfinite(held).all():
            return failed_runs(item, "logits of validation rows are not finite")
        history = result.history
        more: dict[str, Any] = {"curves": curves_of(history)}
        if trial:
            scores, said = judge(held, Calibration(), parts.held, taught)
            metrics = {
                "validation_accuracy": scores["accuracy"],
                "validation_loss": history[-1].validation_loss or 0.0,
            }
            more |= {"numbers": numbers, "seconds": time.perf_counter() - start}
            return [
                row_of(
                    item, "trial", loss, asked["place"], metrics=metrics, predictions=said, **more
                )
            ]
        last = read.score(model, calibrated(held, taught))
        model.load_state_dict(result.best_weights or {})
        early = read.score(model, calibrated(read.logits(model, read.held()), taught))
        if last is None or early is None:
            return failed_runs(item, "logits of test rows are not finite")
        readings = [(asked["loss"], last, history[-1], time.perf_counter() - start)]
        if asked["loss"] == REFERENCE:  # which comes with the other
            readings.append((STOPPED, early, history[(result.best_epoch or 1) - 1], 0.0))
        rows = []
        for called, (scores, said), record, seconds in readings:
            metrics = scores | {
                "train_accuracy": record.accuracy,
                "validation_accuracy": record.validation_accuracy or 0.0,
                STOPPED_ACCURACY: early[0]["accuracy"],
                **{f"{name}_accuracy": share for name, share in record.watched.items()},
            }
            more |= {
                "numbers": {**numbers, "stopped_at": record.epoch / plan.epochs},
                "metrics": metrics,
                "predictions": said,
                "seconds": seconds,
            }
            rows.append(row_of(item, "final", called, asked["place"], **more))
        return rows

    def _fit(
        self,
        item: WorkItem,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        read: Reader,
        loss: str,
        seed: int,
        tell: Callable[[float], object],
    ) -> FitResult:
        plan, training = self.plan, read.training()
        function, normalised = make_loss(plan.losses[loss], plan.classes)
        total = plan.epochs * len(training)
        return fit(
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
            weights="both",
            watch=read.wrong(),
            channels_last=plan.channels_last,
            graphs=plan.graphs,
            seed=seed,
            progress=tell,
        )
