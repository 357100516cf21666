"""Our losses: expected error and its mixtures, EXACT, and expected cost."""

from expacc.functional.cost import expected_cost
from expacc.functional.exact import exact_error
from expacc.functional.head import linear_mixed_expected_error as linear_mixed_expected_error
from expacc.functional.softmax import (
    expected_error,
    leaky_expected_error,
    mixed_expected_error,
)

__all__ = [
    "exact_error",
    "expected_cost",
    "expected_error",
    "leaky_expected_error",
    "mixed_expected_error",
]
