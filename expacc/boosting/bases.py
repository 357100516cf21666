"""What a classifier must be to be refitted with row weights; needs no torch."""

from typing import Any

from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.validation import has_fit_parameter

from expacc.plain import UsageError


def check_base(base: Any, *, scores_do: bool = False) -> None:
    """Raise unless ``base`` is a classifier that takes weights and gives probabilities.

    ``scores_do``: those who ask calibrate its scores.
    """
    name = type(base).__name__
    if not isinstance(base, BaseEstimator) or not is_classifier(base):
        raise UsageError(f"base must be a classifier of scikit-learn, not yet fitted; got {name}.")
    if not has_fit_parameter(base, "sample_weight"):
        raise UsageError(
            f"base must take sample_weight in fit; {name} does not. In a pipeline, put "
            "ReweightedClassifier around its last step."
        )
    if not scores_do and not hasattr(base, "predict_proba"):
        raise UsageError(
            f"base must have predict_proba; {name} has not. "
            "Put sklearn.calibration.CalibratedClassifierCV around it."
        )
