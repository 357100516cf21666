"""Identities between the losses, limits, and where gradients peak."""

import torch
import torch.nn.functional as F

from expacc import baselines, functional

Z = torch.randn(40, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
Y = torch.randint(0, 6, (40,), generator=torch.Generator().manual_seed(1))


def rows(function, **numbers):
    return function(Z, Y, reduction="none", **numbers)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


def slope(function, p, **numbers):
    """|dL/dlogit_y| of a two-class row with p(target) = p."""
    logits = torch.stack([torch.as_tensor(p).double(), 1 - torch.as_tensor(p).double()], -1).log()
    logits.requires_grad_()
    value = function(logits, torch.zeros(len(p), dtype=torch.int64), reduction="sum", **numbers)
    return torch.autograd.grad(value, logits)[0][:, 0].abs()


def test_poly1_is_the_mixture_and_leaky_is_a_scaled_poly1():
    close(
        rows(baselines.poly1_cross_entropy, epsilon=3.0),
        rows(functional.mixed_expected_error, ce_weight=1.0, error_weight=3.0),
    )
    leak = 0.2
    close(
        rows(functional.leaky_expected_error, leak=leak),
        leak * rows(baselines.poly1_cross_entropy, epsilon=1 / leak),
    )


def test_mae_is_twice_the_expected_error_and_gce_at_one_is_it():
    error = rows(functional.expected_error)
    close(rows(baselines.mean_absolute_error), 2 * error)
    close(rows(baselines.generalized_cross_entropy, q=1.0), error)


def test_losses_that_contain_cross_entropy():
    entropy = F.cross_entropy(Z, Y, reduction="none")
    close(rows(baselines.focal, gamma=0.0, alpha=None), entropy)
    close(rows(baselines.tamed_cross_entropy, taming=0.0), entropy)
    close(rows(baselines.poly1_cross_entropy, epsilon=0.0), entropy)
    near = rows(baselines.generalized_cross_entropy, q=1e-9)
    torch.testing.assert_close(near, entropy, rtol=1e-7, atol=1e-9)


def test_expected_error_is_bounded_and_below_cross_entropy():
    error = rows(functional.expected_error)
    assert (error <= 1).all()
    assert (error <= F.cross_entropy(Z, Y, reduction="none")).all()


def test_the_gradient_of_the_mixture_peaks_at_the_focus():
    p = torch.linspace(0.0005, 0.9995, 1999)
    for focus in (0.1, 0.25, 0.4, 0.5):
        peak = p[slope(functional.mixed_expected_error, p, focus=focus).argmax()]
        assert abs(peak - focus) < 1e-3
    for ce_weight, error_weight in ((1.0, 2.0), (0.5, 4.0)):
        peak = p[
            slope(
                functional.mixed_expected_error, p, ce_weight=ce_weight, error_weight=error_weight
            ).argmax()
        ]
        assert abs(peak - 0.5 * (1 - ce_weight / error_weight)) < 1e-3


def test_where_the_docstrings_say_that_gradients_peak():
    p = torch.linspace(0.0005, 0.9995, 1999)
    assert abs(p[slope(functional.expected_error, p).argmax()] - 0.5) < 1e-3
    assert abs(p[slope(functional.leaky_expected_error, p, leak=0.2).argmax()] - 0.4) < 1e-3
    q = 0.7
    peak = p[slope(baselines.generalized_cross_entropy, p, q=q).argmax()]
    assert abs(peak - q / (1 + q)) < 1e-3
    assert abs(p[slope(baselines.focal, p).argmax()] - 0.058) < 1e-3
    peak = p[slope(baselines.tamed_cross_entropy, p).argmax()].double()
    assert abs(0.8 * (1 - peak) - peak * (1 - peak.log())) < 2e-3


def test_equations_of_the_mixing_paper():
    """Eq. 13, the gradient of every logit."""
    logits = Z.clone().requires_grad_()
    ce_weight, error_weight = 0.7, 1.9
    value = functional.mixed_expected_error(
        logits, Y, reduction="sum", ce_weight=ce_weight, error_weight=error_weight
    )
    grad = torch.autograd.grad(value, logits)[0]
    p = Z.softmax(1)
    true = p.gather(1, Y[:, None])
    expected = p * (error_weight * true + ce_weight)
    at_true = error_weight * true**2 + true * (ce_weight - error_weight) - ce_weight
    close(grad, expected.scatter(1, Y[:, None], at_true))


def test_right_rows_have_no_maximum_probability_loss():
    best = Z.argmax(1)
    logits = Z.clone().requires_grad_()
    value = baselines.maximum_probability_cross_entropy(logits, best)
    assert value.item() == 0
    assert torch.equal(torch.autograd.grad(value, logits)[0], torch.zeros_like(Z))


def test_complement_entropy_does_not_see_the_true_class():
    lifted = Z + 5 * F.one_hot(Y, 6)
    close(
        baselines.complement_entropy(lifted, Y, reduction="none"),
        rows(baselines.complement_entropy),
    )
    uniform = baselines.complement_entropy(torch.zeros(1, 6).double(), torch.tensor([2]))
    close(uniform, -torch.tensor(5.0).double().log())
