"""Every public operation that is no row of ``losses.py``, as a function of scores (N, 6)."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

import expacc
from expacc import functional
from expacc.ops.orthant.noise import NOISES
from expacc.ops.sampling import genz_orthant_prob, log_derivative_orthant_prob
from expacc.registry import SPECS
from expacc.training import loss_slopes, robust_slopes
from expacc.training.loss_slopes import CURVES, along, along_moved, cross_entropy, exact, hinge

CLASSES = 6


def labels_of(scores: Tensor) -> Tensor:
    return torch.arange(len(scores), device=scores.device) % CLASSES


def mix_of(scores: Tensor) -> Tensor:
    """Class probabilities, unequal, the same for every dtype."""
    place = torch.arange(scores.numel(), device=scores.device, dtype=torch.float64)
    return place.view_as(scores).sin().softmax(1).to(scores.dtype)


def costs_of(scores: Tensor) -> Tensor:
    place = torch.arange(CLASSES**2, device=scores.device, dtype=torch.float64)
    return place.view(CLASSES, CLASSES).cos().abs().to(scores.dtype)


def _generator(scores: Tensor) -> torch.Generator:
    return torch.Generator(device=scores.device).manual_seed(0)


def _centers(scores: Tensor) -> torch.nn.Module:
    return expacc.MaxMahalanobisCenterLoss(CLASSES, CLASSES).to(scores.device, scores.dtype)


def _row_sigma(scores: Tensor) -> Tensor:
    return torch.linspace(0.5, 2, len(scores), device=scores.device).to(scores.dtype)[:, None]


OPERATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "orthant_prob": expacc.orthant_prob,
    "log_orthant_prob": expacc.log_orthant_prob,
    **{
        f"argmax_probabilities {noise}": lambda z, n=noise: expacc.argmax_probabilities(z, 1, n)
        for noise in NOISES
    },
    "argmax_probabilities, sigma per row": lambda z: expacc.argmax_probabilities(z, _row_sigma(z)),
    **{
        f"expected_cost {noise}": lambda z, noise=noise: functional.expected_cost(
            z, labels_of(z), costs_of(z), noise=noise, reduction="none"
        )
        for noise in NOISES
    },
    "expected_cost of probabilities": lambda z: functional.expected_cost(
        z, mix_of(z), costs_of(z), reduction="none"
    ),
    **{
        f"expected_distance {noise}": lambda z, noise=noise: functional.expected_distance(
            z, labels_of(z), power=2, noise=noise, reduction="none"
        )
        for noise in NOISES
    },
    "expected_distance, sigma per row": lambda z: functional.expected_distance(
        z, mix_of(z), sigma=_row_sigma(z), noise="normal", reduction="none"
    ),
    "expected_cost, sigma per row": lambda z: functional.expected_cost(
        z, labels_of(z), costs_of(z), sigma=_row_sigma(z), noise="normal", reduction="none"
    ),
    "exact_error, sigma per row": lambda z: functional.exact_error(
        z, labels_of(z), sigma=_row_sigma(z), standardize=False, reduction="none"
    ),
    "exact_error, sigma per class": lambda z: functional.exact_error(
        z, labels_of(z), sigma=_row_sigma(z)[:1].expand(1, CLASSES), standardize=False,
        reduction="none",
    ),
    "exact_error of thirty classes": lambda z: functional.exact_error(
        torch.cat([z + k / 7 for k in range(5)], 1), labels_of(z), standardize=False,
        reduction="none",
    ),
    "exact_error of sixty classes": lambda z: functional.exact_error(
        torch.cat([z + k / 7 for k in range(10)], 1), labels_of(z), standardize=False, log=True,
        reduction="none",
    ),
    "exact_error of two classes": lambda z: functional.exact_error(
        z[:, :2], labels_of(z) % 2, standardize=False, reduction="none"
    ),
    "centers": lambda z: _centers(z)(z, labels_of(z)),
    "centers of probabilities": lambda z: _centers(z)(z, mix_of(z)),
    "centers' logits": lambda z: _centers(z).logits(z),
    "genz_orthant_prob": lambda z: genz_orthant_prob(z, generator=_generator(z)),
    "log_derivative_orthant_prob": lambda z: log_derivative_orthant_prob(
        z, samples=64, generator=_generator(z)
    ),
}  # fmt: skip
SAMPLED = ("genz_orthant_prob", "log_derivative_orthant_prob")  # other numbers in another dtype


# The slopes of training, by name, with legal numbers for all of them.
SLOPES = {name: along(curve) for name, curve in CURVES.items()}
SLOPES |= {f"{name} moved": along_moved(curve) for name, curve in CURVES.items()}
SLOPES |= {"cross_entropy": cross_entropy, "hinge": hinge, **robust_slopes.SLOPES}
SLOPES |= {
    "expected_distance": loss_slopes.expected_distance,
    "expected_balanced_error": loss_slopes.expected_balanced_error,
    "expected_f1_error macro": loss_slopes.expected_f1_error("macro"),
    "expected_f1_error micro": loss_slopes.expected_f1_error("micro"),
}
SLOPES |= {f"exact {a} {b}": exact(a, b) for a in (True, False) for b in (True, False)}


def slope_params(runs: int) -> dict[str, Tensor]:
    one = torch.ones(runs, 1, 1)
    names = {name for spec in SPECS.values() for name in spec.defaults}
    names |= {"ce_weight", "error_weight", "shift", "scale"}
    return dict.fromkeys(names, one) | {"truncation": one / 100}


def scores(rows: int = 24, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, CLASSES, generator=generator, dtype=torch.float64) * 2


def gradient_of(values: Tensor, leaf: Tensor) -> Tensor:
    """Of a sum with unequal weights: that of probabilities alone would be zero."""
    place = torch.arange(1, values.numel() + 1, device=values.device, dtype=values.dtype)
    seed = (place.view(values.shape) if values.ndim else place[0]).sin()
    return torch.autograd.grad(values, leaf, seed)[0]


def head(features: Tensor, reduction: str = "none") -> Tensor:
    """The head of ``linear_mixed_expected_error`` in two chunks, with a fixed weight."""
    return functional.linear_mixed_expected_error(
        features, costs_of(features), None, labels_of(features), reduction=reduction, chunk_rows=16
    )


def head_by_hand(features: Tensor, reduction: str = "none") -> Tensor:
    logits = F.linear(features, costs_of(features))
    return functional.mixed_expected_error(logits, labels_of(features), reduction=reduction)


# ------------------------------------------------------------------------------------- autocast

# Forward and backward, each inside or outside of the region.
WHERE = ((True, True), (True, False), (False, True))


def region(half, inside=True, device="cpu"):
    return torch.autocast(device, dtype=half, enabled=inside)


def both(function, values, half, where=(False, False)):
    """Value and gradient of ``function``, each inside or outside of the region."""
    leaf = values.clone().requires_grad_()
    with region(half, where[0], leaf.device.type):
        found = function(leaf)
    with region(half, where[1], leaf.device.type):
        return found.detach(), gradient_of(found, leaf)


def holds(function, values, half, tolerance=2e-5, truth=True):
    """With autocast the same bits as without, and both near the function in float64."""
    expected = both(function, values, half)
    for where in WHERE:
        found = both(function, values, half, where)
        for one, two in zip(found, expected, strict=True):
            assert one.dtype == two.dtype
            assert torch.equal(one, two), where
    if truth:
        for one, exact_one in zip(expected, both(function, values.double(), half), strict=True):
            scale = exact_one.abs().max().clamp(min=1)
            assert ((one - exact_one).abs().max() / scale).item() <= tolerance


# ---------------------------------------------------------------------- rows without a winner


def unsound(classes, dtype=torch.float32, device="cpu"):
    """Eight rows, labels 0, and which of the rows have no softmax."""
    generator = torch.Generator().manual_seed(classes)
    logits = torch.randn(8, classes, generator=generator).to(device, dtype)
    logits[0, 0] = math.nan
    logits[1, -1] = math.nan
    logits[2, 0] = math.inf
    logits[3, -1] = math.inf
    logits[4] = math.inf
    logits[5] = -math.inf
    bad = torch.tensor([True] * 6 + [False] * 2, device=device)
    assert torch.equal(F.cross_entropy(logits, bad.long() * 0, reduction="none").isnan(), bad)
    return logits, torch.zeros(8, dtype=torch.int64, device=device), bad


def assert_unsound(function, logits, bad):
    """Value and gradient are NaN for the bad rows and for no other."""
    leaf = logits.clone().requires_grad_()
    values = function(leaf)
    assert torch.equal(values.isnan(), bad)
    (grad,) = torch.autograd.grad(values.sum(), leaf)
    assert torch.equal(grad.isnan().any(1), bad)
