"""Values and gradients against mpmath, on random rows and on rows made of extreme logits.

1,500 rows per loss and setting: 300 for each number of classes. Exact means: relative to the true
value, down to the last subnormal number.
"""

import functools

import mpmath as mp
import numpy as np
import pytest
import torch
from losses import CASES, Row, every_case, exact_row, moved_row

from expacc import functional

CLASSES = (1, 2, 3, 10, 1000)
ROWS = 300
EXTREMES = [0.0, *(s * v for v in (1e-8, 1, 10, 88, 104, 1e3, 1e4, 1.7e38) for s in (1, -1))]
every_tabled = every_case(lambda row: row.exact is not None)
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-12}


def draw(classes: int) -> tuple[np.ndarray, np.ndarray]:
    """A third of the rows N(0, 1), a third N(0, 30²), a third extreme; float32 numbers."""
    rng = np.random.default_rng(classes)
    third = ROWS // 3
    logits = np.concatenate(
        [
            rng.normal(0, 1, (third, classes)),
            rng.normal(0, 30, (third, classes)),
            rng.choice([*EXTREMES, -np.inf], (ROWS - 2 * third, classes)),
        ]
    ).astype(np.float32)
    target = rng.integers(0, classes, ROWS)
    # Half of the random rows are right by a wide margin: that is where digits get lost.
    sure = rng.random(ROWS) < 0.5
    sure[2 * third :] = False
    logits[sure, target[sure]] = logits[sure].max(1) + rng.choice([1, 20, 60], sure.sum())
    true = logits[np.arange(ROWS), target]
    logits[np.arange(ROWS), target] = np.where(np.isneginf(true), 0, true)  # −inf off-target only
    return logits, target


@functools.cache
def exact_rows(classes: int) -> tuple[Row, ...]:
    logits, target = draw(classes)
    with mp.workdps(40):
        return tuple(
            exact_row(tuple(map(float, z)), int(y)) for z, y in zip(logits, target, strict=True)
        )


