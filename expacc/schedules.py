"""Numbers that change during training: pure functions of progress in [0, 1].

Progress is the share of training that is done: step / steps, or epoch / epochs for a number that
changes once an epoch. A schedule is any callable from progress to a number; those made here can be
pickled and compared by their arguments. Nothing is kept between calls.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial

__all__ = [
    "Schedule",
    "constant",
    "cosine",
    "focus_constant",
    "focus_gradual",
    "focus_switch",
    "geometric",
    "linear",
    "per_epoch",
    "phases",
    "sigma_tabular",
    "sigma_vision",
]

Schedule = Callable[[float], float]


def _check_progress(progress: float) -> float:
    if isinstance(progress, bool) or not isinstance(progress, int | float):
        raise TypeError(f"progress must be a number; got {progress!r}.")
    if not 0 <= progress <= 1:
        raise ValueError(f"progress must lie in [0, 1]; got {progress}. Use step / total_steps.")
    return progress


def _check_finite(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number; got {value!r}.")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite; got {value}.")
    return value


def _constant(value: float, progress: float) -> float:
    _check_progress(progress)
    return value


def constant(value: float) -> Schedule:
    """Stay at ``value``.

    Args:
        value: any finite number.

    Returns:
        A schedule: a callable from progress in [0, 1] to a number.

    Example:
        >>> constant(0.1)(0.7)
        0.1
    """
    return partial(_constant, _check_finite("value", value))


def _phases(values: tuple[float, ...], ends: tuple[float, ...], progress: float) -> float:
    return values[min(bisect_right(ends, _check_progress(progress)), len(values) - 1)]


def phases(values: Sequence[float], ends: Sequence[float] | None = None) -> Schedule:
    """Hold each of ``values`` for a phase, in turn; a phase ends where the next begins.

    Args:
        values: one number per phase.
        ends: the progress at which each phase ends, increasing, the last one 1; equal phases when
            None.

    Returns:
        A schedule: a callable from progress in [0, 1] to a number.

    Example:
        >>> schedule = phases((0, 0.5), ends=(0.95, 1))
        >>> schedule(0.9499), schedule(0.95), schedule(1)
        (0, 0.5, 0.5)
    """
    values = tuple(_check_finite("values", value) for value in values)
    if not values:
        raise ValueError("values must hold at least one number; got none.")
    if ends is None:
        # i / n is the correctly rounded quotient, so epoch 40 of 240 begins phase 1 of 6 exactly.
        ends = tuple((i + 1) / len(values) for i in range(len(values)))
    ends = tuple(_check_finite("ends", end) for end in ends)
    if len(ends) != len(values):
        raise ValueError(f"ends must hold one number per value, {len(values)}; got {len(ends)}.")
    if any(b <= a for a, b in zip((0.0, *ends), ends, strict=False)) or ends[-1] != 1:
        raise ValueError(f"ends must increase from above 0 to 1; got {ends}.")
    return partial(_phases, values, ends)


def _geometric(start: float, end: float, progress: float) -> float:
    progress = _check_progress(progress)
    return end if progress == 1 else start * (end / start) ** progress


def geometric(start: float, end: float) -> Schedule:
    """Move from ``start`` to ``end`` by equal ratios.

    Args:
        start: at progress 0, > 0.
        end: at progress 1, > 0.

    Returns:
        A schedule: a callable from progress in [0, 1] to a number.

    Example:
        >>> geometric(10, 0.1)(0.5)
        1.0
    """
    for name, value in (("start", start), ("end", end)):
        if _check_finite(name, value) <= 0:
            raise ValueError(f"{name} must be > 0 for a geometric schedule; got {value}.")
    return partial(_geometric, start, end)


def _linear(start: float, end: float, progress: float) -> float:
    progress = _check_progress(progress)
    return end if progress == 1 else start + (end - start) * progress


def linear(start: float, end: float) -> Schedule:
    """Move from ``start`` to ``end`` by equal steps.

    Args:
        start: at progress 0.
        end: at progress 1.

    Returns:
        A schedule: a callable from progress in [0, 1] to a number.

    Example:
        >>> linear(0, 0.5)(0.5)
        0.25
    """
    return partial(_linear, _check_finite("start", start), _check_finite("end", end))


def _cosine(start: float, end: float, progress: float) -> float:
    # sin² of the half angle, which is exact at both ends.
    moved = math.sin(math.pi / 2 * _check_progress(progress)) ** 2
    return start + (end - start) * moved if progress < 1 else end


def cosine(start: float, end: float) -> Schedule:
    """Move from ``start`` to ``end`` along half a cosine wave: slowly at both ends.

    Args:
        start: at progress 0.
        end: at progress 1.

    Returns:
        A schedule: a callable from progress in [0, 1] to a number.

    Example:
        >>> round(cosine(1, 0)(0.5), 12)
        0.5
    """
    return partial(_cosine, _check_finite("start", start), _check_finite("end", end))


def _per_epoch(schedule: Schedule, epochs: int, reach_end: bool, progress: float) -> float:
    epoch = int(_check_progress(progress) * epochs)
    # The product may round across an epoch's start, 0.29 * 100 < 29; the quotient 29 / 100 that
    # the caller forms is correctly rounded, so compare with that.
    if epoch / epochs > progress:
        epoch -= 1
    elif (epoch + 1) / epochs <= progress:
        epoch += 1
    epoch = min(epoch, epochs - 1)
    return schedule(epoch / (epochs - 1) if reach_end else epoch / epochs)


def per_epoch(schedule: Schedule, epochs: int, reach_end: bool = False) -> Schedule:
    """Hold the value of ``schedule`` within each of ``epochs`` equal epochs.

    In epoch e = 0, 1, … epochs - 1 it is schedule(e / epochs), as in the code of EXACT's authors,
    where the last value is one epoch short of the end; with ``reach_end`` it is
    schedule(e / (epochs - 1)), so the last epoch has the end value, as their learning rate does.
    At progress 1 the last epoch's value stays.

    Args:
        schedule: any callable from progress in [0, 1] to a number.
        epochs: how many, at least 1; at least 2 with ``reach_end``.
        reach_end: whether the last epoch has the end value.

    Returns:
        A schedule: a callable from progress in [0, 1] to a number.

    Example:
        >>> [per_epoch(linear(10, 0), 4)(step / 8) for step in range(9)]
        [10.0, 10.0, 7.5, 7.5, 5.0, 5.0, 2.5, 2.5, 2.5]
        >>> [per_epoch(linear(9, 0), 4, reach_end=True)(epoch / 4) for epoch in range(4)]
        [9.0, 6.0, 3.0, 0]
    """
    if not callable(schedule):
        raise TypeError(
            f"schedule must be a callable from progress to a number; got {schedule!r}. "
            f"Use expacc.schedules.constant for a fixed number."
        )
    if isinstance(epochs, bool) or not isinstance(epochs, int):
        raise TypeError(f"epochs must be an int; got {epochs!r}.")
    if not isinstance(reach_end, bool):
        raise TypeError(f"reach_end must be True or False; got {reach_end!r}.")
    if epochs < 1 + reach_end:
        cure = " One epoch cannot have both the start and the end value." if reach_end else ""
        raise ValueError(f"epochs must be >= {1 + reach_end}; got {epochs}.{cure}")
    return partial(_per_epoch, schedule, epochs, reach_end)


# The three schedules of the mixing paper for the focus of ``mixed_expected_error``.


def focus_constant(progress: float) -> float:
    """F = 0: cross entropy and expected error in equal parts throughout.

    Args:
        progress: the share of training that is done, in [0, 1].

    Returns:
        The focus, 0.

    Example:
        >>> focus_constant(0.99)
        0.0
    """
    return _constant(0.0, progress)


_SWITCH = phases((0.0, 0.5), ends=(0.95, 1.0))
_GRADUAL = phases((0.0, 0.1, 0.2, 0.3, 0.4, 0.5))


def focus_switch(progress: float) -> float:
    """F = 0, 0.5: equal parts, then expected error alone for the last 5 %.

    Args:
        progress: the share of training that is done, in [0, 1].

    Returns:
        The focus, 0 or 0.5.

    Example:
        >>> focus_switch(0.94), focus_switch(0.95)
        (0.0, 0.5)
    """
    return _SWITCH(progress)


def focus_gradual(progress: float) -> float:
    """F = 0-0.5: 0, 0.1, … 0.5 in six equal phases.

    Args:
        progress: the share of training that is done, in [0, 1].

    Returns:
        The focus, in [0, 0.5].

    Example:
        >>> [focus_gradual(epoch / 240) for epoch in (0, 39, 40, 80, 120, 160, 200, 240)]
        [0.0, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.5]
    """
    return _GRADUAL(progress)


# The schedules of the EXACT paper for the sigma of ``exact_error`` (Sections 4.5.3 and 5.4). Its
# authors change sigma once an epoch: per_epoch(sigma_tabular, epochs). ImageNet: 10 to 0.052.

_TABULAR = geometric(10.0, 0.01)
_VISION = geometric(10.0, 1.0)


def sigma_tabular(progress: float) -> float:
    """Sigma from 10 to 0.01 by equal ratios: linear models on tables.

    Args:
        progress: the share of training that is done, in [0, 1].

    Returns:
        Sigma, in [0.01, 10].

    Example:
        >>> [round(sigma_tabular(third / 3), 12) for third in range(4)]
        [10.0, 1.0, 0.1, 0.01]
    """
    return _TABULAR(progress)


def sigma_vision(progress: float) -> float:
    """Sigma from 10 to 1 by equal ratios: networks on images.

    Args:
        progress: the share of training that is done, in [0, 1].

    Returns:
        Sigma, in [1, 10].

    Example:
        >>> sigma_vision(0), round(sigma_vision(0.5) ** 2, 12), sigma_vision(1)
        (10.0, 10.0, 1.0)
    """
    return _VISION(progress)
