"""Bad input gets one sentence that names the argument, the value and, where known, the cure."""

import math

import pytest
import torch

import expacc
from expacc import argmax_probabilities, orthant_prob, schedules
from expacc.functional import (
    complement_entropy,
    exact_error,
    expected_cost,
    expected_error,
    focal,
    generalized_cross_entropy,
    hinge,
    leaky_expected_error,
    mixed_expected_error,
    poly1_cross_entropy,
    tamed_cross_entropy,
)

Z = torch.zeros(4, 3)
Y = torch.tensor([0, 1, 2, 0])
W = torch.ones(3)
TRAINED = torch.ones(3, requires_grad=True)
GRID = torch.zeros(4, 3, 7)
NOTHING = {"ce_weight": 0, "error_weight": 0}
ONE, NAN, INF = torch.tensor(1.0), math.nan, math.inf
focus, sigma = schedules.focus_gradual, schedules.sigma_vision
centers = expacc.MaxMahalanobisCenterLoss
scheduled = expacc.ScheduledLoss
FOCAL = expacc.FocalLoss()

# the call, the exception, the argument's name, a piece of the sentence
BAD = [
    # the contract of F.cross_entropy
    (lambda: expected_error([[0.0]], Y), TypeError, "logits", "list"),
    (lambda: expected_error(Z.long(), Y), TypeError, "logits", "torch.int64"),
    (lambda: expected_error(Z + 0j, Y), TypeError, "logits", "complex"),
    (lambda: expected_error(ONE, Y), ValueError, "logits", "axes"),
    (lambda: expected_error(torch.zeros(4, 0), Y), ValueError, "logits", "one class"),
    (lambda: expected_error(Z, [0, 1]), TypeError, "target", "list"),
    (lambda: expected_error(Z, Y > 0), TypeError, "target", "torch.bool"),
    (lambda: expected_error(Z, Y.float()), ValueError, "target", "target.long()"),
    (lambda: expected_error(Z, Y[:3]), ValueError, "target", "(3,)"),
    (lambda: expected_error(Z, Y[:, None]), ValueError, "target", "(4, 1)"),
    (lambda: expected_error(GRID.mT, torch.zeros(4, 7).long()), ValueError, "target", "axis 1"),
    (lambda: expected_error(GRID, GRID.mT), ValueError, "target", "(4, 3, 7)"),
    (lambda: expected_error(Z, Z.long()), ValueError, "target", "(4, 3)"),
    (lambda: expected_error(Z, Y + 1), ValueError, "target", "got 3 at row 2"),
    (lambda: expected_error(Z, Y - 1), ValueError, "target", "got -1 at row 0"),
    (lambda: expected_error(Z[0], torch.tensor(9)), ValueError, "target", "got 9."),
    (lambda: expected_error(Z, Y.to("meta")), ValueError, "target", "meta"),
    (lambda: expacc.FocalLoss(gama=2.0), TypeError, "FocalLoss", "gamma, alpha, shift"),
    (lambda: expacc.FocalLoss(gama=2.0), TypeError, "FocalLoss", "argument 'gama'"),
    (lambda: expacc.FocalLoss(None, 2.0), TypeError, "FocalLoss", "got too many positional"),
    (lambda: expected_error(Z, Y, reduction="avg"), ValueError, "reduction", "'avg'"),
    (lambda: expected_error(Z, Y, reduction=None), ValueError, "reduction", "None"),
    (lambda: expected_error(Z, Y, ignore_index=1.0), TypeError, "ignore_index", "1.0"),
    (lambda: expected_error(Z, Z, ignore_index=1), ValueError, "ignore_index", "got 1"),
    (lambda: expected_error(Z, Y, label_smoothing=1.5), ValueError, "label_smoothing", "1.5"),
    (lambda: expected_error(Z, Y, label_smoothing=NAN), ValueError, "label_smoothing", "nan"),
    (lambda: expected_error(Z, Y, label_smoothing="0.1"), TypeError, "label_smoothing", "'0.1'"),
    (lambda: expected_error(Z, Y, weight=[1, 1, 1]), TypeError, "weight", "list"),
    (lambda: expected_error(Z, Y, weight=W[:2]), ValueError, "weight", "(2,)"),
    (lambda: expected_error(Z, Y, weight=torch.ones(4)), ValueError, "weight", "(4,)"),
    (lambda: expected_error(Z, Y, weight=W.long()), TypeError, "weight", "int64"),
    (lambda: expected_error(Z, Y, weight=-W), ValueError, "weight", "-1.0"),
    (lambda: expected_error(Z, Y, weight=W * NAN), ValueError, "weight", "nan"),
    (lambda: expected_error(Z, Y, weight=W / 0), ValueError, "weight", "inf"),
    (lambda: expected_error(Z, Y, weight=TRAINED), ValueError, "weight", "detach"),
    (lambda: expected_error(Z, Y, weight=W.to("meta")), ValueError, "weight", "meta"),
    # the losses' own numbers; a tensor is none, as its value could not be refused inside a graph
    (lambda: leaky_expected_error(Z, Y, leak=-0.1), ValueError, "leak", "-0.1"),
    (lambda: leaky_expected_error(Z, Y, leak=INF), ValueError, "leak", "inf"),
    (lambda: leaky_expected_error(Z, Y, leak=True), TypeError, "leak", "True"),
    (lambda: leaky_expected_error(Z, Y, leak=ONE), TypeError, "leak", "tensor"),
    (lambda: mixed_expected_error(Z, Y, focus=0.7), ValueError, "focus", "expected error alone"),
    (lambda: mixed_expected_error(Z, Y, focus=0.2, error_weight=1), ValueError, "focus", "one or"),
    (lambda: mixed_expected_error(Z, Y, ce_weight=-1.0), ValueError, "ce_weight", "-1.0"),
    (lambda: mixed_expected_error(Z, Y, ce_weight=ONE), TypeError, "ce_weight", "tensor"),
    (lambda: mixed_expected_error(Z, Y, error_weight=-1.0), ValueError, "error_weight", "-1.0"),
    (lambda: mixed_expected_error(Z, Y, None, **NOTHING), ValueError, "ce_weight", "both"),
    (lambda: expected_error(Z, Y, label_smoothing=ONE), TypeError, "label_smoothing", "tensor"),
    (lambda: hinge(Z, Y, margin=0.0), ValueError, "margin", "> 0"),
    (lambda: hinge(Z, Y, margin=ONE), TypeError, "margin", "tensor"),
    (lambda: hinge(Z, Z), ValueError, "target", "hinge"),
    (lambda: hinge(Z, Y, label_smoothing=0.1), ValueError, "label_smoothing", "hinge"),
    (lambda: complement_entropy(Z, Z), ValueError, "target", "complement_entropy"),
    (lambda: focal(Z, Y, gamma=-1.0), ValueError, "gamma", "-1.0"),
    (lambda: focal(Z, Y, gamma=ONE), TypeError, "gamma", "tensor"),
    (lambda: focal(Z, Y, alpha=-1.0), ValueError, "alpha", "-1.0"),
    (lambda: generalized_cross_entropy(Z, Y, q=0.0), ValueError, "q", "limit at 0"),
    (lambda: generalized_cross_entropy(Z, Y, q=2.0), ValueError, "q", "(0, 1]"),
    (lambda: generalized_cross_entropy(Z, Y, truncation=1.0), ValueError, "truncation", "(0, 1)"),
    (lambda: tamed_cross_entropy(Z, Y, taming=-0.5), ValueError, "taming", "-0.5"),
    (lambda: poly1_cross_entropy(Z, Y, epsilon=-2.0), ValueError, "epsilon", "-2.0"),
    # Modules refuse when they are made
    (lambda: expacc.LeakyExpectedErrorLoss(leak=-1.0), ValueError, "leak", "-1.0"),
    (lambda: expacc.FocalLoss(-W), ValueError, "weight", "-1.0"),
    (lambda: expacc.HingeLoss(reduction="max"), ValueError, "reduction", "'max'"),
    (lambda: expacc.ExactLoss(sigma=-1.0), ValueError, "sigma", "-1.0"),
    (lambda: expacc.ExactLoss(sigma=torch.tensor([1.0, -1.0])), ValueError, "sigma", "-1.0"),
    (lambda: centers(0, 4), ValueError, "num_classes", "0"),
    (lambda: centers(10, 4), ValueError, "dim", "num_classes - 1 = 9"),
    (lambda: centers(3, 4, scale=-1.0), ValueError, "scale", "-1.0"),
    (lambda: centers(3, 4)(torch.zeros(5, 3), Y), ValueError, "features", "(5, 3)"),
    (lambda: centers(3, 4).logits(torch.zeros(5, 4).long()), TypeError, "features", "int64"),
    # EXACT and what is behind it
    (lambda: exact_error(Z, Y, sigma=0.0), ValueError, "sigma", "> 0"),
    (lambda: exact_error(Z, Y, sigma=-1.0), ValueError, "sigma", "-1.0"),
    (lambda: exact_error(Z, Y, sigma="1"), TypeError, "sigma", "'1'"),
    (lambda: exact_error(Z, Y, sigma=torch.ones(5)), ValueError, "sigma", "(5,)"),
    (lambda: exact_error(Z, Y, sigma=torch.ones(4, 2)), ValueError, "sigma", "(4, 2)"),
    (lambda: exact_error(Z, Y, sigma=torch.ones(3).long()), TypeError, "sigma", "int64"),
    (lambda: exact_error(Z[:3], Y[:3], sigma=torch.ones(3)), ValueError, "sigma", "(3, 1)"),
    (lambda: exact_error(Z, Y, margin=0.0), ValueError, "margin", "> 0"),
    (lambda: exact_error(Z, Y, margin=ONE), TypeError, "margin", "tensor"),
    (lambda: exact_error(Z, Y, standardize="batch"), ValueError, "standardize", "'batch'"),
    (lambda: exact_error(Z, Y, noise="cauchy"), ValueError, "noise", "'cauchy'"),
    (lambda: exact_error(Z, Y, topk=0), ValueError, "topk", "got 0"),
    (lambda: exact_error(Z, Y, topk=1.5), TypeError, "topk", "1.5"),
    (lambda: exact_error(Z, Y, log=2), ValueError, "log", "got 2"),
    (lambda: exact_error(Z, Y, impl="cuda"), ValueError, "impl", "'cuda'"),
    (lambda: exact_error(Z, Y + 1), ValueError, "target", "at row 2"),
    (lambda: orthant_prob([0.0]), TypeError, "margins", "list"),
    (lambda: orthant_prob(torch.zeros(3).long()), TypeError, "margins", "int64"),
    (lambda: orthant_prob(ONE), ValueError, "margins", "axes"),
    (lambda: orthant_prob(torch.zeros(3), nodes=0), ValueError, "nodes", "0"),
    (lambda: argmax_probabilities(Z, sigma=0.0), ValueError, "sigma", "0.0"),
    (lambda: argmax_probabilities(Z, torch.ones(4)), ValueError, "sigma", "(4,)"),
    (lambda: argmax_probabilities(Z, torch.ones(4, 1).long()), TypeError, "sigma", "int64"),
    (lambda: argmax_probabilities(Z, noise="uniform"), ValueError, "noise", "'uniform'"),
    (lambda: expected_cost(Z, Y, torch.ones(3, 2)), ValueError, "cost", "(3, 2)"),
    (lambda: expected_cost(Z, Y, [[0]]), TypeError, "cost", "list"),
    (lambda: expected_cost(Z, Y, torch.ones(3, 3).long()), TypeError, "cost", "int64"),
    # schedules
    (lambda: schedules.linear(0, 1)(1.2), ValueError, "progress", "1.2. Use step / total_steps"),
    (lambda: focus("1"), TypeError, "progress", "'1'"),
    (lambda: schedules.geometric(0, 1), ValueError, "start", "> 0"),
    (lambda: schedules.phases([]), ValueError, "values", "none"),
    (lambda: schedules.phases([0, 1], [0.2, 0.9]), ValueError, "ends", "0.9"),
    (lambda: schedules.phases([0, 1, 2], [0.5, 0.4, 1]), ValueError, "ends", "0.4"),
    (lambda: schedules.phases([0, 1, 2], [0.5, 1]), ValueError, "ends", "3"),
    (lambda: schedules.constant(INF), ValueError, "value", "inf"),
    (lambda: schedules.per_epoch(10.0, 3), TypeError, "schedule", "Use expacc.schedules.constant"),
    (lambda: schedules.per_epoch(sigma, 2.0), TypeError, "epochs", "2.0"),
    (lambda: schedules.per_epoch(sigma, True), TypeError, "epochs", "True"),
    (lambda: schedules.per_epoch(sigma, 0), ValueError, "epochs", ">= 1; got 0"),
    (lambda: schedules.per_epoch(sigma, 1, reach_end=True), ValueError, "epochs", "One epoch"),
    (lambda: schedules.per_epoch(sigma, 4, reach_end=1), TypeError, "reach_end", "got 1"),
    (lambda: schedules.per_epoch(sigma, 4)(-0.1), ValueError, "progress", "-0.1"),
    (lambda: scheduled(FOCAL, focus=focus), ValueError, "focus", "gamma, alpha"),
    (lambda: scheduled(FOCAL, gamma=2.0), TypeError, "gamma", "constant"),
    (lambda: scheduled(FOCAL), ValueError, "schedules", "none"),
    (lambda: scheduled(expected_error, leak=focus), TypeError, "loss", "function"),
    (lambda: scheduled(FOCAL, gamma=focus).advance(0), ValueError, "total_steps", "0"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "name", "piece"), BAD)
def test_bad_input_gets_a_sentence(call, kind, name, piece):
    with pytest.raises(kind) as caught:
        call()
    sentence = str(caught.value)
    assert type(caught.value) is kind
    assert sentence.startswith(name)
    assert " must " in sentence
    assert "got " in sentence
    assert piece in sentence
    assert "\n" not in sentence
    assert sentence.endswith(".")


def test_kernels_on_a_cpu_get_the_reason():
    with pytest.raises(ValueError, match="needs a CUDA tensor; logits are on cpu"):
        exact_error(Z, Y, impl="triton")
