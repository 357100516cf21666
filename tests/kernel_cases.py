"""Batches of every kind that the kernels take, for the interpreter and for a GPU.

The truth is the loss of float64 logits, which never go to the kernels.
"""

import math

import torch

from expacc import functional as F

CURVES = (
    (F.expected_error, {}),
    (F.leaky_expected_error, {"shift": 1.0, "scale": 2.0}),
    (F.mixed_expected_error, {"ce_weight": 1.0, "error_weight": 0.0, "shift": "auto"}),
    (F.focal, {"gamma": 0.5, "alpha": 0.25, "scale": 0.5}),
    (F.focal, {"gamma": 0.0}),
    (F.generalized_cross_entropy, {"shift": -1.0}),
    (F.generalized_cross_entropy, {"truncation": 0.4}),
    (F.tamed_cross_entropy, {}),
    (F.tamed_cross_entropy, {"taming": 1}),
    (F.partially_huberized_cross_entropy, {}),
    (F.jensen_shannon, {"label_share": 0.001}),
    (F.taylor_cross_entropy, {"terms": 6}),
    (F.poly1_cross_entropy, {"epsilon": 2.0}),
    (F.symmetric_cross_entropy, {}),
    (F.asymmetric_generalized_cross_entropy, {"a": 1, "q": 2}),
    (F.asymmetric_unhinged, {"a": 2, "q": 2}),
    (F.asymmetric_exponential, {"a": 1}),
)
SHARES = (
    (F.normalized_cross_entropy, {}),
    (F.normalized_and_reverse_cross_entropy, {}),
    (F.normalized_and_asymmetric_generalized, {"a": 1, "q": 2}),
)


def drawn(*shape, seed=0, spread=4.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator) * spread


def labels_of(logits, seed=0, ignored=-100):
    """One of them ignored."""
    generator = torch.Generator().manual_seed(seed)
    shape = logits.shape[:1] + logits.shape[2:]
    labels = torch.randint(0, logits.shape[1], shape, generator=generator)
    labels.view(-1)[1] = ignored
    return labels


def weights(classes):
    return torch.rand(classes, generator=torch.Generator().manual_seed(7)) + 0.5


def curve_cases():
    z = drawn(5, 7)
    sick = z.clone()
    sick[0, 0] = 40.0
    sick[2, 1] = -math.inf
    sick[3, 4] = math.nan
    y = labels_of(z)
    for loss, settings in CURVES + SHARES:
        yield loss, z, y, {"weight": weights(7), **settings}
        yield loss, sick, y, {"reduction": "none", **settings}
        yield loss, z[:, :2], y.clamp(max=1), {"reduction": "sum", **settings}


def soft_cases():
    z = drawn(5, 7)
    y = labels_of(z)
    masked = z.clone()
    masked[0, 0] = 40.0
    masked[2, 1] = -math.inf
    masked[3, 4] = math.nan
    t = drawn(5, 7, seed=1).softmax(1)
    t[0] = 0
    t[0, 3] = 1
    t[2, 1] = 0
    for loss, settings in CURVES:
        yield loss, z, y, {"label_smoothing": 0.1, "weight": weights(7), **settings}
        yield loss, masked, t, {"reduction": "none", **settings}
    for loss, settings in CURVES[:3]:
        yield loss, masked, t, {"label_smoothing": 0.2, "weight": weights(7), **settings}
        yield loss, z[:, :1], y.clamp(max=0), {"label_smoothing": 0.3, **settings}
    long = drawn(2, 2500)
    yield F.leaky_expected_error, long, labels_of(long), {"label_smoothing": 0.1}
    yield F.leaky_expected_error, long, drawn(2, 2500, seed=1).softmax(1), {"reduction": "none"}


def map_cases(loss, long=False):
    """Segmentation maps in several layouts, with a void label."""
    for shape in ((2, 5, 3, 4), (2, 5, 6), (2, 70 if long else 40, 2, 1), (1, 3, 5, 1)):
        z = drawn(*shape)
        y = labels_of(z, ignored=255)
        keywords = {"ignore_index": 255, "weight": weights(shape[1])}
        layouts = [z, z.to(memory_format=torch.channels_last)] if z.ndim == 4 else [z]
        for scores in layouts:
            for reduction in ("mean", "none"):
                yield loss, scores, y, {"reduction": reduction, **keywords}


