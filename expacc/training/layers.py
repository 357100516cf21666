"""The parameters of many models in one tensor: forward and backward passes, and the optimisers.

All parameters of R runs are one (R, P) tensor, so an optimiser is a few operations whatever the
model, and every number is the run's own. Activations are laid out (runs, units, rows): the losses
then reduce over classes with rows contiguous, several times as fast as classes last. The bias is a
column of its layer's weight, fed by a constant 1 among the features, and costs no operation of its
own.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor

from expacc.training.randomness import stream_keys, uniform
from expacc.training.runs import Layer, Model, Optimizer, Run, Trained

_LARGE = 4096  # weights of a layer, from which on copying them is slower than a product of its own


class Network:
    """R models of one architecture.

    Args:
        model: the architecture.
        features: without the constant.
        classes: of the logits, the fixed one included.
    """

    def __init__(self, model: Model, features: int, classes: int) -> None:
        self.model = model
        self.classes = classes
        self.fixed = int(model.fixed_first)
        widths = (features, *model.hidden, classes - self.fixed)
        self.shapes = [(out, into + 1) for into, out in pairwise(widths)]
        ends = [0]
        for out, into in self.shapes:
            ends.append(ends[-1] + out * into)
        self.spans = list(pairwise(ends))
        self.size = ends[-1]

    def start(self, seeds: Tensor, dtype: torch.dtype) -> Tensor:
        """Initial parameters (R, P): uniform in ±1/√inputs, as nn.Linear, or zeros."""
        theta = torch.zeros(len(seeds), self.size, dtype=dtype, device=seeds.device)
        if self.model.start == "zeros":
            return theta
        for index, ((low, high), (_, into)) in enumerate(zip(self.spans, self.shapes, strict=True)):
            keys = stream_keys(seeds, "weights", index)
            bound = 1 / math.sqrt(max(1, into - 1))
            theta[:, low:high] = uniform(keys, high - low, dtype).mul_(2 * bound).sub_(bound)
        return theta

    def put(self, model: Trained, theta: Tensor) -> None:
        """Write a trained model into one run's parameters (P)."""
        for weight, layer in zip(self.views(theta.unsqueeze(0)), model.layers, strict=True):
            last = layer is model.layers[-1]
            # Only differences between logits count: the fixed one is moved to 0.
            low = self.fixed if last else 0
            matrix = layer.weight[low:] - layer.weight[:1] if low else layer.weight
            bias = layer.bias[low:] - layer.bias[:1] if low else layer.bias
            weight[0, :, :-1], weight[0, :, -1] = matrix, bias

    def fits(self, model: Trained) -> bool:
        """Whether a trained model has this architecture."""
        shapes = [(out, into - 1) for out, into in self.shapes]
        shapes[-1] = (shapes[-1][0] + self.fixed, shapes[-1][1])
        return [tuple(layer.weight.shape) for layer in model.layers] == shapes

    def decays(self, device: torch.device, dtype: torch.dtype) -> Tensor:
        """(P): 1 for weights, 0 for biases."""
        mask = torch.ones(self.size, dtype=dtype, device=device)
        for (low, high), (out, into) in zip(self.spans, self.shapes, strict=True):
            mask[low:high].view(out, into)[:, -1] = 0
        return mask

    def views(self, theta: Tensor) -> list[Tensor]:
        """The layers' weights, (R, out, in + 1) each."""
        return [
            theta[:, low:high].view(-1, out, into)
            for (low, high), (out, into) in zip(self.spans, self.shapes, strict=True)
        ]

    def forward(
        self, weights: list[Tensor], inputs: Tensor, masks: list[Tensor | None] | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Logits (R, C, B) of inputs (R, B, F + 1), and the hidden activations (R, H + 1, B).

        ``masks`` are the dropout factors of the hidden layers, (R, H, B). With fewer inputs than
        runs, (G, B, F + 1), each is that of R/G neighbours.
        """
        runs, rows = len(weights[0]), inputs.shape[1]
        signal = inputs.transpose(1, 2)
        hidden: list[Tensor] = []
        for index, weight in enumerate(weights[:-1]):
            # One row more, which stays 1, for the next layer's bias.
            room = inputs.new_empty(runs, weight.shape[1] + 1, rows)
            units = room[:, :-1]
            # A product straight into a part of a tensor is done run by run, and slow.
            torch.clamp(_product(weight, signal), min=0, out=units)
            mask = masks[index] if masks else None
            if mask is not None:
                units.mul_(mask)
            room[:, -1] = 1
            hidden.append(room)
            signal = room
        if not self.fixed:
            return _product(weights[-1], signal), hidden
        logits = inputs.new_empty(runs, self.classes, rows)
        logits[:, 0] = 0
        logits[:, 1:] = _product(weights[-1], signal)
        return logits, hidden

    def evaluate(self, weights: list[Tensor], features: Tensor) -> Tensor:
        """Logits (R, C, n) of the same features (n, F + 1) under every run's weights."""
        signal = features.t()
        for index, weight in enumerate(weights):
            if index:
                signal = torch.nn.functional.pad(signal.relu(), (0, 0, 0, 1), value=1.0)
            # A matrix times one matrix is one product for all runs; later layers differ by run.
            signal = torch.matmul(weight, signal)
        if self.fixed:
            signal = torch.nn.functional.pad(signal, (0, 0, 1, 0))
        return signal

    def backward(
        self,
        weights: list[Tensor],
        gradients: list[Tensor],
        inputs: Tensor,
        hidden: list[Tensor],
        slope: Tensor,
        masks: list[Tensor | None] | None = None,
    ) -> None:
        """Write the gradient of every weight, given that of the logits (R, C, B)."""
        slope = slope[:, self.fixed :]
        for index in range(len(weights) - 1, 0, -1):
            below = hidden[index - 1]
            _product_into(gradients[index], slope, below.transpose(1, 2))
            slope = torch.bmm(weights[index][:, :, :-1].transpose(1, 2), slope)
            # A unit that is 0 was cut off by ReLU or dropout: nothing flows through it.
            slope.mul_(below[:, :-1] > 0)
            mask = masks[index - 1] if masks else None
            if mask is not None:
                slope.mul_(mask)
        _product_into(gradients[0], slope, inputs)

    def trained(self, theta: Tensor) -> Trained:
        """One run's parameters (P) as layers, on the CPU; a fixed first logit has zero weights."""
        layers = []
        for weight in self.views(theta.detach().cpu().unsqueeze(0)):
            matrix, bias = weight[0, :, :-1].clone(), weight[0, :, -1].clone()
            layers.append(Layer(matrix, bias))
        if self.fixed:
            last = layers[-1]
            layers[-1] = Layer(
                torch.cat([torch.zeros_like(last.weight[:1]), last.weight]),
                torch.cat([torch.zeros_like(last.bias[:1]), last.bias]),
            )
        return Trained(tuple(layers))


def _product(weight: Tensor, signal: Tensor) -> Tensor:
    """weight (R, out, in) @ signal (R, in, B); with (G, in, B), one for R/G neighbours."""
    if len(weight) == len(signal):
        return torch.bmm(weight, signal)
    together = weight.reshape(len(signal), -1, weight.shape[2])
    return torch.bmm(together, signal).view(*weight.shape[:2], -1)


def _product_into(result: Tensor, left: Tensor, right: Tensor) -> None:
    """Write left @ right, run by run; with fewer on the right, one for neighbours, as above.

    A layer's part of all gradients is not contiguous: torch then multiplies one run after the
    other, which for small layers costs more than a copy.
    """
    if len(left) > len(right):
        left = left.reshape(len(right), -1, left.shape[2])
        if result.is_contiguous():
            torch.bmm(left, right, out=result.view(len(right), -1, right.shape[2]))
        else:
            result.copy_(torch.bmm(left, right).view(result.shape))
    elif result.is_contiguous() or result[0].numel() > _LARGE:
        torch.bmm(left, right, out=result)
    else:
        result.copy_(torch.bmm(left, right))


_NORM_DECAY, _NORM_FLOOR = 0.9, 1e-2  # as expacc.GradientNormalizer
_TINY = 1e-8  # Adam's epsilon


class BatchedOptimizer:
    """SGD with momentum, Adam or AdamW, with clipping or normalising per run.

    Args:
        kind: which.
        runs: in the order of the parameters' rows.
        decays: (P), 1 where weight decay applies.
    """

    def __init__(self, kind: Optimizer, runs: list[Run], decays: Tensor) -> None:
        def column(numbers: list[float]) -> Tensor:
            return torch.tensor(numbers, dtype=torch.float64).to(decays).unsqueeze(1)

        self.kind = kind
        self.count = 0
        self.rows = len(runs)
        self.all_normalized = all(run.normalize for run in runs)
        self.state: dict[str, Tensor] = {}
        # Tensors with a run per row; compacted together when runs leave.
        if any(run.weight_decay for run in runs):
            self.state["decay"] = column([run.weight_decay for run in runs]) * decays
        if kind == "sgd":
            self.state["momentum"] = column([run.momentum for run in runs])
        else:
            self.state["beta1"] = column([run.betas[0] for run in runs])
            self.state["beta2"] = column([run.betas[1] for run in runs])
        if any(run.normalize for run in runs):
            self.state["normalized"] = column([float(run.normalize) for run in runs])
        if any(run.clip is not None for run in runs):
            limits = [float("inf") if run.clip is None else run.clip for run in runs]
            self.state["clip"] = column(limits)

    def keep(self, rows: Tensor) -> None:
        """Go on with these runs only."""
        self.state = {name: value[rows] for name, value in self.state.items()}
        self.rows = len(rows)

    def step(self, theta: Tensor, gradient: Tensor, rate: Tensor) -> None:
        """Move ``theta`` in place; ``gradient`` is overwritten. ``rate`` is (R, 1).

        With sgd the first runs may move alone, after a step of all.
        """
        state = self.state
        if theta.shape[0] < self.rows:  # the first ones alone
            state = {name: value[: theta.shape[0]] for name, value in state.items()}
        self.count += 1
        if "normalized" in state or "clip" in state:
            self._scale(gradient)
        decay = state.get("decay")
        if decay is not None and self.kind != "adamw":
            gradient.addcmul_(theta, decay)
        if self.kind == "sgd":
            if "velocity" not in state:
                state["velocity"] = gradient.clone()
            else:
                state["velocity"].mul_(state["momentum"]).add_(gradient)
            theta.addcmul_(state["velocity"], rate, value=-1)
            return
        if decay is not None and self.kind == "adamw":
            theta.addcmul_(theta, rate * decay, value=-1)
        beta1, beta2 = state["beta1"], state["beta2"]
        if "mean" not in state:
            state["mean"], state["square"] = torch.zeros_like(theta), torch.zeros_like(theta)
        mean, square = state["mean"], state["square"]
        mean.lerp_(gradient, 1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient * (1 - beta2))
        root = (1 - beta2**self.count).sqrt_()
        size = (square.sqrt() / root).add_(_TINY)
        theta.sub_(mean.div(size).mul_(rate / (1 - beta1**self.count)))

    def _scale(self, gradient: Tensor) -> None:
        # A gradient that is not finite ends its run anyway: no need to keep it out of the norm.
        state = self.state
        norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
        if "clip" in state:  # as torch's clip_grad_norm_
            factor = (state["clip"] / (norm + 1e-6)).clamp_(max=1)
        if "normalized" in state:
            if self.count == 1:
                state["norm"] = norm
            running = state["norm"].lerp_(norm, 1 - _NORM_DECAY) if self.count > 1 else norm
            divided = running.clamp(min=_NORM_FLOOR).reciprocal_()
            others = factor if "clip" in state else torch.ones_like(norm)
            factor = (
                divided
                if self.all_normalized
                else torch.where(state["normalized"] > 0, divided, others)
            )
        gradient.mul_(factor)
