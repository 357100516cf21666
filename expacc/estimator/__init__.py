"""Classifiers trained for their accuracy, in the manner of scikit-learn."""

from expacc.estimator.classifier import AccuracyClassifier, AccuracyClassifierCV

__all__ = ["AccuracyClassifier", "AccuracyClassifierCV"]
