"""Numbers and lists as people read them: the one place for signs, units, p-values and "a, b and c".

A page prints what these give; no code of a page puts sentences together.
"""

from collections.abc import Sequence

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


def signed(value: float | None, digits: int = 2) -> str:
    """Write a difference with its sign, and a real minus; a dash where there is none.

    >>> signed(3.4), signed(-0.72), signed(0.001), signed(None), signed(-3, 0)
    ('+3.40', '−0.72', '0.00', '–', '−3')
    """
    if value is None:
        return NONE
    text = f"{value:+.{digits}f}"
    return text.replace("-", "−") if float(text) else text.lstrip("+-")


def mean_spread(mean: float | None, spread: float | None = None, digits: int = 2) -> str:
    """Write a mean and its standard deviation, as papers' tables have them.

    >>> mean_spread(20.84, 0.26), mean_spread(5.5), mean_spread(None)
    ('20.84 ± 0.26', '5.50', '–')
    """
    if mean is None:
        return NONE
    return f"{mean:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")


def listed(words: Sequence[object]) -> str:
    """Write words in a row.

    >>> listed(["car"]), listed(["car", "wine", "adult"]), listed([])
    ('car', 'car, wine and adult', 'none')
    """
    *most, last = [str(word) for word in words] or ["none"]
    return f"{', '.join(most)} and {last}" if most else last


def counted(count: int, one: str, many: str = "") -> str:
    """Write how many there are of something.

    >>> counted(1, "run"), counted(1200, "run"), counted(2, "child", "children")
    ('1 run', '1,200 runs', '2 children')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


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


def p_value_text(p_value: float | None, significance: float = 0.05) -> str:
    """Write a p-value for a column of them, as ``p_text`` without its "p = ".

    >>> p_value_text(0.0031), p_value_text(0.0002), p_value_text(None)
    ('0.003', '< 0.001', '–')
    """
    if p_value is None:
        return NONE
    return p_text(p_value, significance).removeprefix("p ").removeprefix("= ")


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
