"""What losses are called in front of people, and which of them train for accuracy."""

from expacc.plain import plain
from expacc.registry import REFERENCE as REFERENCE
from expacc.registry import SPECS, list_losses

OUTSIDE = "logistic_regression"
DEFAULT_LOSSES = (
    "cross_entropy",
    "hinge",
    "focal",
    "leaky_expected_error",
    "mixed_expected_error",
    "exact",
)

ACCURACY_TRAINED = tuple(name for name, spec in SPECS.items() if spec.for_accuracy)

_NAMES = {name: SPECS[name].label for name in list_losses()} | {OUTSIDE: "logistic regression"}


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
