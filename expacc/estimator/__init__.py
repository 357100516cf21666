"""Classifiers trained for their accuracy, in the manner of scikit-learn."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from expacc.estimator.classifier import AccuracyClassifier, AccuracyClassifierCV

__all__ = ["AccuracyClassifier", "AccuracyClassifierCV"]


def __getattr__(name: str) -> Any:
    """Fetched when first asked for: a study needs the calibration alone."""
    if name not in __all__:
        raise AttributeError(f"module 'expacc.estimator' has no attribute {name!r}")
    from expacc.estimator import classifier

    return getattr(classifier, name)
