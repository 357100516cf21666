"""Classifiers trained for their accuracy, in the manner of scikit-learn."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from expacc.estimator.classifier import AccuracyClassifier
    from expacc.estimator.classifier_cv import AccuracyClassifierCV

__all__ = ["AccuracyClassifier", "AccuracyClassifierCV"]


def __getattr__(name: str) -> Any:
    """Fetched when first asked for: a study needs the calibration alone."""
    if name not in __all__:
        raise AttributeError(f"module 'expacc.estimator' has no attribute {name!r}")
    from expacc.estimator import classifier, classifier_cv

    return getattr(classifier_cv if name.endswith("CV") else classifier, name)
