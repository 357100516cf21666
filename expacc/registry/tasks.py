"""Our losses for other tasks: ranked classes, classes that count the same, yes/no labels."""

from expacc.registry.spec import LossSpec

__all__ = ["TASKS"]

_YES_NO = "yes/no labels, one logit each"
_SIBLING = "; two classes of the trainer are the same thing"

TASKS = (
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
