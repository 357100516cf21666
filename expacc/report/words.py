"""How numbers are written, what losses are called and how they are drawn: the same everywhere."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from expacc.plain import plain
from expacc.registry import REFERENCE as REFERENCE
from expacc.registry import SPECS, list_losses, spec_of

NONE = "–"  # where there is no number


def percent(share: float | None) -> str:
    """Write an accuracy in percent, without the sign; a dash where there is none.

    >>> percent(0.9563), percent(None)
    ('95.6', '–')
    """
    return NONE if share is None else f"{share * 100:.1f}"


def points(difference: float | None) -> str:
    """Write a difference in points with its sign, and a real minus.

    >>> points(0.0126), points(-0.005), points(0.0001), points(None)
    ('+1.3', '−0.5', '0.0', '–')
    """
    return signed(None if difference is None else 100 * difference, 1)


def points_text(difference: float) -> str:
    """Write a difference of accuracies in points, without its sign.

    >>> points_text(0.0312), points_text(-0.002), points_text(0.0001), points_text(0.01)
    ('3.1 points', '0.2 points', '0.01 points', '1.0 points')
    """
    points = abs(difference) * 100
    if 0 < points < 0.005:
        return "less than 0.01 points"
    return f"{points:.1f} points" if points >= 0.05 or points == 0 else f"{points:.2f} points"


def signed(value: float | None, digits: int = 2) -> str:
    """Write a difference with its sign, and a real minus; a dash where there is none.

    >>> signed(3.4), signed(-0.72), signed(0.001), signed(None), signed(-3, 0)
    ('+3.40', '−0.72', '0.00', '–', '−3')
    """
    if value is None:
        return NONE
    text = f"{value:+.{digits}f}"
    return text.replace("-", "−") if float(text) else text.lstrip("+-")


def mean_spread(mean: float | None, spread: float | None = None) -> str:
    """Write a mean and its standard deviation, as papers' tables have them.

    >>> mean_spread(20.84, 0.26), mean_spread(5.5), mean_spread(None)
    ('20.84 ± 0.26', '5.50', '–')
    """
    if mean is None:
        return NONE
    return f"{mean:.2f}" + ("" if spread is None else f" ± {spread:.2f}")


def listed(words: Sequence[object]) -> str:
    """Write words in a row.

    >>> listed(["car"]), listed(["car", "wine", "adult"]), listed([])
    ('car', 'car, wine and adult', 'none')
    """
    *most, last = [str(word) for word in words] or ["none"]
    return f"{', '.join(most)} and {last}" if most else last


def counted(count: int, one: str) -> str:
    """Write how many there are of something.

    >>> counted(1, "run"), counted(1200, "run")
    ('1 run', '1,200 runs')
    """
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def p_text(p_value: float, significance: float = 0.05) -> str:
    """Write a p-value as people do, without rounding it across the level.

    >>> p_text(0.0031), p_text(0.61), p_text(0.0002), p_text(0.0496), p_text(1.0)
    ('p = 0.003', 'p = 0.61', 'p < 0.001', 'p = 0.0496', 'p = 1')
    """
    if not 0 <= p_value <= 1:
        raise ValueError(f"p_value must lie in [0, 1]; got {p_value}.")
    if p_value < 0.001:
        return "p < 0.001"
    if p_value >= 0.995:
        return "p = 1" if p_value == 1 else "p > 0.99"
    for digits in range(2 if p_value >= 0.1 else 3, 8):
        text = f"{p_value:.{digits}f}"
        crossed = (float(text) < significance) != (p_value < significance)
        if not crossed and float(text) > 0:
            break
    return f"p = {text}"


def p_value_text(p_value: float | None) -> str:
    """Write a p-value for a column of them, as ``p_text`` without its "p = ".

    >>> p_value_text(0.0031), p_value_text(0.0002), p_value_text(None)
    ('0.003', '< 0.001', '–')
    """
    return NONE if p_value is None else p_text(p_value).removeprefix("p ").removeprefix("= ")


def share_text(share: float) -> str:
    """Write a share in percent.

    >>> share_text(0.05), share_text(0.125)
    ('5 %', '12.5 %')
    """
    return f"{share * 100:g} %"


def trials_text(trials: int | list[int]) -> str:
    """Write how many trials a search had, of one table or of several.

    >>> trials_text(20), trials_text([10, 14, 20])
    ('20 trials', '10 to 20 trials')
    """
    if isinstance(trials, int):
        return counted(trials, "trial")
    return f"{min(trials)} to {max(trials)} trials"


def duration(seconds: float) -> str:
    """Write a time in the unit that suits it.

    >>> duration(0.25), duration(42.1), duration(312), duration(7300)
    ('0.2 s', '42 s', '5 min 12 s', '2 h 1 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def seconds_text(seconds: float) -> str:
    """Write a short time with two digits, in the unit that suits it.

    >>> seconds_text(2.5e-6), seconds_text(9.99e-4), seconds_text(0.0123), seconds_text(61.0)
    ('2.5 µs', '1000 µs', '12 ms', '61 s')
    """
    units = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
    unit, size = next((one for one in units if seconds >= 0.9995 * one[1]), units[-1])
    return f"{float(f'{seconds / size:.2g}'):g} {unit}"


def bytes_text(count: float) -> str:
    """Write an amount of memory with two digits, in the unit that suits it.

    >>> bytes_text(512), bytes_text(2048), bytes_text(3 << 20), bytes_text(16.4e9)
    ('512 bytes', '2 KiB', '3 MiB', '15 GiB')
    """
    units = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("bytes", 1))
    unit, size = next((one for one in units if count >= one[1]), units[-1])
    return f"{count:.0f} bytes" if size == 1 else f"{float(f'{count / size:.2g}'):g} {unit}"


