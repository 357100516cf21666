"""Identities between the losses, limits, and where gradients peak."""

import mpmath as mp
import torch
import torch.nn.functional as F

import expacc
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


# ------------------------------------------------------------------ losses against wrong labels


def test_rivals_that_are_ours_under_another_name():
    error = rows(functional.expected_error)
    constant = -torch.tensor(1e-4).double().log().item()
    torch.testing.assert_close(rows(baselines.reverse_cross_entropy), error * 9.210340371976182)
    close(
        rows(baselines.symmetric_cross_entropy, ce_weight=0.3, rce_weight=2.0),
        rows(functional.mixed_expected_error, ce_weight=0.3, error_weight=2 * 9.210340371976182),
    )
    assert abs(constant - 9.2103) < 1e-4
    close(rows(baselines.taylor_cross_entropy, terms=1), error)
    close(rows(baselines.asymmetric_unhinged, a=3.0, q=1.0), error)
    close(rows(baselines.normalized_focal, gamma=0.0), rows(baselines.normalized_cross_entropy))


def test_limits_of_rivals():
    error, entropy = rows(functional.expected_error), F.cross_entropy(Z, Y, reduction="none")
    near = rows(baselines.jensen_shannon, label_share=1e-12)
    torch.testing.assert_close(near, entropy, rtol=1e-6, atol=1e-12)
    near = rows(baselines.jensen_shannon, label_share=1 - 1e-15)
    torch.testing.assert_close(near, error, rtol=0.05, atol=1e-12)  # as 1 / log(1 - share)
    sure = entropy < 2
    near = rows(baselines.taylor_cross_entropy, terms=400)
    torch.testing.assert_close(near[sure], entropy[sure], rtol=1e-9, atol=1e-12)
    near = rows(baselines.asymmetric_generalized_cross_entropy, a=1e-12, q=0.7)
    torch.testing.assert_close(near, rows(baselines.generalized_cross_entropy), rtol=1e-9, atol=0)


def test_normalized_losses_sum_to_one_over_the_labels():
    for function in (baselines.normalized_cross_entropy, baselines.normalized_focal):
        labels = torch.arange(6)
        total = function(Z[:1].expand(6, 6), labels, reduction="sum")
        close(total, torch.ones_like(total))


def test_normalized_gradients_live_where_p_underflows():
    """Two classes far apart: dL/dz_y = (1 - p)/S - (u/S²)(1 - 2p), by mpmath."""
    for far in (50.0, 200.0, 600.0):
        for label in (0, 1):
            leaf = torch.tensor([[far, 0.0]], dtype=torch.float64, requires_grad=True)
            value = baselines.normalized_cross_entropy(leaf, torch.tensor([label]))
            (grad,) = torch.autograd.grad(value, leaf)
            with mp.workdps(600):
                odds = mp.exp(-mp.mpf(far) if label == 0 else mp.mpf(far))
                u, p = -mp.log1p(odds), 1 / (1 + odds)
                total = u + mp.log(odds) + u
                true = (1 - p) / total - u / total**2 * (1 - 2 * p)
            assert abs(grad[0, label].item() - true) <= 1e-12 * abs(true)
            assert grad[0, 1 - label] == -grad[0, label]


def test_numbers_for_many_classes():
    few, many = (expacc.get_loss("symmetric_cross_entropy", classes=c) for c in (31, 32))
    assert (few.ce_weight, few.rce_weight) == (0.1, 1.0)
    assert (many.ce_weight, many.rce_weight) == (6.0, 0.1)
    assert expacc.get_loss("jensen_shannon", classes=100, label_share=0.5).label_share == 0.5
