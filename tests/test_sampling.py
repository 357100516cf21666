"""The authors' estimators are unbiased, reproducible and refuse what they cannot do."""

import math

import pytest
import torch

import expacc
from expacc.ops.sampling import genz_orthant_prob, log_derivative_orthant_prob

ESTIMATORS = [genz_orthant_prob, log_derivative_orthant_prob]
APPENDIX_C = (1.0, 2.0, 0.5, 10.0, 6.0, -3.0, -4.0, 5.0, 1.0, 0.0)
MARGINS = {
    "two classes": (0.7,),
    "two rivals": (-0.5, 1.0),
    "equal": (0.0,) * 6,
    "ahead": (2.0, 3.0, 2.5, 4.0),
    "behind": (-2.0, 0.5, -1.0),
    "mixed": (1.5, -0.3, 0.2, 3.0, -1.0, 0.8),
}

each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda f: f.__name__)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def with_gradient(function, margins, **options):
    margins = torch.as_tensor(margins, dtype=torch.float64).clone().requires_grad_()
    value = function(margins, **options)
    (gradient,) = torch.autograd.grad(value.sum(), margins)
    return value.detach(), gradient


def estimates(estimator, margins, samples, rows=2000, **options):
    """Value (rows) and gradient (rows, R), each row an estimate of its own for the same margins."""
    copies = torch.tensor(margins, dtype=torch.float64).expand(rows, -1)
    return with_gradient(estimator, copies, samples=samples, generator=seeded(), **options)


def deviations(estimated, truth):
    """How many standard errors the mean over rows is off."""
    error = estimated.std(0) / math.sqrt(len(estimated))
    return (estimated.mean(0) - truth).abs() / error.clamp(min=1e-12)


def root_mean_square(estimated, truth):
    return (estimated - truth).square().mean().sqrt()


@each_estimator
@pytest.mark.parametrize("margins", MARGINS.values(), ids=MARGINS)
def test_unbiased(estimator, margins):
    value, gradient = with_gradient(expacc.orthant_prob, margins)
    some_values, some_gradients = estimates(estimator, margins, samples=128)
    assert deviations(some_values, value).max() < 4
    assert deviations(some_gradients, gradient).max() < 4
    # The test has teeth: the mean is known to some per cent.
    assert some_values.std() / math.sqrt(2000) < 0.01 * value
    assert (some_gradients.std(0) / math.sqrt(2000)).max() < 0.05 * gradient.max()


def test_one_rival_needs_no_luck():
    m = torch.linspace(-4, 4, 9, dtype=torch.float64)
    value, gradient = with_gradient(genz_orthant_prob, m[:, None], samples=1, generator=seeded())
    torch.testing.assert_close(value, 0.5 * torch.erfc(-m / 2), rtol=1e-12, atol=1e-15)
    density = torch.exp(-m.square() / 4) / math.sqrt(4 * math.pi)
    torch.testing.assert_close(gradient[:, 0], density, rtol=1e-12, atol=0)


def test_the_gradient_is_theorem_4_3_without_its_misprint():
    # Given s_1 = 0 the second margin is N(m_2 - m_1/2, 3/2).
    first, second = 1.2, -0.4
    density = math.exp(-(first**2) / 4) / math.sqrt(4 * math.pi)

    def slope(mean):
        return density * 0.5 * math.erfc(-mean / math.sqrt(3))

    _, exact = with_gradient(expacc.orthant_prob, (first, second))
    assert exact[0].item() == pytest.approx(slope(second - first / 2), rel=1e-12)
    _, gradients = estimates(genz_orthant_prob, (first, second), samples=64)
    assert deviations(gradients[:, 0], slope(second - first / 2)) < 4
    assert deviations(gradients[:, 0], slope(second - first)) > 100  # as printed, s_1 = -m_1


@each_estimator
def test_errors_shrink_as_the_root_of_the_samples(estimator):
    truths = with_gradient(expacc.orthant_prob, MARGINS["mixed"])
    few, many = (estimates(estimator, MARGINS["mixed"], samples) for samples in (4, 100))
    for few_of, many_of, truth in zip(few, many, truths, strict=True):
        assert 4 < root_mean_square(few_of, truth) / root_mean_square(many_of, truth) < 6  # √25


