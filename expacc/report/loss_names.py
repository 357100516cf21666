"""What losses are called in front of people, and how they are drawn: the same in every chart.

Names and looks are those of ``expacc.registry``; here are those of the page itself.
"""

from dataclasses import dataclass

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


# What charts are drawn with; the page's style sheet repaints them (see `DARK`).
INK, MUTED, LINES = "#1b2430", "#5d6875", "#d5dae1"

# From poor to good.
SCALE = ("#e3d9b0", "#c9d3a8", "#9fc5a8", "#6fb0ac", "#4593ad", "#2b6f9f", "#1d4a80", "#152a57")

# (colour by day, by night, marker, dash) of every loss, then of what is run beside them.
_LOOKS = {name: SPECS[name].look for name in list_losses()}
_LOOKS[OUTSIDE] = ("#8a94a1", "#7d8896", "H", ":")

_NIGHT_SCALE = (
    *("#3a3a33", "#3c4a44", "#3f5f5e", "#437a80", "#52989f", "#74b6b6", "#a6d3c4", "#e6efcf"),
)
# Day → night: the same hues, light enough for a dark page.
DARK = {
    INK: "#e6eaf0",
    MUTED: "#9aa5b3",
    LINES: "#343d49",
    **{day: night for day, night, _, _ in _LOOKS.values()},
    **dict(zip(SCALE, _NIGHT_SCALE, strict=True)),
}


@dataclass(frozen=True)
class Look:
    """How a loss is drawn."""

    colour: str
    marker: str
    dash: str


def looks(losses: set[str]) -> dict[str, Look]:
    """Give each loss its look; losses of the user's own take what the known ones leave."""
    spare = iter([loss for loss in [*_LOOKS][1:-1] if loss not in losses] * (1 + len(losses)))
    found = {}
    for loss in sorted(losses, key=loss_order):
        day, _, marker, dash = _LOOKS[loss if loss in _LOOKS else next(spare, "focal")]
        found[loss] = Look(day, marker, dash)
    return found
