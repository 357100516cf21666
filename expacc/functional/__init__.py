"""Every loss as a function of (logits, target): ours first, then those we compare with."""

from expacc.functional import (
    active_passive,
    asymmetric,
    binary,
    divergences,
    normalized,
    reweighted,
    rivals,
    robust,
    tempered,
)
from expacc.functional.active_passive import *  # noqa: F403
from expacc.functional.asymmetric import *  # noqa: F403
from expacc.functional.binary import *  # noqa: F403
from expacc.functional.confusion import expected_balanced_error, expected_f1_error
from expacc.functional.confusion import expected_confusion as expected_confusion  # no loss
from expacc.functional.cost import expected_cost
from expacc.functional.divergences import *  # noqa: F403
from expacc.functional.exact import exact_error
from expacc.functional.head import linear_mixed_expected_error
from expacc.functional.normalized import *  # noqa: F403
from expacc.functional.ordinal import expected_distance
from expacc.functional.reweighted import *  # noqa: F403
from expacc.functional.rivals import *  # noqa: F403
from expacc.functional.robust import *  # noqa: F403
from expacc.functional.softmax import expected_error, leaky_expected_error, mixed_expected_error
from expacc.functional.tempered import *  # noqa: F403

__all__ = [
    "exact_error",
    "expected_balanced_error",
    "expected_cost",
    "expected_distance",
    "expected_error",
    "expected_f1_error",
    "leaky_expected_error",
    "linear_mixed_expected_error",
    "mixed_expected_error",
]
__all__ += binary.__all__
__all__ += robust.__all__
__all__ += divergences.__all__
__all__ += asymmetric.__all__
__all__ += normalized.__all__
__all__ += active_passive.__all__
__all__ += tempered.__all__
__all__ += reweighted.__all__
__all__ += rivals.__all__
