"""What losses are called in front of people, and which of them train for accuracy."""

from expacc.plain import plain

__all__ = [
    "ACCURACY_TRAINED",
    "DEFAULT_LOSSES",
    "OUTSIDE",
    "REFERENCE",
    "loss_name",
    "loss_order",
]

REFERENCE = "cross_entropy"
OUTSIDE = "logistic_regression"
DEFAULT_LOSSES = (
    "cross_entropy",
    "hinge",
    "focal",
    "leaky_expected_error",
    "mixed_expected_error",
    "exact",
)

_NAMES = {
    "cross_entropy": "cross entropy",
    "exact": "EXACT",
    "leaky_expected_error": "leaky expected error",
    "mixed_expected_error": "mixed expected error",
    "expected_error": "expected error",
    "hinge": "hinge",
    "focal": "focal",
    "mean_absolute_error": "mean absolute error",
    "generalized_cross_entropy": "generalised cross entropy",
    "tamed_cross_entropy": "tamed cross entropy",
    "poly1_cross_entropy": "Poly-1",
    "complement_entropy": "complement entropy",
    "maximum_probability_cross_entropy": "maximum probability",
    "logistic_regression": "logistic regression",
}

# Their values are (bounds of) the expected error, so a wrong label costs them at most 1 or so.
ACCURACY_TRAINED = (
    "exact",
    "leaky_expected_error",
    "mixed_expected_error",
    "expected_error",
    "mean_absolute_error",
)


def loss_name(loss: str) -> str:
    """Return a loss's name for people.

    >>> loss_name("exact"), loss_name("my_own_loss")
    ('EXACT', 'my own loss')
    """
    return _NAMES.get(loss) or plain(loss.replace("_", " "), 40)


def loss_order(loss: str) -> tuple[int, str]:
    """Sort key: known losses in their usual order, then others by name."""
    known = list(_NAMES)
    return (known.index(loss) if loss in known else len(known), loss)
