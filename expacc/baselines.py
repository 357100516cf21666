"""The losses we compare with, by themselves; ``expacc.functional`` has them beside our own."""

from expacc.functional import (
    active_passive,
    asymmetric,
    divergences,
    normalized,
    reweighted,
    rivals,
    robust,
    tempered,
)
from expacc.functional.active_passive import *  # noqa: F403
from expacc.functional.asymmetric import *  # noqa: F403
from expacc.functional.divergences import *  # noqa: F403
from expacc.functional.normalized import *  # noqa: F403
from expacc.functional.reweighted import *  # noqa: F403
from expacc.functional.rivals import *  # noqa: F403
from expacc.functional.robust import *  # noqa: F403
from expacc.functional.tempered import *  # noqa: F403

__all__ = []
__all__ += robust.__all__
__all__ += divergences.__all__
__all__ += asymmetric.__all__
__all__ += normalized.__all__
__all__ += active_passive.__all__
__all__ += tempered.__all__
__all__ += reweighted.__all__
__all__ += rivals.__all__