def soft_map_cases():
    for _, z, y, keywords in map_cases(None):
        yield F.leaky_expected_error, z, y, {"label_smoothing": 0.1, **keywords}
        probabilities = {**keywords, "ignore_index": -100}
        yield F.leaky_expected_error, z, drawn(*z.shape, seed=2).softmax(1), probabilities


def soft_exact_cases():
    shapes = ((2, 7, 1.0), (2, 20, 3.0), (2, 1, 1.0), (3, 2, 8.0), (2, 12, 1e-3))
    settings = ({}, {"reduction": "none", "sigma": 0.5}, {"standardize": False})
    for turn, (rows, classes, spread) in enumerate(shapes):
        z = drawn(rows, classes, spread=spread)
        smooth = {"label_smoothing": 0.1, "weight": weights(classes)}
        keywords = settings[turn % 3]
        yield F.exact_error, z, drawn(rows, classes, seed=1).softmax(1), keywords
        yield F.exact_error, z, labels_of(z), {**smooth, **settings[(turn + 1) % 3]}
    z = drawn(4, 7)
    z[0, 0] = 60.0
    z[1, 2] = -math.inf
    z[2, 3] = math.nan
    alone = {"reduction": "none", "standardize": False}
    yield F.exact_error, z, drawn(4, 7, seed=1).softmax(1), alone
    z = drawn(2, 5, 2, 2)
    yield F.exact_error, z, drawn(2, 5, 2, 2, seed=1).softmax(1), {"reduction": "none"}
    yield F.exact_error, z, labels_of(z, ignored=255), {"label_smoothing": 0.1, "ignore_index": 255}


def binary_cases():
    losses = (
        (F.binary_expected_error, {}),
        (F.binary_leaky_expected_error, {}),
        (F.binary_mixed_expected_error, {"ce_weight": 1.0, "error_weight": 0.0}),
        (F.binary_exact_error, {"sigma": 0.5, "margin": 1.0}),
        (F.binary_exact_error, {"sigma": 3.0}),
    )
    z = drawn(40, 60)
    z[0] *= 10
    hard = (drawn(40, 60, seed=1) > 0).float()
    soft = torch.rand(40, 60, generator=torch.Generator().manual_seed(2))
    wild = drawn(9)
    wild[:4] = torch.tensor([math.nan, math.inf, -math.inf, 80.0])
    labels = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.3, 0.5, 0.5, 1.0, 0.0])
    every = weights(40 * 60).view(40, 60)
    for loss, settings in losses:
        yield loss, z, hard, {"pos_weight": weights(60), **settings}
        yield loss, z, soft, {"reduction": "none", "weight": every, **settings}
        yield loss, z, soft, {"reduction": "sum", **settings}
        yield loss, wild, labels, {"reduction": "none", **settings}


def check(case, device="cpu", tolerance=2e-6):
    """The kernels' loss and gradient against float64's, on every row that has one."""
    loss, logits, target, keywords = case
    factors = {name: one for name, one in keywords.items() if isinstance(one, torch.Tensor)}
    leaf = logits.to(device).requires_grad_()
    here = {name: one.to(device) for name, one in factors.items()}
    found = loss(leaf, target.to(device), **{**keywords, **here})
    name = type(found.grad_fn).__name__
    assert name.startswith("_Fused"), (name, loss, logits.shape, keywords)
    upstream = torch.rand(found.shape, generator=torch.Generator().manual_seed(3)) + 0.5
    (grad,) = torch.autograd.grad(found, leaf, upstream.to(device))
    assert grad.shape == logits.shape
    true = logits.double().requires_grad_()
    exact = target.double() if target.is_floating_point() else target
    wide = {name: one.double() for name, one in factors.items()}
    expected = loss(true, exact, **{**keywords, **wide})
    (slope,) = torch.autograd.grad(expected, true, upstream.double())
    for ours, theirs in ((found.detach().cpu(), expected.detach()), (grad.cpu(), slope)):
        assert torch.equal(ours.isnan(), theirs.isnan()), (loss, keywords, ours, theirs)
        finite = theirs.isfinite()
        assert torch.equal(ours[~finite].nan_to_num(), theirs[~finite].nan_to_num().to(ours.dtype))
        scale = theirs[finite].abs().max().clamp(min=1e-30) if finite.any() else 1.0
        error = ((ours.double() - theirs)[finite].abs() / scale).max() if finite.any() else 0.0
        assert error <= tolerance, (loss, logits.shape, keywords, error)
