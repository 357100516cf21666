"""The loop: R independent training runs as one tensor program. Read ``_train`` top to bottom.

What a run computes depends on its own key, rows and numbers, never on its company: random numbers
are hashes of its seed (``randomness.py``), every operation keeps runs apart, and runs that stop or
fail leave without a trace.
"""

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from expacc.training.batches import Batches
from expacc.training.layers import Network
from expacc.training.objectives import Objective, objective_of
from expacc.training.optimizers import BatchedOptimizer
from expacc.training.progress import Bar, progress_bar
from expacc.training.randomness import seed_of, stream_keys, uniform
from expacc.training.record import Record
from expacc.training.runs import (
    Number,
    Run,
    RunResult,
    TensorTable,
    TrainConfig,
    check_training,
)
from expacc.training.segments import Segments, order_by_kind

__all__ = ["train_runs"]

# Bytes that the runs trained at once may take: on a CPU what its caches hold, beyond which larger
# chunks are no faster; on a GPU, which wants them large, a small part of its memory.
_CPU_MEMORY, _GPU_MEMORY = 12 << 20, 4 << 30


def train_runs(
    rows: TensorTable,
    runs: Sequence[Run],
    config: TrainConfig | None = None,
    *,
    device: str | torch.device = "cpu",
    memory: int | None = None,
    progress: bool = False,
    plan: TrainConfig | None = None,
) -> list[RunResult]:
    """Train many independent runs at once; a run's result does not depend on the others.

    Args:
        rows: features, labels and weights that the runs share; computed in the features' dtype.
        runs: what to train; keys must differ.
        config: model, optimiser, batch, epochs: what the runs have in common; None for its
            defaults.
        device: where to train.
        memory: bytes that runs trained at once may take; more runs wait their turn. None for a size
            that is fast on the device.
        progress: show a bar, for jobs of over two seconds.
        plan: the old name of ``config``, for one release.

    Returns:
        One result per run, in the order given; a diverged run is marked with its step.

    Raises:
        TypeError: a record of the wrong type.
        ValueError: rows, labels or numbers out of range, in one sentence.

    Example:
        Two classes apart by their sign, learnt with two losses:

        >>> x = torch.linspace(-1, 1, 20).unsqueeze(1)
        >>> rows = TensorTable(x, (x[:, 0] > 0).long(), classes=2)
        >>> everyone = torch.arange(20)
        >>> runs = [Run(name, everyone, loss=name) for name in ("cross_entropy", "exact")]
        >>> for result in train_runs(rows, runs, TrainConfig(epochs=50)):
        ...     right = result.model.logits(x).argmax(1) == rows.labels
        ...     print(result.key, right.float().mean().item())
        cross_entropy 1.0
        exact 1.0
    """
    if plan is not None:
        warnings.warn(
            "train_runs(plan=...) is now train_runs(config=...); the old name goes in the next "
            "release.",
            DeprecationWarning,
            stacklevel=2,
        )
    config = config or plan or TrainConfig()
    check_training(rows, runs, config)
    if not runs:
        return []
    device = torch.device(device)
    ready = TensorTable(
        # The constant 1 feeds the biases: a column more of every first weight.
        torch.nn.functional.pad(rows.features, (0, 1), value=1.0).to(device),
        rows.labels.to(device),
        rows.classes,
        None if rows.weight is None else rows.weight.to(device, rows.features.dtype),
    )
    network = Network(config.model, rows.features.shape[1], rows.classes)
    for run in runs:
        if run.start is not None and not network.fits(run.start):
            raise ValueError(f"start of run {run.key!r} must have the layers of the model.")
    objectives = [objective_of(run.loss, run.numbers) for run in runs]
    budget = memory or (_CPU_MEMORY if device.type == "cpu" else _GPU_MEMORY)
    results: dict[int, RunResult] = {}
    with (
        torch.no_grad(),
        torch.autocast(device.type, enabled=False),  # the same bits wherever we are called
        progress_bar(total=len(runs) * config.epochs, title="training", enabled=progress) as bar,
    ):
        for chunk in _chunks(runs, objectives, config, ready, budget):
            done = _train(
                ready, [runs[i] for i in chunk], [objectives[i] for i in chunk], config, bar
            )
            results.update(zip(chunk, done, strict=True))
    return [results[i] for i in range(len(runs))]


