"""One step of many contenders on the same batches: products, slopes, momentum."""

from collections.abc import Sequence

import torch
from torch import Tensor

from expacc.recipes.mixing.arms import Contender
from expacc.recipes.mixing.graph import StepGraph, block_size
from expacc.training import Layer, TensorTable, Trained
from expacc.training.layers import Network
from expacc.training.loss_slopes import CURVES

__all__ = ["Steps", "Weights"]

MOMENTUM = 0.9
_MANY = 1024  # weights of one rate in a row, from which on reading the rate for each costs more


class Weights:
    """The weights of G·K runs, one block per layer, the bias as its last column.

    A linear model is (G, C, K, F + 1): classes before contenders, so that a softmax over classes
    has long rows. A hidden layer is (G, K, H, F + 1) with (G, K, C, H + 1) above it.

    Args:
        network: the architecture.
        start: (G, P), as ``Network.start`` gives it; all contenders of a group begin there.
        contenders: how many.
    """

    def __init__(self, network: Network, start: Tensor, contenders: int) -> None:
        self.linear = len(network.shapes) == 1
        self.groups, self.contenders, self.classes = len(start), contenders, network.classes
        axis = 2 if self.linear else 1
        self.blocks = [
            layer.unsqueeze(axis).repeat_interleave(contenders, axis)
            for layer in network.views(start)
        ]
        self.velocities = [torch.zeros_like(block) for block in self.blocks]

    def spread(self, numbers: Tensor) -> Tensor:
        """(G, K) or (1, K) numbers in the axes of a block."""
        return numbers[:, None, :, None] if self.linear else numbers[:, :, None, None]

    def push(self, layer: int, groups: int, slope: Tensor, inputs: Tensor) -> None:
        """Add slope @ inputs, a layer's gradient, to the velocities of the first so many groups.

        Both as products of matrices take them: (n, out, B) and (n, B, in).
        """
        velocity = self.velocities[layer][:groups]
        velocity.view(len(slope), -1, velocity.shape[3]).baddbmm_(slope, inputs, beta=MOMENTUM)

    def move(self, rates: Sequence[Tensor], groups: int) -> None:
        """Follow the velocities of the first so many groups, at the rates of each block."""
        for block, velocity, rate in zip(self.blocks, self.velocities, rates, strict=True):
            if groups < self.groups:
                block, velocity = block[:groups], velocity[:groups]
                rate = rate[: min(groups, len(rate))]
            block.addcmul_(velocity, rate, value=-1)

    def finite(self) -> Tensor:
        """(G, K): whether all weights of a run are finite."""
        axes = (1, 3) if self.linear else (2, 3)
        sums = [block.sum(axes) for block in self.blocks]  # inf and NaN stay what they are
        return torch.stack([torch.isfinite(each) for each in sums]).all(0)

    def accuracy(self, rows: TensorTable, group: int, chosen: Tensor) -> Tensor:
        """(K): the accuracy of a group's runs on the chosen rows."""
        inputs, labels = rows.features[chosen], rows.labels[chosen]
        first = self.blocks[0][group]
        if self.linear:
            logits = torch.matmul(first.flatten(0, 1), inputs.t()).view(*first.shape[:2], -1)
            axis, index = 0, labels.expand(1, self.contenders, -1)
        else:
            units = torch.matmul(first.flatten(0, 1), inputs.t()).view(*first.shape[:2], -1).relu_()
            second = self.blocks[1][group]
            logits = torch.baddbmm(second[:, :, -1:], second[:, :, :-1], units)
            axis, index = 1, labels.expand(self.contenders, 1, -1)
        own = logits.gather(axis, index)
        # Right if no other class is level or above: much faster than argmax over such an axis.
        return ((logits >= own).sum(axis) == 1).to(inputs.dtype).mean(1)

    def models(self, blocks: Sequence[Tensor]) -> list[list[Trained]]:
        """Blocks of these shapes as models on the CPU, by group and contender."""
        host = [block.cpu() for block in blocks]
        found = []
        for group in range(self.groups):
            models = []
            for number in range(self.contenders):
                parts = [block[group, :, number] if self.linear else block[group, number]
                         for block in host]  # fmt: skip
                layers = [Layer(part[:, :-1].clone(), part[:, -1].clone()) for part in parts]
                models.append(Trained(tuple(layers)))
            found.append(models)
        return found