def test_appendix_c():
    """One sample of Genz' gradient is nearer than 256 of the log-derivative (Fig. 9)."""
    value, gradient = with_gradient(expacc.orthant_prob, APPENDIX_C)
    genz = estimates(genz_orthant_prob, APPENDIX_C, samples=1, rows=1000)
    counted = estimates(log_derivative_orthant_prob, APPENDIX_C, samples=256, rows=1000)
    for genz_of, counted_of, truth in zip(genz, counted, (value, gradient), strict=True):
        genz_error = root_mean_square(genz_of, truth)
        assert 0 < genz_error < 0.3 * truth.norm()
        assert 10 * genz_error < root_mean_square(counted_of, truth)
    values, gradients = estimates(genz_orthant_prob, APPENDIX_C, samples=64)
    assert deviations(values, value) < 4
    near = gradient > 1e-12  # the rest underflows in the authors' arithmetic
    assert near.sum() == 7
    assert deviations(gradients[:, near], gradient[near]).max() < 4


def test_the_clip_is_wrong_far_behind_and_none_is_not():
    far = (-8.0,) * 4
    value, gradient = with_gradient(expacc.orthant_prob, far)
    clipped, _ = estimates(genz_orthant_prob, far, samples=64)
    assert 0 < clipped.mean() < 0.1 * value
    values, gradients = estimates(genz_orthant_prob, far, samples=64, clip=None)
    assert deviations(values, value) < 4
    assert deviations(gradients, gradient).max() < 4


def test_unsorted_rivals_come_one_after_the_other():
    ascending = (-0.5, 0.1, 1.2)
    values, gradients = estimates(genz_orthant_prob, ascending, 8, sort=False)
    sorted_values, sorted_gradients = estimates(genz_orthant_prob, ascending, 8)
    assert values.equal(sorted_values)
    assert gradients.equal(sorted_gradients)
    values, gradients = estimates(genz_orthant_prob, ascending[::-1], 8, sort=False)
    assert not values.equal(sorted_values)
    value, gradient = with_gradient(expacc.orthant_prob, ascending[::-1])
    assert deviations(values, value) < 5
    assert (deviations(gradients, gradient) < 5).all()


