"""The loop: R independent training runs as one tensor program. Read ``_train`` top to bottom.

What a run computes depends on its own key, rows and numbers, never on its company: random numbers
are hashes of its seed (``randomness.py``), every operation keeps runs apart, and runs that stop or
fail leave without a trace.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from expacc.training.batches import Batches
from expacc.training.layers import BatchedOptimizer, Network
from expacc.training.objectives import Objective, objective_of
from expacc.training.progress import Bar, progress_bar
from expacc.training.randomness import seed_of, stream_keys, uniform
from expacc.training.record import Norms, Record
from expacc.training.runs import Number, Run, RunResult, TensorTable, TrainConfig, check_training
from expacc.training.segments import Segments, order_by_kind

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
    share_batches: bool = False,
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
        share_batches: runs of one ``group`` begin with the same weights and see the same rows in
            the same order, as where losses are compared; a batch is then gathered once for all of
            them, and their first layers are one product.
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
    check_training(rows, runs, config, share_batches=share_batches)
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
    objectives = [objective_of(run.loss, run.loss_params, rows.classes) for run in runs]
    budget = memory or (_CPU_MEMORY if device.type == "cpu" else _GPU_MEMORY)
    results: dict[int, RunResult] = {}
    with (
        torch.no_grad(),
        torch.autocast(device.type, enabled=False),  # the same bits wherever we are called
        progress_bar(total=len(runs) * config.epochs, title="training", enabled=progress) as bar,
    ):
        for teams in _chunks(runs, objectives, config, ready, budget, share_batches):
            chunk = [place for team in teams for place in team]
            own = [runs[i] for i in chunk]
            shared = len(teams[0]) if share_batches else 0
            done = _train(ready, own, [objectives[i] for i in chunk], config, bar, shared)
            results.update(zip(chunk, done, strict=True))
    return [results[i] for i in range(len(runs))]


def chunks_of(
    rows: TensorTable, runs: Sequence[Run], config: TrainConfig, device: str = "cpu"
) -> list[list[int]]:
    """Places of the runs that ``train_runs`` trains together; one such chunk is one for it, too."""
    objectives = [objective_of(run.loss, run.loss_params, rows.classes) for run in runs]
    budget = _CPU_MEMORY if device == "cpu" else _GPU_MEMORY
    padded = replace(rows, features=torch.nn.functional.pad(rows.features[:1], (0, 1)))
    teams = _chunks(runs, objectives, config, padded, budget, share_batches=False)
    return [[place for team in chunk for place in team] for chunk in teams]


def _train(
    rows: TensorTable,
    runs: list[Run],
    objectives: list[Objective],
    config: TrainConfig,
    bar: Bar,
    shared: int,
) -> list[RunResult]:
    """Train one chunk of runs, ordered by the kind of their loss.

    Where batches are shared, so many neighbours are a group, and ordered by kind among themselves.
    """
    features, device = rows.features, rows.features.device
    groups = len(runs) // shared if shared else 1
    names = [run.group if shared else run.key for run in runs]
    seeds = torch.tensor([seed_of(config.seed, name) for name in names], device=device)
    network = Network(config.model, features.shape[1] - 1, rows.classes)
    theta = network.start(seeds, features.dtype)
    for place, run in enumerate(runs):
        if run.start is not None:
            network.put(run.start, theta[place])
    gradient = torch.empty_like(theta)
    one = slice(None, None, shared or 1)  # of each group
    batches = Batches(rows, runs[one], seeds[one], config.batch, config.steps)
    losses = Segments(objectives, config.epochs, features, groups if shared else 0)
    optimizer = BatchedOptimizer(config.optimizer, runs, network.decays(device, features.dtype))
    rates = _rates(runs, config.epochs).to(features)
    record = Record(runs, config, network, rows)
    before = bar.done

    step = 0
    for epoch in range(config.epochs):
        losses.set_epoch(epoch)
        rate = rates[:, epoch : epoch + 1].contiguous()
        whole = theta, gradient, rate, network.views(theta), network.views(gradient)
        watch = theta.new_zeros(batches.steps, len(theta))
        norms = Norms(theta) if "gradient" in config.curves else None
        first = step
        for inputs, batch in batches.epoch(epoch):
            now, moves, at, weights, slopes = whole
            if shared:
                batch = batch.repeated(shared)
                if (some := batch.labels.shape[0]) < len(theta):  # of groups with rows left
                    now, moves, at = now[:some], moves[:some], at[:some]
                    weights, slopes = network.views(now), network.views(moves)
            inputs, masks = _drop_out(config, inputs, batches.seeds, step)
            logits, hidden = network.forward(weights, inputs, masks)
            slope = losses.slope(logits, batch)
            if norms is not None:
                norms.add(slope, batch)
            network.backward(weights, slopes, inputs, hidden, slope, masks)
            torch.sum(moves, 1, out=watch[step - first, : moves.shape[0]])
            optimizer.step(now, moves, at)
            step += 1
        # A sum that is neither inf nor NaN is a good step; after a bad one all are bad.
        good = first + torch.isfinite(watch).sum(0)
        going = record.epoch(epoch + 1, theta, good, step, norms)
        bar.update(before + len(runs) * (epoch + 1), None, **record.accuracy_so_far())
        if not going:
            break
        # Those that are done leave; of several groups none does alone, or they would be uneven.
        if len(going) < len(theta) and groups == 1:
            kept = torch.tensor(going, device=device)
            theta, rates = theta[kept], rates[kept]
            gradient = torch.empty_like(theta)
            if shared:
                shared = len(going)
            else:
                batches.keep(kept)
            losses.keep(kept)
            optimizer.keep(kept)
            record.leave(going)
    bar.update(before + len(runs) * config.epochs)
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
    config: TrainConfig, inputs: Tensor, seeds: Tensor, step: int
) -> tuple[Tensor, list[Tensor | None] | None]:
    """Inputs with features dropped, and the factors of the hidden units."""
    model = config.model
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
    config: TrainConfig,
    rows: TensorTable,
    budget: int,
    share_batches: bool,
) -> list[list[list[int]]]:
    """Positions of runs to train together: same number of steps, neighbours by kind, in budget.

    They come in teams that see the same batches, of the same kinds; alone where none are shared.
    """
    teams: dict[object, list[int]] = {}
    for place in order_by_kind(objectives):
        teams.setdefault(runs[place].group if share_batches else place, []).append(place)
    alike: dict[object, list[list[int]]] = {}
    order = sorted(teams.values(), key=lambda team: -len(runs[team[0]].rows))
    for team in order if share_batches else teams.values():
        length = len(runs[team[0]].rows)
        size = config.batch if config.steps is not None else min(config.batch, length)
        # Adam counts the steps of all of its runs as one.
        ragged = share_batches and config.optimizer == "sgd" and length >= config.batch
        steps = 0 if ragged else config.steps or -(-length // size)
        kinds = tuple(objectives[place].kind for place in team) if share_batches else ()
        alike.setdefault((steps, kinds), []).append(team)
    chunks = []
    for some in alike.values():
        longest = max(len(runs[team[0]].rows) for team in some)
        at_once = max(1, budget // _bytes(config, rows, longest, len(some[0])))
        # Even shares, rather than full chunks and a small rest.
        count = -(-len(some) // at_once)
        share = -(-len(some) // count)
        chunks += [some[low : low + share] for low in range(0, len(some), share)]
    return chunks


def _bytes(config: TrainConfig, rows: TensorTable, longest: int, runs: int) -> int:
    """What runs that see the same batches take while they train, about."""
    network = Network(config.model, rows.features.shape[1] - 1, rows.classes)
    batch = config.batch if config.steps is not None else min(config.batch, longest)
    units = 3 * sum(config.model.hidden) + 12 * rows.classes
    numbers = batch * (rows.features.shape[1] + runs * units) + 6 * runs * network.size
    return numbers * rows.features.element_size() + 8 * longest
