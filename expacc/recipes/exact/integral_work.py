"""Estimate an orthant integral and its gradient many times, and hold both against the truth."""

import functools
import math
import zlib
from collections.abc import Callable

import torch
from torch import Tensor

from expacc.ops.sampling import genz_orthant_prob, log_derivative_orthant_prob
from expacc.probabilities import orthant_prob
from expacc.recipes.exact.integral_cases import CASES, Case, truth
from expacc.runner.items import Shared, WorkItem
from expacc.runner.rows import Row

__all__ = ["execute"]

CLIP = 5.0  # of the authors' code
CELLS = 1 << 22  # numbers in a buffer of the sampler, 32 MiB
Estimate = Callable[[Tensor, int, torch.Generator], tuple[Tensor, Tensor]]


def execute(item: WorkItem, shared: Shared) -> list[Row]:
    """The rows of one method on one case: one per number of samples in the payload."""
    case, method = CASES[item.payload["case"]], item.payload["method"]
    if method in _PRECISIONS:
        return [_ours(item, case, method, nodes) for nodes in item.payload["samples"]]
    return [_sampled(item, case, method, samples) for samples in item.payload["samples"]]


def _row(item: WorkItem, case: Case, method: str, samples: int, errors: dict[str, float]) -> Row:
    exact = truth(case.margins)
    return Row(
        key=f"{item.key}/{samples}",
        item=item.key,
        kind="final",
        table=case.name,
        loss=method,
        fold="",
        numbers={"samples": samples, "repeats": item.payload["repeats"]},
        metrics={
            **errors,
            "value": exact.value,
            "gradient_norm": math.hypot(*exact.gradient),
            "doubt": exact.doubt,
        },
    )


# ------------------------------------------------------------------------------------ ours

_PRECISIONS = {"ours": torch.float64, "ours32": torch.float32}


def _ours(item: WorkItem, case: Case, method: str, nodes: int) -> Row:
    margins = torch.tensor(case.margins, dtype=_PRECISIONS[method], requires_grad=True)
    value = orthant_prob(margins, nodes=nodes)
    (gradient,) = torch.autograd.grad(value, margins)
    # The truth is that of the margins as the dtype has them.
    exact = truth(tuple(margins.double().tolist()))
    off = gradient.double() - torch.tensor(exact.gradient, dtype=torch.float64)
    errors = {
        "value_rmse": abs(value.item() - exact.value),
        "gradient_rmse": off.square().mean().sqrt().item(),
        "value_mean": value.item(),
    }
    return _row(item, case, method, nodes, errors)


# ---------------------------------------------------------------------------------- samplers


def _with_gradient(estimate: Callable[[Tensor], Tensor], margins: Tensor) -> tuple[Tensor, Tensor]:
    leaf = margins.clone().requires_grad_()
    value = estimate(leaf)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), gradient


def _genz(
    margins: Tensor, samples: int, generator: torch.Generator, *, sort: bool
) -> tuple[Tensor, Tensor]:
    """As released, rivals by ascending margin; or one after the other as they come."""
    estimate = functools.partial(
        genz_orthant_prob, samples=samples, generator=generator, clip=CLIP, sort=sort
    )
    return _with_gradient(estimate, margins)


def _counted(margins: Tensor, samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Monte Carlo, and the log-derivative trick for the gradient."""
    estimate = functools.partial(log_derivative_orthant_prob, samples=samples, generator=generator)
    return _with_gradient(estimate, margins)


_SAMPLERS: dict[str, Estimate] = {
    "log_derivative": _counted,
    "genz_given": functools.partial(_genz, sort=False),
    "genz": functools.partial(_genz, sort=True),
}


def _sampled(item: WorkItem, case: Case, method: str, samples: int) -> Row:
    """Root mean square errors over repeats, each with random numbers of its own."""
    repeats = int(item.payload["repeats"])
    estimate = _SAMPLERS[method]
    # A stream of its own for each row, whatever the other rows are.
    stream = f"{item.payload['seed']}/{item.key}/{samples}"
    generator = torch.Generator().manual_seed(zlib.crc32(stream.encode()))
    exact = truth(case.margins)
    gradient_truth = torch.tensor(exact.gradient, dtype=torch.float64)
    margins = torch.tensor(case.margins, dtype=torch.float64)
    rivals = len(case.margins)
    per_repeat = samples * rivals * (rivals + 1)
    block, pieces = max(1, CELLS // per_repeat), max(1, per_repeat // CELLS)
    value_square = gradient_square = value_sum = 0.0
    done = 0
    while done < repeats:
        rows = min(block, repeats - done)
        values, gradients = _in_pieces(
            estimate, margins.expand(rows, -1), samples, pieces, generator
        )
        value_square += (values - exact.value).square().sum().item()
        gradient_square += (gradients - gradient_truth).square().sum().item()
        value_sum += values.sum().item()
        done += rows
    errors = {
        "value_rmse": math.sqrt(value_square / repeats),
        "gradient_rmse": math.sqrt(gradient_square / (repeats * rivals)),
        "value_mean": value_sum / repeats,
    }
    return _row(item, case, method, samples, errors)


def _in_pieces(
    estimate: Estimate, margins: Tensor, samples: int, pieces: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """The estimate with so many samples as the mean of several with fewer, to spare memory."""
    value, gradient = torch.zeros(len(margins)).double(), torch.zeros(margins.shape).double()
    for piece in range(pieces):
        share = samples * (piece + 1) // pieces - samples * piece // pieces
        part, slope = estimate(margins, share, generator)
        value += part * (share / samples)
        gradient += slope * (share / samples)
    return value, gradient