@pytest.mark.parametrize("clip", [5.0, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_margins_stay_finite(clip, dtype):
    extremes = torch.tensor([[-300.0, 0.0, 300.0], [-300.0] * 3, [300.0] * 3], dtype=dtype)
    extremes.requires_grad_()
    value = genz_orthant_prob(extremes, clip=clip, generator=seeded())
    (gradient,) = torch.autograd.grad(value.sum(), extremes)
    assert value.tolist() == [0, 0, 1]
    assert gradient.tolist() == [[0, 0, 0]] * 3


@each_estimator
def test_the_seed_decides_and_not_who_asks_for_a_gradient(estimator):
    margins = torch.randn(5, 7, generator=seeded(3)).requires_grad_()
    state = torch.get_rng_state()

    def both(seed):
        value = estimator(margins, generator=seeded(seed))
        return value, torch.autograd.grad(value.sum(), margins)[0]

    first, again, other = both(1), both(1), both(2)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[1], other[1])
    plain = estimator(margins.detach(), generator=seeded(1))
    with torch.no_grad():
        silent = estimator(margins, generator=seeded(1))
    assert not plain.requires_grad
    assert not silent.requires_grad
    torch.testing.assert_close(first[0].detach(), plain)
    assert torch.equal(torch.get_rng_state(), state)


@each_estimator
@pytest.mark.parametrize("shape", [(4,), (0, 4), (2, 3, 4), (5, 0), (2, 1)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_shapes_and_dtypes(estimator, shape, dtype):
    margins = torch.randn(shape, generator=seeded()).to(dtype).requires_grad_()
    before = margins.detach().clone()
    value = estimator(margins, generator=seeded())
    value.sum().backward()
    assert value.shape == shape[:-1]
    assert value.dtype == margins.grad.dtype == dtype
    assert torch.equal(margins, before)
    if shape[-1] == 0:
        assert value.tolist() == [1.0] * 5


@each_estimator
def test_each_row_gets_its_own_upstream_gradient_and_double_backward_is_refused(estimator):
    margins = torch.randn(3, 4, generator=seeded()).double().requires_grad_()
    upstream = torch.tensor([2.0, 0.0, -3.0], dtype=torch.float64)
    value = estimator(margins, generator=seeded())
    (summed,) = torch.autograd.grad(value.sum(), margins, retain_graph=True)
    (weighted,) = torch.autograd.grad(value, margins, upstream, retain_graph=True)
    torch.testing.assert_close(weighted, summed * upstream[:, None])
    (gradient,) = torch.autograd.grad(value.sum(), margins, create_graph=True)
    with pytest.raises(RuntimeError, match=r"must not be differentiated twice; got a double"):
        (value.sum() + gradient.square().sum()).backward()  # a penalty must not be lost silently


def test_strided_and_permuted_margins():
    margins = torch.randn(6, 6, generator=seeded()).double()
    turned, straight = margins.mT, margins.mT.contiguous()
    values = [genz_orthant_prob(m, generator=seeded()) for m in (turned, straight)]
    assert torch.equal(*values)
    # The margins are put in order first, so the order given does not matter.
    _, gradient = with_gradient(genz_orthant_prob, straight, generator=seeded())
    value, flipped = with_gradient(genz_orthant_prob, straight.flip(1), generator=seeded())
    torch.testing.assert_close(value, values[1])
    torch.testing.assert_close(flipped.flip(1), gradient)


def test_genz_needs_the_bytes_it_says():
    margins = torch.zeros(3, 10, requires_grad=True)
    needed = (10 * 11 + 3 * 11 + 10) * 16 * 3 * 4
    genz_orthant_prob(margins, generator=seeded(), max_bytes=needed)
    for most in (1, needed - 1):
        with pytest.raises(ValueError, match=f"max_bytes must be >= {needed:,}"):
            genz_orthant_prob(margins, generator=seeded(), max_bytes=most)
    margins = torch.zeros(256, 999)
    genz_orthant_prob(margins, generator=seeded())  # without a gradient there is no square
    with pytest.raises(ValueError, match=r"^max_bytes must be >= 16,\d{3}.* got 8,589,934,592\. "):
        genz_orthant_prob(margins.requires_grad_(), generator=seeded())


ONLY_GENZ = {"clip", "max_bytes"}


@each_estimator
@pytest.mark.parametrize(
    ("margins", "options", "exception", "sentence"),
    [
        ([0.0], {}, TypeError, "margins must be a torch.Tensor; got list."),
        (torch.zeros(3).long(), {}, TypeError, "margins must be a floating-point tensor; got"),
        (torch.tensor(0.0), {}, ValueError, "margins must have an axis"),
        (torch.zeros(3), {"samples": 0}, ValueError, "samples must be >= 1; got 0."),
        (torch.zeros(3), {"samples": 1.5}, TypeError, "samples must be an int; got 1.5."),
        (torch.zeros(3), {"samples": True}, TypeError, "samples must be an int; got True."),
        (torch.zeros(3), {"generator": 0}, TypeError, "generator must be a torch.Generator; got"),
        (torch.zeros(3, device="meta"), {}, ValueError, "generator must be on the device of"),
        (torch.zeros(3), {"clip": 0}, ValueError, "clip must be finite and > 0; got 0. Use None"),
        (torch.zeros(3), {"clip": math.inf}, ValueError, "clip must be finite and > 0; got inf."),
        (torch.zeros(3), {"clip": "5"}, TypeError, "clip must be a number; got '5'."),
        (torch.zeros(3), {"max_bytes": 0}, ValueError, "max_bytes must be >= 1; got 0."),
        (torch.zeros(3), {"max_bytes": 1e9}, TypeError, "max_bytes must be an int; got 1000000000"),
    ],
)
def test_bad_arguments(estimator, margins, options, exception, sentence):
    if ONLY_GENZ & options.keys() and estimator is not genz_orthant_prob:
        exception, sentence = TypeError, "log_derivative_orthant_prob() got an unexpected keyword"
    with pytest.raises(exception) as refusal:
        estimator(margins, **{"generator": seeded(), **options})
    assert str(refusal.value).startswith(sentence)
