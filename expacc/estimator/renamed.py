"""Names that were others before, for one release."""

import warnings
from collections.abc import Mapping
from typing import Any

from expacc.estimator.saving import names_of_cv_results, warn_renamed

UNUSED = "deprecated"  # what a parameter has that goes with the next release, as in scikit-learn
RENAMED = {"hidden_layer_sizes": "hidden", "cv": "folds", "loss_params": "numbers"}


class Renamed:
    """Parameters and attributes of a classifier under their old names."""

    best_params_: dict[str, Any]
    cv_results_: Mapping[str, Any]

    def _value(self, name: str, *, warn: bool = True) -> Any:
        """A parameter, or the one of its old name, if that is given."""
        old = RENAMED.get(name, "")
        value = getattr(self, old, UNUSED)
        if isinstance(value, str) and value == UNUSED:
            return getattr(self, name)
        if warn:
            warnings.warn(
                f"{old} is {name} now; the old name goes with the next release.",
                DeprecationWarning,
                stacklevel=5,
            )
        return value

    @property
    def chosen_(self) -> dict[str, Any]:
        """Old name of ``best_params_``."""
        warn_renamed("chosen_", "best_params_")
        return self.best_params_

    @property
    def held_out_(self) -> dict[str, float]:
        """Old form of ``cv_results_``."""
        warn_renamed("held_out_", "cv_results_")
        return names_of_cv_results(self.cv_results_)