class Steps:
    """The steps of an epoch.

    Args:
        rows: features with the constant 1 as their last column, and labels.
        weights: of all runs; moved in place.
        contenders: their losses and learning rates; those with the focal loss stand together.
        epochs: how many.
        batch: rows a step.
    """

    def __init__(
        self,
        rows: TensorTable,
        weights: Weights,
        contenders: Sequence[Contender],
        epochs: int,
        batch: int,
    ) -> None:
        self.rows, self.weights, self.batch = rows, weights, batch
        like = rows.features
        focal = [number for number, one in enumerate(contenders) if one.weights is None]
        self.focal = slice(focal[0], focal[-1] + 1) if focal else slice(0, 0)
        pairs = [one.weights or [(0.0, 0.0)] * epochs for one in contenders]
        # (epochs, 2, K): ce_weight and error_weight; (epochs, 1, K): rates.
        self.pairs = torch.tensor(pairs, dtype=torch.float64).permute(1, 2, 0).to(like)
        rates = torch.tensor([one.rates for one in contenders], dtype=torch.float64)
        self.rates = rates.t().unsqueeze(1).contiguous().to(like)
        some = contenders[focal[0]] if focal else contenders[0]
        self.numbers = {"gamma": like.new_tensor(some.gamma), "alpha": like.new_tensor(some.alpha)}
        # What a step reads of the epoch, at places that stay.
        self.rate = [self._rate_like(block) for block in weights.blocks]
        self.mix = {
            name: like.new_empty(1, 1, weights.contenders * batch)
            for name in ("ce_weight", "error_weight")
        }
        self.room: Tensor | None = None
        self.shares: dict[int, Tensor] = {}  # of the steps that are not full; the same each epoch
        self.graph: StepGraph | None = None

    def _rate_like(self, block: Tensor) -> Tensor:
        """Room for the rates: one for each weight, unless there are many of one rate together."""
        inner = block.shape[3] if self.weights.linear else block.shape[2] * block.shape[3]
        if inner < _MANY:
            return torch.empty_like(block)
        return self.weights.spread(block.new_empty(1, self.weights.contenders))

    def epoch(self, epoch: int, order: Tensor, lengths: Sequence[int]) -> None:
        """Take all steps of an epoch, from 0.

        Args:
            epoch: which.
            order: (G, rows) row numbers, each group's own first.
            lengths: how many are its own, the most first.
        """
        for rate in self.rate:
            rate.copy_(self.weights.spread(self.rates[epoch]))
        for name, numbers in zip(self.mix, self.pairs[epoch], strict=True):
            # One for each contender's row of a batch.
            self.mix[name].copy_(numbers.repeat_interleave(self.batch))
        size, longest, shortest = self.batch, lengths[0], lengths[-1]
        full = shortest // size
        if full:
            steps = order[:, : full * size].reshape(len(order), full, size)
            steps = steps.transpose(0, 1).contiguous()
            labels = self.rows.labels[steps]
            for step in range(self._replayed(epoch, steps, labels), full):
                self.take(steps[step], labels[step])
        for low in range(full * size, longest, size):
            self._take_part(order, low, lengths)

    def _replayed(self, epoch: int, steps: Tensor, labels: Tensor) -> int:
        """Take steps from the first on as a recording, on a GPU; how many were taken."""
        if not steps.is_cuda or epoch == 0:  # the first epoch makes everything ready to record
            return 0
        if self.graph is None:
            self.graph = StepGraph(self.take, steps[: block_size(len(steps))])
        return self.graph.replay(steps, labels)

    def _take_part(self, order: Tensor, low: int, lengths: Sequence[int]) -> None:
        """A step from place ``low`` on, in which some groups have few rows left, or none."""
        groups = sum(length > low for length in lengths)
        chosen = order[:groups, low : low + self.batch]
        if chosen.shape[1] < self.batch:
            chosen = torch.nn.functional.pad(chosen, (0, self.batch - chosen.shape[1]))
        if low not in self.shares:
            left = torch.tensor([min(length - low, self.batch) for length in lengths[:groups]])
            inside = torch.arange(self.batch) < left.unsqueeze(1)
            self.shares[low] = (inside / left.unsqueeze(1)).to(self.rows.features)
        self.take(chosen, self.rows.labels[chosen], self.shares[low])

    def take(self, order: Tensor, labels: Tensor, share: Tensor | None = None) -> None:
        """One step of the first groups on rows (g, B); ``share`` is each row's part of the mean."""
        groups, size = order.shape
        weights = self.weights
        inputs = self.rows.features.index_select(0, order.reshape(-1)).view(groups, size, -1)
        columns = inputs.transpose(1, 2)
        first = weights.blocks[0][:groups]
        below = torch.bmm(first.view(groups, -1, first.shape[3]), columns)
        if weights.linear:
            scores = below.view(groups, weights.classes, -1)
            slope = self._slope(scores, labels, share)
            weights.push(0, groups, slope.view(groups, -1, size), inputs)
        else:
            runs = groups * weights.contenders
            units = below.view(runs, -1, size)
            room = self._room(runs, units)
            active = room[:, :-1]
            torch.clamp(units, min=0, out=active)
            second = weights.blocks[1][:groups].flatten(0, 1)
            scores = torch.bmm(second, room).view(groups, -1, weights.classes, size)
            scores = scores.transpose(1, 2).reshape(groups, weights.classes, -1)
            slope = self._slope(scores, labels, share).view(groups, weights.classes, -1, size)
            slope = slope.transpose(1, 2).reshape(runs, weights.classes, size)
            weights.push(1, groups, slope, room.transpose(1, 2))
            back = torch.bmm(second[:, :, :-1].transpose(1, 2), slope).mul_(active > 0)
            weights.push(0, groups, back.view(groups, -1, size), inputs)
        weights.move(self.rate, groups)

    def _room(self, runs: int, units: Tensor) -> Tensor:
        """(runs, H + 1, B): the hidden units, and a row that stays 1 for the next layer's bias."""
        if self.room is None:
            every = self.weights.groups * self.weights.contenders
            self.room = units.new_ones(every, units.shape[1] + 1, units.shape[2])
        return self.room[:runs]

    def _slope(self, scores: Tensor, labels: Tensor, share: Tensor | None) -> Tensor:
        """dL/dscores (g, C, K·B), as ``expacc.training.loss_slopes`` has it; in place."""
        groups, _, wide = scores.shape
        contenders = self.weights.contenders
        index = labels.unsqueeze(1).expand(-1, contenders, -1).reshape(groups, 1, wide)
        log_probs = scores.log_softmax(1)
        own = log_probs.gather(1, index)
        lift = CURVES["mixed_expected_error"](own, self.mix)
        if self.focal.stop:
            by_run = (view.view(groups, contenders, -1)[:, self.focal] for view in (lift, own))
            into, some = by_run
            into.copy_(CURVES["focal"](some, self.numbers))
        if share is None:
            lift.mul_(1 / self.batch)
        else:
            lift.view(groups, contenders, -1).mul_(share.unsqueeze(1))
        return log_probs.exp_().mul_(lift).scatter_add_(1, index, lift.neg_())
