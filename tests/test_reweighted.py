"""Refits with renewed weights: scikit-learn's contract, descent, and what is refused."""

from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from expacc.boosting import ReweightedClassifier


@parametrize_with_checks(
    [
        ReweightedClassifier(LogisticRegression(max_iter=1000)),
        ReweightedClassifier(DecisionTreeClassifier(max_depth=3, random_state=0)),
        ReweightedClassifier(
            LogisticRegression(max_iter=1000), "leaky_expected_error", cv=3, max_iter=2
        ),
    ]
)
def test_scikit_learns_checks(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # or those with array_api_dispatch are skipped
    check(estimator)
