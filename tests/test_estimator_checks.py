"""Every check of the installed scikit-learn, none excused."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from expacc.estimator import AccuracyClassifier, AccuracyClassifierCV


@parametrize_with_checks(
    [
        AccuracyClassifier(),
        AccuracyClassifier(loss="leaky_expected_error", calibrate=False, guard=False),
        AccuracyClassifier(hidden_layer_sizes=(8,), epochs=30),
        AccuracyClassifierCV(losses=("exact", "hinge")),
    ]
)
def test_scikit_learns_checks(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # or those with array_api_dispatch are skipped
    check(estimator)
