"""The rows of a network's run: read for training, for its curves, and for one score at the end."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-not-found,import-untyped,unused-ignore]
from torch import nn

from expacc.compare.networks_data import Labels
from expacc.compare.networks_noise import Parts
from expacc.compare.networks_plan import Plan
from expacc.compare.references import judge
from expacc.compare.trials import thinned
from expacc.estimator.calibration import Calibration, fit_calibration
from expacc.runner.rows import Predictions
from expacc.training import EpochRecord, ResidentData
from expacc.training.epochs import PRECISIONS
from expacc.training.loaders import map_tensors

MOST_WATCHED = 4096  # wrong labels: enough to know their share to a point
WRONG = "wrong_label"  # what is watched: how many wrong labels are learnt


def calibrated(logits: NDArray[np.float64], labels: Labels) -> Calibration:
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
        """Training rows whose label was spoilt, with that label; nothing without noise.

        Of many some, at even distances: they are looked at after every epoch.
        """
        own = self.parts.train
        wrong = own[self.parts.labels[own] != self.plan.labels[own]]
        places = np.linspace(0, len(wrong) - 1, min(len(wrong), MOST_WATCHED)).astype(np.int64)
        return {WRONG: self._of(wrong[places])} if len(wrong) else {}

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
                given = map_tensors(lambda tensor: tensor.to(plan.device), inputs)
                found.append(model(given).double().cpu())
        return torch.cat(found).numpy()


def curves_of(history: Sequence[EpochRecord]) -> dict[str, tuple[float, ...]]:
    """Accuracies and the validation loss, epoch by epoch."""
    curves = {
        "validation_accuracy": [record.validation_accuracy or 0.0 for record in history],
        "train_accuracy": [record.accuracy for record in history],
        "validation_loss": [record.validation_loss or 0.0 for record in history],
    }
    for name in history[0].watched:
        curves[f"{name}_accuracy"] = [record.watched[name] for record in history]
    return {name: thinned(values) for name, values in curves.items()}
