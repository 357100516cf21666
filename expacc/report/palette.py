"""One colour, marker and dash per loss, the same in every chart, by day and by night.

Okabe and Ito's colours, then Tol's muted ones: both sets can be told apart by the colour-blind.
Cross entropy, which all others are compared with, is drawn in the ink of the page.
"""

from dataclasses import dataclass

from expacc.report.loss_names import loss_order

__all__ = ["DARK", "INK", "LINES", "MUTED", "SCALE", "Look", "looks"]

# What charts are drawn with; the page's style sheet repaints them (see `DARK`).
INK, MUTED, LINES = "#1b2430", "#5d6875", "#d5dae1"

# From poor to good.
SCALE = ("#e3d9b0", "#c9d3a8", "#9fc5a8", "#6fb0ac", "#4593ad", "#2b6f9f", "#1d4a80", "#152a57")

_REFERENCE = "#3b4553"
_OUTSIDE = "#8a94a1"
_COLOURS = {
    "cross_entropy": _REFERENCE,
    "exact": "#0072b2",
    "leaky_expected_error": "#d55e00",
    "mixed_expected_error": "#009e73",
    "expected_error": "#b8578e",
    "hinge": "#c98900",
    "focal": "#3f9fd6",
    "mean_absolute_error": "#882255",
    "generalized_cross_entropy": "#332288",
    "tamed_cross_entropy": "#117733",
    "poly1_cross_entropy": "#999933",
    "complement_entropy": "#cc6677",
    "maximum_probability_cross_entropy": "#44aa99",
    "logistic_regression": _OUTSIDE,
}
_MARKERS = "osD^vPX<>ph8dH"
_DASHES = ("-", "-", "-", "-", "--", "--", "--", "--", "-.", "-.", "-.", ":", ":", ":")

_NIGHT_SCALE = (
    *("#3a3a33", "#3c4a44", "#3f5f5e", "#437a80", "#52989f", "#74b6b6", "#a6d3c4", "#e6efcf"),
)
# Day → night: the same hues, light enough for a dark page.
DARK = {
    INK: "#e6eaf0",
    MUTED: "#9aa5b3",
    LINES: "#343d49",
    _REFERENCE: "#d3dae3",
    "#0072b2": "#4db1ea",
    "#d55e00": "#ff8f47",
    "#009e73": "#3ccca3",
    "#b8578e": "#e58fc0",
    "#c98900": "#f0b93a",
    "#3f9fd6": "#8fd0f5",
    "#882255": "#d9699f",
    "#332288": "#9c8cf0",
    "#117733": "#62c281",
    "#999933": "#cdcd6a",
    "#cc6677": "#f295a3",
    "#44aa99": "#7fdccb",
    _OUTSIDE: "#7d8896",
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
    known, found = list(_COLOURS), {}
    spare = iter([loss for loss in known[1:-1] if loss not in losses] * (1 + len(losses)))
    for loss in sorted(losses, key=loss_order):
        place = known.index(loss if loss in _COLOURS else next(spare, "focal"))
        found[loss] = Look(_COLOURS[known[place]], _MARKERS[place], _DASHES[place])
    return found
