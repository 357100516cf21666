"""Our losses, and cross entropy, which all are compared with."""

from typing import Any

from expacc.registry.spec import REFERENCE, LossSpec
from expacc.schedules import focus_gradual, sigma_tabular

__all__ = ["OURS"]

_NO_MARGIN = 50.0  # in units of the noise: no row leads by more


def _exact_params(found: dict[str, float]) -> dict[str, Any]:
    # Not standardised: a loss that no scale of the logits changes feels no weight decay and cannot
    # go on from a solution at its own scale. That kept it behind its softmax sibling, most of all
    # where labels are wrong.
    return {**found, "standardize": False}


# Colours are Okabe and Ito's, then Tol's muted ones: both can be told apart by the colour-blind.
# Cross entropy, which all others are compared with, is drawn in the ink of the page.
OURS: tuple[LossSpec, ...] = (
    LossSpec(
        name=REFERENCE,
        label="cross entropy",
        formula="−u",
        source="`torch.nn.functional.cross_entropy`",
        when="the reference",
        family="reference",
        look=("#3b4553", "#d3dae3", "o", "-"),
        slope="cross_entropy",
    ),
    LossSpec(
        name="exact",
        function_name="exact_error",
        label="EXACT",
        formula="1 − P(y wins) with Gaussian noise on the logits",
        source="Karpukhin, Dereka and Kolesnikov (EXACT), Eq. 15 to 19",
        when="linear models on tables, with its schedule and `GradientNormalizer`",
        family="ours",
        look=("#0072b2", "#4db1ea", "s", "-"),
        defaults={"sigma": sigma_tabular, "margin": None},
        options={"standardize": True, "noise": "normal", "log": False},
        slope="exact",
        counts=("topk",),
        search={"sigma": (0.3, 4.0, 1.0), "margin": (2.0, _NO_MARGIN, _NO_MARGIN)},
        other={"sigma": 0.3, "margin": 3.0},  # nearer to the error rate itself, and so on car
        params_of=_exact_params,
        polish=tuple({"sigma": sigma, "standardize": False} for sigma in (1.0, 0.5, 2.0)),
        decay_factor=0.1,
        for_accuracy=True,
    ),
    LossSpec(
        name="leaky_expected_error",
        label="leaky expected error",
        formula="1 − p − leak·u",
        source="İrsoy 2019, Eq. 6",
        when="a first choice when labels may be wrong",
        family="ours",
        look=("#d55e00", "#ff8f47", "D", "-"),
        defaults={"leak": 0.1},
        slope=lambda u, n: u.exp() + n["leak"],
        search={"leak": (0.01, 1.0, 0.1)},
        polish=({"leak": 0.03}, {"leak": 0.1}),
        for_accuracy=True,
    ),
    LossSpec(
        name="mixed_expected_error",
        label="mixed expected error",
        formula="−ce_weight·u + error_weight·(1 − p), or by `focus`",
        source="Battash, Hazan and Wolf (mixing), Eq. 12 and 14",
        when="with a schedule that shifts from one to the other",
        family="ours",
        look=("#009e73", "#3ccca3", "^", "-"),
        defaults={"focus": 0.0},
        slope=lambda u, n: u.exp() * n["error_weight"] + n["ce_weight"],
        params_of=lambda found: {"focus": focus_gradual},
        polish=({"focus": focus_gradual},),
        for_accuracy=True,
    ),
    LossSpec(
        name="expected_error",
        label="expected error",
        formula="1 − p",
        source="İrsoy 2019, Eq. 5; mixing, Eq. 9 and 10",
        when="to fine-tune a trained model; many wrong labels",
        family="ours",
        look=("#b8578e", "#e58fc0", "v", "--"),
        slope=lambda u, n: u.exp(),
        params_of=lambda found: {"shift": "auto"},  # from random weights (docs/many-classes.md)
        decay_factor=0.1,
        for_accuracy=True,
    ),
    LossSpec(
        name="expected_cost",
        label="expected cost",
        formula="Σ_j cost[y, j]·P(argmax = j)",
        source="the expectation of EXACT, Eq. 15, or of the softmax",
        when="when mistakes differ in cost",
        family="ours",
        needs="a matrix of costs",
    ),
    LossSpec(
        name="linear_mixed_expected_error",
        label="mixed expected error of a linear layer",
        formula="as `mixed_expected_error`, of features @ weight.T + bias",
        source="mixing, Eq. 12 to 14",
        when="vocabularies: the logits are never kept",
        family="ours",
        needs="features and the layer's weight",
    ),
)