def _train(
    rows: TensorTable, runs: list[Run], objectives: list[Objective], plan: TrainConfig, bar: Bar
) -> list[RunResult]:
    """Train one chunk of runs, ordered by the kind of their loss."""
    features, device = rows.features, rows.features.device
    seeds = torch.tensor([seed_of(plan.seed, run.key) for run in runs], device=device)
    network = Network(plan.model, features.shape[1] - 1, rows.classes)
    theta = network.start(seeds, features.dtype)
    for place, run in enumerate(runs):
        if run.start is not None:
            network.put(run.start, theta[place])
    gradient = torch.empty_like(theta)
    batches = Batches(rows, runs, seeds, plan.batch, plan.steps)
    losses = Segments(objectives, plan.epochs, features)
    optimizer = BatchedOptimizer(plan.optimizer, runs, network.decays(device, features.dtype))
    rates = _rates(runs, plan.epochs).to(features)
    record = Record(runs, plan, network, rows)
    before = bar.done

    step = 0
    for epoch in range(plan.epochs):
        losses.set_epoch(epoch)
        rate = rates[:, epoch : epoch + 1].contiguous()
        weights, slopes = network.views(theta), network.views(gradient)
        watch = theta.new_zeros(batches.steps, len(theta))
        first = step
        for inputs, batch in batches.epoch(epoch):
            inputs, masks = _drop_out(plan, inputs, batches.seeds, step)
            logits, hidden = network.forward(weights, inputs, masks)
            slope = losses.slope(logits, batch)
            network.backward(weights, slopes, inputs, hidden, slope, masks)
            torch.sum(gradient, 1, out=watch[step - first])
            optimizer.step(theta, gradient, rate)
            step += 1
        # A sum that is neither inf nor NaN is a good step; after a bad one all are bad.
        good = first + torch.isfinite(watch).sum(0)
        going = record.epoch(epoch + 1, theta, good, step)
        bar.update(before + len(runs) * (epoch + 1), None, **record.accuracy_so_far())
        if not going:
            break
        if len(going) < len(theta):  # those that are done leave
            kept = torch.tensor(going, device=device)
            theta, rates = theta[kept], rates[kept]
            gradient = torch.empty_like(theta)
            batches.keep(kept)
            losses.keep(kept)
            optimizer.keep(kept)
    bar.update(before + len(runs) * plan.epochs)
    return [record.results[place] for place in range(len(runs))]


def _rates(runs: list[Run], epochs: int) -> Tensor:
    """Learning rates (R, epochs)."""
    known: dict[object, list[float]] = {}

    def table(rate: Number) -> list[float]:
        if not callable(rate):
            return [float(rate)] * epochs
        if id(rate) not in known:
            known[id(rate)] = [float(rate(epoch / epochs)) for epoch in range(epochs)]
        return known[id(rate)]

    return torch.tensor([table(run.learning_rate) for run in runs], dtype=torch.float64)


def _drop_out(
    plan: TrainConfig, inputs: Tensor, seeds: Tensor, step: int
) -> tuple[Tensor, list[Tensor | None] | None]:
    """Inputs with features dropped, and the factors of the hidden units."""
    model = plan.model
    runs, rows = inputs.shape[:2]

    def factors(layer: int, share: float, shape: tuple[int, ...]) -> Tensor:
        counter = step * (len(model.hidden) + 1) + layer
        keys = stream_keys(seeds, "dropout", counter)
        size = shape[1] * shape[2]
        drawn = uniform(keys, size, inputs.dtype).view(shape)
        return (drawn >= share).to(inputs.dtype).div_(1 - share)

    if model.input_dropout:
        inputs = inputs.clone()
        shape = (runs, rows, inputs.shape[2] - 1)
        inputs[:, :, :-1].mul_(factors(0, model.input_dropout, shape))
    if not model.hidden_dropout:
        return inputs, None
    masks: list[Tensor | None] = [
        factors(layer + 1, model.hidden_dropout, (runs, width, rows))
        for layer, width in enumerate(model.hidden)
    ]
    return inputs, masks


def _chunks(
    runs: Sequence[Run],
    objectives: list[Objective],
    plan: TrainConfig,
    rows: TensorTable,
    budget: int,
) -> list[list[int]]:
    """Positions of runs to train together: same number of steps, neighbours by kind, in budget."""
    groups: dict[int, list[int]] = {}
    for place in order_by_kind(objectives):
        length = len(runs[place].rows)
        size = plan.batch if plan.steps is not None else min(plan.batch, length)
        groups.setdefault(plan.steps or -(-length // size), []).append(place)
    chunks = []
    for group in groups.values():
        longest = max(len(runs[place].rows) for place in group)
        at_once = max(1, budget // _bytes(plan, rows, longest))
        # Even shares, rather than full chunks and a small rest.
        count = -(-len(group) // at_once)
        share = -(-len(group) // count)
        chunks += [group[low : low + share] for low in range(0, len(group), share)]
    return chunks


def _bytes(plan: TrainConfig, rows: TensorTable, longest: int) -> int:
    """What one run takes while it trains, about."""
    network = Network(plan.model, rows.features.shape[1] - 1, rows.classes)
    batch = plan.batch if plan.steps is not None else min(plan.batch, longest)
    units = 3 * sum(plan.model.hidden) + 12 * rows.classes
    numbers = batch * (rows.features.shape[1] + units) + 6 * network.size
    return numbers * rows.features.element_size() + 8 * longest
