"""Numbers as people read them, with their signs and units."""

__all__ = [
    "bytes_text",
    "duration",
    "percent",
    "points",
    "seconds_text",
    "share_text",
    "trials_text",
]


def percent(share: float | None) -> str:
    """Write an accuracy in percent, without the sign; a dash where there is none.

    >>> percent(0.9563), percent(None)
    ('95.6', '–')
    """
    return "–" if share is None else f"{share * 100:.1f}"


def points(difference: float | None) -> str:
    """Write a difference in points with its sign, and a real minus.

    >>> points(0.0126), points(-0.005), points(0.0001), points(None)
    ('+1.3', '−0.5', '0.0', '–')
    """
    if difference is None:
        return "–"
    text = f"{difference * 100:+.1f}"
    return text.replace("-", "−") if float(text) else "0.0"


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
        return f"{trials} trial{'s' if trials != 1 else ''}"
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