# ------------------------------------------------------------------------------------- losses

# What is run beside the losses on the same rows, and never tested against cross entropy.
MAJORITY, LOGISTIC = "majority_class", "logistic_regression"
TREES, FOREST, NETWORKS = "boosted_trees", "random_forest", "small_networks"
OUTSIDE = (MAJORITY, LOGISTIC, TREES, FOREST, NETWORKS)
# Of networks: the reference at the epoch that validation rows choose, and from other seeds.
STOPPED, NULL = "cross_entropy_stopped_early", "cross_entropy_other_seeds"
SCIKIT_LEARN = {
    LOGISTIC: "LogisticRegression",
    TREES: "HistGradientBoostingClassifier",
    FOREST: "RandomForestClassifier",
}
DEFAULT_LOSSES = (
    "cross_entropy",
    "hinge",
    "focal",
    "leaky_expected_error",
    "mixed_expected_error",
    "exact",
)

ACCURACY_TRAINED = tuple(name for name, spec in SPECS.items() if spec.for_accuracy)

_NAMES = {name: SPECS[name].label for name in list_losses()}
_NAMES |= {name: name.replace("_", " ") for name in OUTSIDE}
_NAMES |= {STOPPED: "cross entropy, stopped early", NULL: "cross entropy, other seeds"}


def loss_name(loss: str) -> str:
    """Return a loss's name for people.

    >>> loss_name("exact"), loss_name("my_own_loss")
    ('EXACT', 'my own loss')
    """
    if ":" in loss:  # a variant
        with suppress(ValueError):
            return plain(spec_of(loss).label, 60)
    return _NAMES.get(loss) or plain(loss.replace("_", " "), 40)


def loss_order(loss: str) -> tuple[int, str]:
    """Sort key: known losses in their usual order, then others by name."""
    known = list(_NAMES)
    base = loss.split(":")[0]
    return (known.index(base) if base in known else len(known), loss)


# What charts are drawn with; the page's style sheet repaints them (see `DARK`).
INK, MUTED, LINES = "#1b2430", "#5d6875", "#d5dae1"

# From poor to good.
SCALE = ("#e3d9b0", "#c9d3a8", "#9fc5a8", "#6fb0ac", "#4593ad", "#2b6f9f", "#1d4a80", "#152a57")

# (colour by day, by night, marker, dash) of every loss, then of what is run beside them.
_LOOKS = {name: SPECS[name].look for name in list_losses()}
_LOOKS |= {
    MAJORITY: ("#a7afb9", "#8e99a6", "_", ":"),
    LOGISTIC: ("#8a94a1", "#7d8896", "H", ":"),
    TREES: ("#6f5a3a", "#bda67c", "*", "-."),
    FOREST: ("#54704f", "#95b78e", "p", "-."),
    NETWORKS: ("#4f5a7a", "#98a6d0", "h", "-."),
    STOPPED: ("#3b4553", "#d3dae3", "8", "--"),
    NULL: ("#7d8794", "#8e99a6", ".", ":"),
}

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
    spare = iter([loss for loss in list_losses()[1:] if loss not in losses] * (1 + len(losses)))
    found = {}
    for loss in sorted(losses, key=loss_order):
        day, _, marker, dash = _LOOKS[loss if loss in _LOOKS else next(spare, "focal")]
        found[loss] = Look(day, marker, dash)
    return found
