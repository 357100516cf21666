"""What is known of every run as it trains: curves, its best epoch, and who is to leave."""

from collections.abc import Iterator

import torch
from torch import Tensor

from expacc.training.layers import Network
from expacc.training.loss_slopes import Batch
from expacc.training.runs import Run, RunResult, TensorTable, TrainConfig, Trained

_MOST = 1 << 22  # logits evaluated at once


def accuracy_and_loss(
    network: Network, theta: Tensor, rows: TensorTable, chosen: Tensor
) -> tuple[Tensor, Tensor]:
    """Accuracy and mean cross entropy, (R) each, of parameters (R, P) on the chosen rows."""
    weights = network.views(theta)
    right = theta.new_zeros(len(theta))
    loss = theta.new_zeros(len(theta), dtype=torch.float64)
    most = max(1, _MOST // (len(theta) * max(weights[0].shape[1:])))
    for part in torch.split(chosen, most):
        logits = network.evaluate(weights, rows.features[part])
        labels = rows.labels[part].expand(len(theta), 1, -1)
        own = logits.gather(1, labels)
        # Right if no other class is level or above: much faster than argmax over a middle axis.
        right += ((logits >= own).sum(1) == 1).sum(1)
        loss += (torch.logsumexp(logits, 1) - own.squeeze(1)).sum(1).double()
    return right / len(chosen), loss / len(chosen)


class Norms:
    """The mean of ‖dL/dlogits‖ over the rows of an epoch, by run."""

    def __init__(self, theta: Tensor) -> None:
        self.sum = theta.new_zeros(len(theta))
        self.weight = torch.zeros_like(self.sum)

    def add(self, slope: Tensor, batch: Batch) -> None:
        """Note the slopes (R, C, B) of a step, which hold each row's share of the mean."""
        total = batch.total.view(-1) if isinstance(batch.total, Tensor) else batch.total
        some = slice(len(slope))  # groups whose rows are used up have none
        self.sum[some] += torch.linalg.vector_norm(slope, dim=1).sum(1).mul_(total)
        self.weight[some] += total

    def mean(self) -> Tensor:
        """(R)."""
        return self.sum / self.weight


class Record:
    """Curves and kept weights of R runs.

    Args:
        runs: in the order of the parameters' rows.
        config: says what to evaluate, and when to stop.
        network: reads the parameters.
        rows: as the loop has them.
    """

    def __init__(
        self, runs: list[Run], config: TrainConfig, network: Network, rows: TensorTable
    ) -> None:
        self.runs, self.config, self.network, self.rows = runs, config, network, rows
        self.alive = list(range(len(runs)))  # the run of each row of the parameters
        self.results: dict[int, RunResult] = {}
        self.curves: list[dict[str, list[float]]] = [{} for _ in runs]
        self.best_score = [-1.0] * len(runs)
        self.best_epoch = [0] * len(runs)
        self.best: dict[int, Tensor] = {}
        self.every: list[list[Trained]] = [[] for _ in runs]
        self.at_stop: dict[int, Trained] = {}
        validated = any(run.validation is not None for run in runs)
        self.watched = config.patience is not None or config.keep in ("best", "latest best")
        self.look_at = [
            name
            for name in ("validation", "train")
            if name in config.curves or (name == "validation" and self.watched and validated)
        ]

    def epoch(
        self,
        epoch: int,
        theta: Tensor,
        good_steps: Tensor,
        steps: int,
        norms: Norms | None = None,
    ) -> list[int]:
        """Note the end of an epoch (from 1) and return the places of the runs that go on."""
        good = good_steps.tolist()
        here = [place for place, run in enumerate(self.alive) if run not in self.results]
        fine = [place for place in here if good[place] == steps]
        if norms is not None:
            for place, norm in zip(fine, norms.mean()[fine].tolist(), strict=True):
                self.curves[self.alive[place]].setdefault("gradient_norm", []).append(norm)
        due = epoch % self.config.every == 0 or epoch == self.config.epochs
        for name in self.look_at:
            if due or (self.watched and name == "validation"):
                self._look(name, fine, theta)
        going = []
        for place in here:
            run = self.alive[place]
            if good[place] != steps:
                self.results[run] = self._result(run, epoch, None, failed_step=good[place] + 1)
                continue
            if self.config.keep == "every" and due:
                self.every[run].append(self.network.trained(theta[place]))
            improved = self._note_best(run, epoch, theta[place])
            patience = self.config.patience
            bored = (
                patience is not None
                and not improved
                and self.runs[run].validation is not None
                and epoch >= self.config.min_epochs
                and epoch - self.best_epoch[run] >= patience
            )
            if bored or epoch == self.config.epochs:
                kept = self.best.get(run, theta[place])
                self.results[run] = self._result(run, epoch, kept, stopped=bored)
            else:
                going.append(place)
        return going

    def leave(self, going: list[int]) -> None:
        """Only the runs at these places have parameters from now on."""
        self.alive = [self.alive[place] for place in going]

    def accuracy_so_far(self) -> dict[str, float]:
        """The mean over the runs that go on, on their validation rows; empty if there are none."""
        last = [
            self.curves[run]["validation_accuracy"][-1]
            for run in self.alive
            if run not in self.results and "validation_accuracy" in self.curves[run]
        ]
        return {"accuracy": sum(last) / len(last)} if last else {}

    def _look(self, name: str, fine: list[int], theta: Tensor) -> None:
        for places, chosen in self._together(name, fine):
            accuracy, loss = accuracy_and_loss(self.network, theta[places], self.rows, chosen)
            for place, right, nats in zip(places, accuracy.tolist(), loss.tolist(), strict=True):
                curves = self.curves[self.alive[place]]
                curves.setdefault(f"{name}_accuracy", []).append(right)
                curves.setdefault(f"{name}_loss", []).append(nats)

    def _together(self, name: str, fine: list[int]) -> Iterator[tuple[list[int], Tensor]]:
        """Places of runs that look at the very same rows, and those rows: one matmul for all."""
        groups: dict[tuple[int, int], tuple[list[int], Tensor]] = {}
        for place in fine:
            run = self.runs[self.alive[place]]
            chosen = run.validation if name == "validation" else run.rows
            if chosen is not None and len(chosen):
                groups.setdefault((chosen.data_ptr(), len(chosen)), ([], chosen))[0].append(place)
        for places, chosen in groups.values():
            yield places, chosen.to(self.rows.labels.device)

    def _note_best(self, run: int, epoch: int, theta: Tensor) -> bool:
        scores = self.curves[run].get("validation_accuracy")
        if self.runs[run].stop == epoch:
            self.at_stop[run] = self.network.trained(theta)
        if not self.watched or not scores:
            self.best_epoch[run] = epoch
            return True
        level = self.config.keep == "latest best" and scores[-1] == self.best_score[run]
        if scores[-1] <= self.best_score[run] and not level:
            return False
        self.best_score[run], self.best_epoch[run] = scores[-1], epoch
        if self.config.keep in ("best", "latest best"):
            self.best[run] = theta.clone()
        return True

    def _result(
        self,
        run: int,
        epoch: int,
        theta: Tensor | None,
        *,
        stopped: bool = False,
        failed_step: int | None = None,
    ) -> RunResult:
        self.best.pop(run, None)
        return RunResult(
            key=self.runs[run].key,
            model=None if theta is None else self.network.trained(theta),
            epochs=epoch,
            best_epoch=epoch if self.config.keep in ("last", "every") else self.best_epoch[run],
            stopped=stopped,
            failed_step=failed_step,
            curves={name: tuple(values) for name, values in self.curves[run].items()},
            every=tuple(self.every[run]),
            at_stop=self.at_stop.pop(run, None),
        )
