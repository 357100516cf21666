"""Numbers and lists as the pages of the leaky-expected-error paper write them."""

from collections.abc import Sequence

from expacc.recipes.page import Number

__all__ = ["listed", "mean_spread", "p_text", "signed"]


def listed(words: Sequence[str]) -> str:
    """Words in a row.

    >>> listed(["magic"]), listed(["magic", "pima", "musk2"])
    ('magic', 'magic, pima and musk2')
    """
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def mean_spread(number: Number | None) -> str:
    """As the paper's tables have it.

    >>> mean_spread(Number(20.84, 0.26)), mean_spread(Number(5.5)), mean_spread(None)
    ('20.84 ± 0.26', '5.50', '–')
    """
    if number is None:
        return "–"
    spread = "" if number.spread is None else f" ± {number.spread:.2f}"
    return f"{number.mean:.2f}{spread}"


def p_text(p_value: float) -> str:
    """A p-value with the digits that matter.

    >>> p_text(0.31), p_text(0.0312), p_text(0.00002)
    ('0.31', '0.031', '< 0.001')
    """
    if p_value < 0.001:
        return "< 0.001"
    return f"{p_value:.2f}" if p_value >= 0.1 else f"{p_value:.3f}"


def signed(difference: float, digits: int = 2) -> str:
    """A difference with its sign, and a real minus.

    >>> signed(0.316), signed(-0.3), signed(-0.001)
    ('+0.32', '−0.30', '0.00')
    """
    text = f"{difference:+.{digits}f}"
    return text.replace("-", "−") if float(text) else text.lstrip("+-")
