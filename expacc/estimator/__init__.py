"""Classifiers trained for their accuracy, in the manner of scikit-learn."""

from expacc.estimator.classifier import AccuracyClassifier
from expacc.estimator.search import AccuracyClassifierCV

__all__ = ["AccuracyClassifier", "AccuracyClassifierCV"]