# For other tasks: ranked classes, classes that count the same, yes/no labels.
_YES_NO = "yes/no labels, one logit each"
_SIBLING = "; two classes of the trainer are the same thing"

OURS += (
    LossSpec(
        name="expected_distance",
        label="expected distance",
        formula="Σ_j |y − j|^power·P(argmax = j)",
        source="the expectation of EXACT, Eq. 15, or of the softmax",
        when="ranked classes; labels that are numbers are in their order, texts in that of letters",
        family="ours",
        look=("#8c510a", "#d9a05b", "$d$", "-"),
        defaults={"power": 1.0, "sigma": 1.0},
        slope="expected_distance",
    ),
    LossSpec(
        name="expected_balanced_error",
        label="expected balanced error",
        formula="mean over classes of the expected error of their rows",
        source="Brodersen et al. 2010, expected under the softmax or EXACT's noise",
        when="rare classes that count as much as common ones; a loss of the whole batch",
        family="ours",
        look=("#01665e", "#5ab4ac", "$b$", "-"),
        defaults={"sigma": 1.0},
        slope="expected_balanced_error",
    ),
    LossSpec(
        name="expected_f1_error",
        label="expected F1 error",
        formula="1 − F1 of the expected confusion matrix",
        source="van Rijsbergen 1979, of counts expected under the softmax or EXACT's noise",
        when="F1 is what is reported; a loss of the whole batch",
        family="ours",
        look=("#762a83", "#af8dc3", "$f$", "-"),
        defaults={"sigma": 1.0},
        options={"average": "macro"},
        slope="expected_f1_error",
    ),
    LossSpec(
        name="binary_expected_error",
        label="binary expected error",
        formula="t·(1 − p) + (1 − t)·p, p = sigmoid(z)",
        source="İrsoy 2019, Eq. 5",
        when="as `expected_error`, for yes/no and multi-label" + _SIBLING,
        family="binary",
        needs=_YES_NO,
    ),
    LossSpec(
        name="binary_leaky_expected_error",
        label="binary leaky expected error",
        formula="t·f(p) + (1 − t)·f(1 − p), f(p) = 1 − p − leak·log p",
        source="İrsoy 2019, Eq. 6",
        when="as `leaky_expected_error`, for yes/no and multi-label" + _SIBLING,
        family="binary",
        needs=_YES_NO,
        defaults={"leak": 0.1},
    ),
    LossSpec(
        name="binary_mixed_expected_error",
        label="binary mixed expected error",
        formula="t·f(p) + (1 − t)·f(1 − p), f(p) = −ce_weight·log p + error_weight·(1 − p)",
        source="mixing, Eq. 12 and 14",
        when="as `mixed_expected_error`, for yes/no and multi-label" + _SIBLING,
        family="binary",
        needs=_YES_NO,
        defaults={"focus": 0.0},
    ),
    LossSpec(
        name="binary_exact",
        function_name="binary_exact_error",
        label="binary EXACT",
        formula="t·Φ(−z/(sigma·√2)) + (1 − t)·Φ(z/(sigma·√2)), leads cut at `margin`",
        source="EXACT, Eq. 15 to 19, of two classes",
        when="as `exact_error`, for yes/no and multi-label, not standardised",
        family="binary",
        needs=_YES_NO,
        defaults={"sigma": 1.0, "margin": None},
    ),
)