@functools.cache
def inputs(classes: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    logits, target = draw(classes)
    return torch.from_numpy(logits).to(dtype), torch.from_numpy(target)


def assert_exact(found: float, true: mp.mpf, dtype: torch.dtype, what: str) -> None:
    limits = torch.finfo(dtype)
    if abs(true) > limits.max:
        return  # not representable
    last = float(limits.smallest_normal) * limits.eps  # the last subnormal number
    tolerance = max(TOLERANCE[dtype] * abs(true), last)
    assert abs(mp.mpf(found) - true) <= tolerance, f"{what}: {found} for {mp.nstr(true, 17)}"


@every_tabled
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_values_are_exact_and_gradients_finite(row, numbers, dtype):
    for classes in CLASSES:
        logits, target = inputs(classes, dtype)
        leaf = logits.clone().requires_grad_()
        # Whole batches of 1000 classes go through the blocks, the rest through the small path.
        values = row.function(leaf, target, reduction="none", **numbers)
        (grad,) = torch.autograd.grad(values.sum(), leaf)
        finite = grad.isfinite().all(1).tolist()
        with mp.workdps(40):
            for i, (value, exact) in enumerate(
                zip(values.tolist(), exact_rows(classes), strict=True)
            ):
                true = row.exact(exact, **numbers)
                assert_exact(value, true, dtype, f"C={classes}, row {i}")
                assert finite[i] or abs(true) > torch.finfo(dtype).max


@every_case(lambda row: row.curve)
def test_no_gradient_is_dead_or_wrong(row, numbers):
    """dL/dlogit_y = f'(u)(1 - p), with f' by a difference quotient at 120 digits."""
    for classes in (2, 10, 1000):
        logits, target = inputs(classes, torch.float32)
        leaf = logits.clone().requires_grad_()
        values = row.function(leaf, target, reduction="none", **numbers)
        (grad,) = torch.autograd.grad(values.sum(), leaf)
        found = grad.gather(1, target[:, None]).squeeze(1).tolist()
        with mp.workdps(120):
            for i in range(0, ROWS, 7):
                exact = exact_rows(classes)[i]
                if exact.u == 0 or exact.u < -1e30:
                    continue
                moves = {key: numbers[key] for key in ("shift", "scale") if key in numbers}
                at_kink = moved_row(exact, **moves).u - mp.log(numbers.get("truncation") or 1)
                if abs(at_kink) < 1e-12:
                    continue  # a kink has no derivative

                def curve(u, exact=exact):
                    at = Row(u, mp.exp(u), -mp.expm1(u), exact.logits, exact.target)
                    return row.exact(at, **numbers)

                step = abs(exact.u) * mp.mpf(10) ** -40
                slope = (curve(exact.u + step) - curve(exact.u - step)) / (2 * step)
                if abs(slope) > 1e30:
                    continue
                true = slope * exact.error
                error = abs(mp.mpf(found[i]) - true)
                assert error <= max(5e-6 * abs(true), 1.5e-45), f"C={classes}, row {i}"


@every_case(lambda row: row.curve)
def test_the_smallest_slopes_of_float64_are_the_same_in_small_and_large_batches(row, numbers):
    leaf = torch.tensor([[0.0, 230.0, 5.0]], dtype=torch.float64).requires_grad_()
    target = torch.tensor([0])
    small = torch.autograd.grad(row.function(leaf, target, **numbers), leaf)[0]
    many = row.function(leaf.expand(6000, 3), target.expand(6000), **numbers)
    torch.testing.assert_close(small, torch.autograd.grad(many, leaf)[0], rtol=1e-9, atol=1e-300)


def test_reductions_of_half_precision_do_not_overflow():
    """A sum of 100,000 rows exceeds float16 along the way if it is not kept in float32.

    Where a row is an integral of hundreds of nodes, which would take gigabytes, 100 rows of the
    weight 1,000 have the same sum.
    """
    for row, numbers in CASES:
        rows, heavy = (100, 1000.0) if "noise" in numbers else (100_000, 1.0)
        logits = torch.zeros(rows, 10, dtype=torch.float16)
        target = torch.zeros(rows, dtype=torch.int64)
        weight = torch.full((10,), heavy, dtype=torch.float16) if heavy > 1 else None
        mean = row.function(logits, target, weight, **numbers)
        single = row.function(logits[:1], target[:1], **numbers)
        torch.testing.assert_close(mean, single, rtol=1e-3, atol=1e-4)


DIVIDED = ("normalized_cross_entropy", "normalized_focal", "active_negative")


@pytest.mark.parametrize("name", ["expected_error", "leaky_expected_error", *DIVIDED])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("masked", [False, True], ids=["", "masked"])
@pytest.mark.parametrize("ahead", [0.0, 40.0, 75.0, 500.0, -8.0, -60.0, -80.0, -500.0])
def test_blocks_of_many_classes_have_all_digits(name, dtype, ahead, masked):
    """One softmax while label and rivals have a share of it that is a number; beyond, the rest."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(9, 100, 20, dtype=torch.float64, generator=generator)
    target = torch.randint(0, 100, (9, 20), generator=generator)
    logits.scatter_add_(1, target.unsqueeze(1), torch.full((9, 1, 20), ahead).double())
    logits[1:3] += 1e3
    logits[3:5, 50] += 18  # rivals with nearly all
    if masked:
        logits[0, 7] = -torch.inf
        target[0].clamp_(max=6)
    logits = logits.to(dtype)
    function = getattr(functional, name)

    def both(leaf):
        found = function(leaf, target, reduction="none")
        return found, torch.autograd.grad(found, leaf, torch.ones_like(found))[0]

    found, grad = both(logits.clone().requires_grad_())
    wide = logits.double()
    rows, labels = wide.movedim(1, -1).reshape(-1, 100), target.reshape(-1)
    exact = [
        both_of_rows(function, z, t) for z, t in zip(rows.split(50), labels.split(50), strict=True)
    ]
    value = torch.cat([one[0] for one in exact]).reshape(9, 20)
    slope = torch.cat([one[1] for one in exact]).reshape(9, 20, 100).movedim(-1, 1)
    rtol = {torch.float32: 3e-6, torch.bfloat16: 8e-3, torch.float64: 1e-10}[dtype]
    tiny = 1e-30 if dtype != torch.float64 else 1e-300
    torch.testing.assert_close(found.double(), value, rtol=rtol, atol=tiny)
    largest = slope.abs().amax(1, keepdim=True)
    assert ((grad.double() - slope).abs() <= 3 * rtol * largest + tiny).all()


def both_of_rows(function, logits, target):
    leaf = logits.clone().requires_grad_()
    found = function(leaf, target, reduction="none")
    return found.detach(), torch.autograd.grad(found.sum(), leaf)[0]


@pytest.mark.parametrize("a", [1e-5, 0.005, 0.0124, 0.0126, 0.5])
def test_an_exponential_of_any_width_has_its_digits(a):
    logits = torch.tensor(
        [[2.0, 0.0, -1.0], [-8.0, 0.0, 3.0], [40.0, 0.0, 0.0], [-40.0, 0.0, 1.0]],
        dtype=torch.float64,
        requires_grad=True,
    )
    target = torch.zeros(4, dtype=torch.int64)
    found = functional.asymmetric_exponential(logits, target, a=a, reduction="none")
    (grad,) = torch.autograd.grad(found.sum(), logits)
    with mp.workdps(60):
        chance = [mp.exp(z[0]) / sum(map(mp.exp, z)) for z in logits.tolist()]
        value = [mp.exp(-p / mp.mpf(a)) - mp.exp(-1 / mp.mpf(a)) for p in chance]
        slope = [-p * (1 - p) / a * mp.exp(-p / mp.mpf(a)) for p in chance]
    np.testing.assert_allclose(found.tolist(), list(map(float, value)), rtol=2e-14, atol=1e-300)
    np.testing.assert_allclose(
        grad[:, 0].tolist(), list(map(float, slope)), rtol=2e-14, atol=1e-300
    )
    assert grad.isfinite().all()


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("asymmetric_generalized_cross_entropy", {"a": 6.0, "q": 500.0}),
        ("asymmetric_unhinged", {"a": 6.0, "q": 60.0}),
        ("asymmetric_unhinged", {"a": 1.01, "q": 60.0}),
        ("normalized_and_asymmetric_generalized", {"a": 6.0, "q": 50.0}),
    ],
)
def test_powers_beyond_all_numbers_are_refused(name, numbers):
    with pytest.raises(ValueError, match=r"^q must leave \(a [+-] 1\)\^q within float32; got"):
        getattr(functional, name)(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64), **numbers)
