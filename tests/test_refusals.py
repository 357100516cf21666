"""Bad input gets one sentence that names the argument, the value and, where known, the cure."""

import pytest
import torch

import expacc
from expacc import baselines, functional, schedules
from expacc.functional import (
    expected_error,
    leaky_expected_error,
    mixed_expected_error,
)

Z = torch.zeros(4, 3)
Y = torch.tensor([0, 1, 2, 0])
W = torch.ones(3)
GRID = torch.zeros(4, 3, 7)


def unlike(value, dtype):
    return torch.full((3,), value, dtype=dtype)


# (what, call, exception, the argument's name, a piece of the sentence)
BAD = [
    ("logits not a tensor", lambda: expected_error([[0.0]], Y), TypeError, "logits", "list"),
    ("integer logits", lambda: expected_error(Z.long(), Y), TypeError, "logits", "torch.int64"),
    ("complex logits", lambda: expected_error(Z + 0j, Y), TypeError, "logits", "complex"),
    ("scalar logits", lambda: expected_error(torch.tensor(1.0), Y), ValueError, "logits", "axes"),
    ("no class", lambda: expected_error(torch.zeros(4, 0), Y), ValueError, "logits", "one class"),
    ("target not a tensor", lambda: expected_error(Z, [0, 1]), TypeError, "target", "list"),
    ("boolean target", lambda: expected_error(Z, Y > 0), TypeError, "target", "torch.bool"),
    ("float labels", lambda: expected_error(Z, Y.float()), ValueError, "target", "target.long()"),
    ("target too short", lambda: expected_error(Z, Y[:3]), ValueError, "target", "(3,)"),
    ("target a column", lambda: expected_error(Z, Y[:, None]), ValueError, "target", "(4, 1)"),
    (
        "classes last",
        lambda: expected_error(GRID.mT, torch.zeros(4, 7).long()),
        ValueError,
        "target",
        "axis 1",
    ),
    (
        "probabilities turned",
        lambda: expected_error(GRID, GRID.mT),
        ValueError,
        "target",
        "(4, 3, 7)",
    ),
    ("integer one-hot", lambda: expected_error(Z, Z.long()), ValueError, "target", "(4, 3)"),
    ("label too large", lambda: expected_error(Z, Y + 1), ValueError, "target", "got 3 at row 2"),
    ("label negative", lambda: expected_error(Z, Y - 1), ValueError, "target", "got -1 at row 0"),
    (
        "label of a single row",
        lambda: expected_error(Z[0], torch.tensor(9)),
        ValueError,
        "target",
        "got 9.",
    ),
    (
        "unknown reduction",
        lambda: expected_error(Z, Y, reduction="avg"),
        ValueError,
        "reduction",
        "'avg'",
    ),
    (
        "reduction None",
        lambda: expected_error(Z, Y, reduction=None),
        ValueError,
        "reduction",
        "None",
    ),
    (
        "ignore_index a float",
        lambda: expected_error(Z, Y, ignore_index=1.0),
        TypeError,
        "ignore_index",
        "1.0",
    ),
    (
        "ignore_index with probabilities",
        lambda: expected_error(Z, Z, ignore_index=1),
        ValueError,
        "ignore_index",
        "got 1",
    ),
    (
        "smoothing above 1",
        lambda: expected_error(Z, Y, label_smoothing=1.5),
        ValueError,
        "label_smoothing",
        "1.5",
    ),
    (
        "smoothing NaN",
        lambda: expected_error(Z, Y, label_smoothing=float("nan")),
        ValueError,
        "label_smoothing",
        "nan",
    ),
    (
        "smoothing text",
        lambda: expected_error(Z, Y, label_smoothing="0.1"),
        TypeError,
        "label_smoothing",
        "'0.1'",
    ),
    (
        "weight not a tensor",
        lambda: expected_error(Z, Y, weight=[1, 1, 1]),
        TypeError,
        "weight",
        "list",
    ),
    ("weight too short", lambda: expected_error(Z, Y, weight=W[:2]), ValueError, "weight", "(2,)"),
    (
        "weight per row",
        lambda: expected_error(Z, Y, weight=torch.ones(4)),
        ValueError,
        "weight",
        "(4,)",
    ),
    ("integer weight", lambda: expected_error(Z, Y, weight=W.long()), TypeError, "weight", "int64"),
    ("negative weight", lambda: expected_error(Z, Y, weight=-W), ValueError, "weight", "-1.0"),
    (
        "NaN weight",
        lambda: expected_error(Z, Y, weight=W * float("nan")),
        ValueError,
        "weight",
        "nan",
    ),
    ("infinite weight", lambda: expected_error(Z, Y, weight=W / 0), ValueError, "weight", "inf"),
    (
        "weight with gradient",
        lambda: expected_error(Z, Y, weight=W.clone().requires_grad_()),
        ValueError,
        "weight",
        "detach",
    ),
    (
        "target on another device",
        lambda: expected_error(Z, Y.to("meta")),
        ValueError,
        "target",
        "meta",
    ),
    (
        "weight on another device",
        lambda: expected_error(Z, Y, weight=W.to("meta")),
        ValueError,
        "weight",
        "meta",
    ),
    ("negative leak", lambda: leaky_expected_error(Z, Y, leak=-0.1), ValueError, "leak", "-0.1"),
    (
        "infinite leak",
        lambda: leaky_expected_error(Z, Y, leak=float("inf")),
        ValueError,
        "leak",
        "inf",
    ),
    ("boolean leak", lambda: leaky_expected_error(Z, Y, leak=True), TypeError, "leak", "True"),
    (
        "focus 0.7",
        lambda: mixed_expected_error(Z, Y, focus=0.7),
        ValueError,
        "focus",
        "0.5 means expected error alone",
    ),
    (
        "focus and weights",
        lambda: mixed_expected_error(Z, Y, focus=0.2, error_weight=1.0),
        ValueError,
        "focus",
        "one or the other",
    ),
    (
        "negative ce_weight",
        lambda: mixed_expected_error(Z, Y, ce_weight=-1.0),
        ValueError,
        "ce_weight",
        "-1.0",
    ),
    (
        "negative error_weight",
        lambda: mixed_expected_error(Z, Y, error_weight=-1.0),
        ValueError,
        "error_weight",
        "-1.0",
    ),
    (
        "both weights 0",
        lambda: mixed_expected_error(Z, Y, ce_weight=0.0, error_weight=0.0),
        ValueError,
        "ce_weight",
        "both",
    ),
    ("margin 0", lambda: baselines.hinge(Z, Y, margin=0.0), ValueError, "margin", "> 0"),
    ("hinge of probabilities", lambda: baselines.hinge(Z, Z), ValueError, "target", "hinge"),
    (
        "smoothed hinge",
        lambda: baselines.hinge(Z, Y, label_smoothing=0.1),
        ValueError,
        "label_smoothing",
        "hinge",
    ),
    (
        "complement of probabilities",
        lambda: baselines.complement_entropy(Z, Z),
        ValueError,
        "target",
        "complement_entropy",
    ),
    ("negative gamma", lambda: baselines.focal(Z, Y, gamma=-1.0), ValueError, "gamma", "-1.0"),
    ("negative alpha", lambda: baselines.focal(Z, Y, alpha=-1.0), ValueError, "alpha", "-1.0"),
    (
        "q 0",
        lambda: baselines.generalized_cross_entropy(Z, Y, q=0.0),
        ValueError,
        "q",
        "limit at 0",
    ),
    ("q 2", lambda: baselines.generalized_cross_entropy(Z, Y, q=2.0), ValueError, "q", "(0, 1]"),
    (
        "truncation 1",
        lambda: baselines.generalized_cross_entropy(Z, Y, truncation=1.0),
        ValueError,
        "truncation",
        "(0, 1)",
    ),
    (
        "negative taming",
        lambda: baselines.tamed_cross_entropy(Z, Y, taming=-0.5),
        ValueError,
        "taming",
        "-0.5",
    ),
    (
        "epsilon -2",
        lambda: baselines.poly1_cross_entropy(Z, Y, epsilon=-2.0),
        ValueError,
        "epsilon",
        "-2.0",
    ),
    (
        "module with a bad leak",
        lambda: expacc.LeakyExpectedErrorLoss(leak=-1.0),
        ValueError,
        "leak",
        "-1.0",
    ),
    ("module with a bad weight", lambda: expacc.FocalLoss(weight=-W), ValueError, "weight", "-1.0"),
    (
        "module with a bad reduction",
        lambda: expacc.HingeLoss(reduction="max"),
        ValueError,
        "reduction",
        "'max'",
    ),
    ("no classes", lambda: expacc.MaxMahalanobisCenterLoss(0, 4), ValueError, "num_classes", "0"),
    (
        "too few features",
        lambda: expacc.MaxMahalanobisCenterLoss(10, 4),
        ValueError,
        "dim",
        "num_classes - 1 = 9",
    ),
    (
        "negative scale",
        lambda: expacc.MaxMahalanobisCenterLoss(3, 4, scale=-1.0),
        ValueError,
        "scale",
        "-1.0",
    ),
    (
        "wrong features",
        lambda: expacc.MaxMahalanobisCenterLoss(3, 4)(torch.zeros(5, 3), Y),
        ValueError,
        "features",
        "(5, 3)",
    ),
    (
        "integer features",
        lambda: expacc.MaxMahalanobisCenterLoss(3, 4).logits(torch.zeros(5, 4).long()),
        TypeError,
        "features",
        "int64",
    ),
    ("progress 1.2", lambda: schedules.linear(0, 1)(1.2), ValueError, "progress", "1.2"),
    ("progress text", lambda: schedules.focus_gradual("1"), TypeError, "progress", "'1'"),
    ("geometric from 0", lambda: schedules.geometric(0, 1), ValueError, "start", "> 0"),
    ("no phase", lambda: schedules.phases([]), ValueError, "values", "none"),
    (
        "phases that end early",
        lambda: schedules.phases([0, 1], [0.2, 0.9]),
        ValueError,
        "ends",
        "0.9",
    ),
    (
        "phases out of order",
        lambda: schedules.phases([0, 1, 2], [0.5, 0.4, 1]),
        ValueError,
        "ends",
        "0.4",
    ),
    ("one end too few", lambda: schedules.phases([0, 1, 2], [0.5, 1]), ValueError, "ends", "3"),
    ("infinite constant", lambda: schedules.constant(float("inf")), ValueError, "value", "inf"),
    (
        "schedule of no number",
        lambda: expacc.ScheduledLoss(expacc.FocalLoss(), focus=schedules.focus_gradual),
        ValueError,
        "focus",
        "gamma, alpha",
    ),
    (
        "schedule not callable",
        lambda: expacc.ScheduledLoss(expacc.FocalLoss(), gamma=2.0),
        TypeError,
        "gamma",
        "constant",
    ),
    (
        "no schedule",
        lambda: expacc.ScheduledLoss(expacc.FocalLoss()),
        ValueError,
        "schedules",
        "none",
    ),
    (
        "scheduling a function",
        lambda: expacc.ScheduledLoss(functional.expected_error, leak=schedules.constant(1)),
        TypeError,
        "loss",
        "function",
    ),
    (
        "no steps",
        lambda: expacc.ScheduledLoss(expacc.FocalLoss(), gamma=schedules.constant(1)).advance(0),
        ValueError,
        "total_steps",
        "0",
    ),
]


@pytest.mark.parametrize(
    ("call", "kind", "name", "piece"), [b[1:] for b in BAD], ids=[b[0] for b in BAD]
)
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
