"""Our losses for boosted trees, and for every classifier that takes sample weights."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from expacc.boosting.boosted import BoostedClassifier
    from expacc.boosting.objectives import lightgbm_objective, xgboost_objective
    from expacc.boosting.reweighted import ReweightedClassifier
    from expacc.boosting.weights import weighting_losses

__all__ = [
    "BoostedClassifier",
    "ReweightedClassifier",
    "lightgbm_objective",
    "weighting_losses",
    "xgboost_objective",
]
_HOMES = {
    "BoostedClassifier": "boosted",
    "ReweightedClassifier": "reweighted",
    "weighting_losses": "weights",
}


def __getattr__(name: str) -> Any:
    """Fetched when first asked for: an objective needs no scikit-learn, a study's plan no torch."""
    if name not in __all__:
        raise AttributeError(f"module 'expacc.boosting' has no attribute {name!r}")
    return getattr(import_module(f"expacc.boosting.{_HOMES.get(name, 'objectives')}"), name)
