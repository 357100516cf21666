"""Our losses for boosted trees, and for every classifier that takes sample weights."""

from typing import TYPE_CHECKING, Any

from expacc.boosting.objectives import lightgbm_objective, xgboost_objective
from expacc.boosting.weights import weighting_losses

if TYPE_CHECKING:
    from expacc.boosting.boosted import BoostedClassifier
    from expacc.boosting.reweighted import ReweightedClassifier

__all__ = [
    "BoostedClassifier",
    "ReweightedClassifier",
    "lightgbm_objective",
    "weighting_losses",
    "xgboost_objective",
]


def __getattr__(name: str) -> Any:
    """Fetched when first asked for: an objective needs no scikit-learn."""
    if name == "BoostedClassifier":
        from expacc.boosting.boosted import BoostedClassifier

        return BoostedClassifier
    if name == "ReweightedClassifier":
        from expacc.boosting.reweighted import ReweightedClassifier

        return ReweightedClassifier
    raise AttributeError(f"module 'expacc.boosting' has no attribute {name!r}")
