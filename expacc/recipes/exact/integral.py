"""The integrals of exact-integral: their values to rounding, and how estimates are held to them."""

import functools
import math
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from expacc.ops.sampling import genz_orthant_prob, log_derivative_orthant_prob
from expacc.probabilities import orthant_prob
from expacc.recipes.recipe import RecipeOptions, Work, failed_row, final_row
from expacc.runner.items import Shared, WorkItem
from expacc.runner.rows import Row

MEAN = (1.0, 2.0, 0.5, 10.0, 6.0, -3.0, -4.0, 5.0, 1.0, 0.0)  # Appendix C


@dataclass(frozen=True)
class Case:
    """P(all margins positive), the margins being N(m, I + 11ᵀ).

    Args:
        name: in keys.
        title: for people.
        margins: m, the lead of the true class over each rival in units of σ.
        about: what it stands for.
    """

    name: str
    title: str
    margins: tuple[float, ...]
    about: str


def _drawn(rivals: int) -> tuple[float, ...]:
    """Leads among standard normal logits."""
    draw = random.Random(16)
    own, *others = (draw.gauss(0, 1) for _ in range(rivals + 1))
    return tuple(round(own - other, 3) for other in others)


CASES = {
    case.name: case
    for case in (
        Case("paper", "the paper's", MEAN, "Appendix C, its numbers taken for the margins"),
        Case(
            "paper-logits",
            "the paper's as logits",
            tuple(MEAN[3] - other for i, other in enumerate(MEAN) if i != 3),
            "Appendix C, its numbers taken for ten logits of which the largest is the true one",
        ),
        Case("level", "ten level classes", (0.0,) * 9, "as training begins, σ large"),
        Case("drawn", "16 drawn classes", _drawn(15), "standard normal logits, σ = 1"),
        Case("ahead", "well ahead", (4.0,) * 9, "a row that is right, σ small"),
        Case("behind", "far behind", (-10.0,) * 9, "a row that is wrong, σ small"),
    )
}


@dataclass(frozen=True)
class Truth:
    """A case's value and gradient.

    Args:
        value: P.
        gradient: ∂P/∂m.
        doubt: how much the value changes, relatively, when every second node is left out.
    """

    value: float
    gradient: tuple[float, ...]
    doubt: float


def truth(margins: tuple[float, ...], half_width: float = 40.0, nodes: int = 20_001) -> Truth:
    """The trapezoid rule with very many nodes over ∫ φ(z) ∏ Φ(z + m_i) dz, float64.

    Independent of this library's own rule: no mode, no map, no torch. The integrand is analytic and
    falls like a Gaussian, so that the rule converges faster than any power of the distance.
    """
    import numpy as np
    from scipy.special import log_ndtr

    z = np.linspace(-half_width, half_width, nodes)
    log_phi = -0.5 * z**2 - 0.5 * math.log(2 * math.pi)
    shifted = z[:, None] + np.array(margins)
    log_cdf = log_ndtr(shifted)
    integrand = log_phi + log_cdf.sum(1)
    scale = integrand.max()
    step = 2 * half_width / (nodes - 1)  # z[1] - z[0] would lose digits
    weights = np.exp(integrand - scale)
    total, coarse = weights.sum() * step, weights[::2].sum() * 2 * step
    log_density = -0.5 * shifted**2 - 0.5 * math.log(2 * math.pi)
    gradient = (weights[:, None] * np.exp(log_density - log_cdf)).sum(0) * step * np.exp(scale)
    return Truth(
        value=float(total * np.exp(scale)),
        gradient=tuple(float(part) for part in gradient),
        doubt=float(abs(total - coarse) / total),
    )


CLIP = 5.0  # of the authors' code
CELLS = 1 << 22  # numbers in a buffer of the sampler, 32 MiB
Estimate = Callable[..., Tensor]  # of margins, samples and a generator
_PRECISIONS = {"ours": torch.float64, "ours32": torch.float32}
SAMPLES = tuple(2**power for power in range(11))  # 1 … 1024
REPEATS, QUICK_REPEATS = 1000, 100
IN_ORDER = ("paper", "paper-logits", "drawn")  # cases in which the order of the rivals matters
PAPERS_TRUTH = 1_000_000  # samples


def plan(ask: RecipeOptions) -> Work:
    """Every method on every case; the many small numbers of samples together."""
    samples = SAMPLES[:8] if ask.quick else SAMPLES
    repeats = ask.seeds or (QUICK_REPEATS if ask.quick else REPEATS)
    items = []

    def add(
        case: str, method: str, sizes: list[int], key: object = "", times: int = repeats
    ) -> None:
        asked = {"case": case, "seed": ask.seed, "repeats": times}
        name = f"{case}/{method}" + (f"/{key}" if key else "")
        items.append(WorkItem(name, {**asked, "method": method, "samples": sizes}))

    for case in ["paper", "level"] if ask.quick else list(CASES):
        for method in _PRECISIONS:
            add(case, method, list(samples), times=1)
        for method in ("log_derivative", "genz", *(["genz_given"] if case in IN_ORDER else [])):
            # The few large ones each on its own.
            for part in [[n for n in samples if n < 128], *([n] for n in samples if n >= 128)]:
                add(case, method, part, part[-1])
    if not ask.quick:
        for method in ("genz_given", "genz"):
            add("paper", method, [PAPERS_TRUTH], "truth", times=1)
    facts = {"repeats": repeats, "quick": ask.quick}
    return Work(tuple(items), "expacc.recipes.exact.integral:execute", failed_row, facts=facts)


def execute(item: WorkItem, shared: Shared) -> list[Row]:
    """The rows of one method on one case: one per number of samples in the payload."""
    case, method = CASES[item.payload["case"]], item.payload["method"]
    if method in _PRECISIONS:
        return [_ours(item, case, method, nodes) for nodes in item.payload["samples"]]
    return [_sampled(item, case, method, samples) for samples in item.payload["samples"]]


def _row(item: WorkItem, case: Case, method: str, samples: int, errors: dict[str, float]) -> Row:
    exact = truth(case.margins)
    return final_row(
        item,
        f"{samples}",
        table=case.name,
        loss=method,
        numbers={"samples": samples, "repeats": item.payload["repeats"]},
        metrics={
            **errors,
            "value": exact.value,
            "gradient_norm": math.hypot(*exact.gradient),
            "doubt": exact.doubt,
        },
    )


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


_SAMPLERS: dict[str, Estimate] = {
    "log_derivative": log_derivative_orthant_prob,  # Monte Carlo
    "genz_given": functools.partial(genz_orthant_prob, clip=CLIP, sort=False),
    "genz": functools.partial(genz_orthant_prob, clip=CLIP, sort=True),  # as released
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
    """Value and gradient with so many samples, as the mean of several with fewer: less memory."""
    leaf = margins.clone().requires_grad_()
    value, gradient = torch.zeros(len(margins)).double(), torch.zeros(margins.shape).double()
    for piece in range(pieces):
        share = samples * (piece + 1) // pieces - samples * piece // pieces
        part = estimate(leaf, samples=share, generator=generator)
        (slope,) = torch.autograd.grad(part.sum(), leaf)
        value += part.detach() * (share / samples)
        gradient += slope * (share / samples)
    return value, gradient
