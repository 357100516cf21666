"""Models beside our own networks: boosted trees, and any classifier of scikit-learn by its path.

A loss reaches them as row weights that are renewed: in every round of boosting, or in every refit.
"""

import importlib
import importlib.util
import math
import sys
from collections.abc import Mapping
from typing import Any

from scipy.stats import qmc

from expacc.compare.training_budget import Trial, number_between
from expacc.data import derive_seed
from expacc.plain import UsageError
from expacc.registry import REFERENCE, spec_of
from expacc.registry.spec import Range

BOOSTED = ("lightgbm", "xgboost")
ROUNDS = 200  # of boosting, at a learning rate of 0.1
REFITS = 4  # of a classifier, after its own fit
# In place of those of networks, which have margins and schedules in them.
LOSSES = (
    REFERENCE,
    "leaky_expected_error",
    "mixed_expected_error",
    "expected_error",
    "generalized_cross_entropy",
)


def check_model(model: str) -> None:
    """Raise unless ``model`` can be trained here: a library that is installed, or a classifier.

    >>> check_model("sklearn.tree.DecisionTreeClassifier")
    """
    if model in BOOSTED:
        if importlib.util.find_spec(model) is None:
            raise UsageError(
                f"model {model} needs the package {model}, which is not installed. "
                "Try: pip install 'expacc[boosting]'"
            )
        return
    new_classifier(model, 0)


def check_losses(model: str, losses: tuple[str, ...]) -> None:
    """Raise for a loss that such a model cannot be trained on."""
    for loss in losses:
        if not spec_of(loss).reweights:
            raise UsageError(
                f"losses must be concave curves over -log p for --model {model}, which takes them "
                f"as row weights; got {loss!r}. expacc losses lists the others; --model linear and "
                "--model mlp take all."
            )


def new_classifier(path: str, seed: int) -> Any:
    """A classifier as its class makes it, of a path such as sklearn.tree.DecisionTreeClassifier.

    Scores that are no probabilities are calibrated on three inner folds, as an SVM's.

    Args:
        path: module.Class or module:Class.
        seed: its ``random_state``, if it has one.

    Raises:
        UsageError: there is none, or it is of no use here.
    """
    from sklearn.calibration import CalibratedClassifierCV

    from expacc.boosting.bases import check_base

    found = _class_at(path)
    try:
        made = found()
    except Exception as error:
        raise UsageError(
            f"model must be a class that needs no arguments; {path} does: {error!s:.200}"
        ) from None
    scores_only = _has_scores_only(made)
    try:
        check_base(made, scores_do=scores_only)
    except UsageError as error:
        sentence = str(error).removesuffix(".").split(". ")[0].removeprefix("base")
        raise UsageError(f"model{sentence}.") from None
    known = made.get_params(deep=False)
    own: Mapping[str, Any] = {"random_state": seed, "n_jobs": 1}
    if found.__module__.startswith("lightgbm"):
        made.set_params(verbose=-1)  # its remarks go to standard output
    made.set_params(**{name: value for name, value in own.items() if name in known})
    return CalibratedClassifierCV(made, cv=3, ensemble=False) if scores_only else made


def _has_scores_only(made: Any) -> bool:
    return hasattr(made, "decision_function") and not hasattr(made, "predict_proba")


def _known_to_score_only(path: str) -> bool:
    """Of scikit-learn's own: a page imports nothing else that a study names."""
    if not path.startswith("sklearn."):
        return False
    try:
        return _has_scores_only(_class_at(path)())
    except (UsageError, TypeError):  # as of another version, where there is none
        return False


def _class_at(path: str) -> type:
    module, _, name = path.partition(":") if ":" in path else path.rpartition(".")
    known = "linear, mlp, lightgbm, xgboost or the path of a classifier, module.Class"
    if (
        not module
        or not name
        or not all(part.isidentifier() for part in [*module.split("."), *name.split(".")])
    ):
        raise UsageError(f"model must be {known}; got {path!r:.100}.")
    here = "" in sys.path
    if not here:  # a module of the user's own lies where the command is typed
        sys.path.insert(0, "")
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever a module does when it is imported
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise UsageError(f"model must be {known}; {path!r:.100} gives {reason}") from None
    finally:
        if not here:
            sys.path.remove("")
    if not isinstance(found, type):
        raise UsageError(f"model must be {known}; {path!r:.100} is no class.")
    return found


def in_python(path: str, loss: str) -> str:
    """How to train such a classifier oneself: no file holds it but a pickle."""
    base = f"{path.replace(':', '.').rpartition('.')[2]}()"
    if _known_to_score_only(path):
        base = f"CalibratedClassifierCV({base}, cv=3, ensemble=False)"
    made = base if loss == REFERENCE else f"ReweightedClassifier({base}, {loss!r})"
    return f"{made}.fit(X, y)"


def pace_text(model: str) -> str:
    """How such a model was trained, for the methods paragraph."""
    if model in BOOSTED:
        how = (
            f"Trees were grown in at most {ROUNDS} rounds at a learning rate of 0.1, from the log "
            "of the classes' shares; a loss is log-loss with row weights that it renews every round"
        )
    else:
        how = (
            f"The classifier was fitted as it comes, then at most {REFITS} times again, with row "
            "weights that the loss renews"
        )
    return f"{how}. The number of rounds was the best on validation rows, for every loss alike."


def fit_seconds(model: str, rows: float, features: int, classes: int) -> float:
    """One core's seconds for all rounds, or for all refits of a classifier such as a forest.

    Fitted by hand to 100 to 20,000 rows, 4 to 64 features and 2 to 10 classes.
    """
    if model not in BOOSTED:
        return REFITS * (0.05 + 3e-6 * rows * math.sqrt(features))
    trees = ROUNDS * (1 if classes == 2 else classes)
    full = min(1.0, rows / 600)
    return trees * (2.5e-4 + full * (5e-4 + 1.3e-5 * features) + 1e-8 * rows * features)


_LEAVES = (4.0, 64.0, 31.0)
_FOCUS = (0.05, 0.45, 0.25)  # of the mixture, where nobody knows how long training takes


def trials_in_rounds(
    loss: str, model: str, count: int, seed: int, name: str, classes: int
) -> list[Trial]:
    """The trials of a loss; ``name`` (of table and fold) and ``seed`` decide the draws.

    Of boosted trees the leaves are searched, at one learning rate, so that rounds mean the same; of
    a classifier nothing but the loss's own numbers.
    """
    spec = spec_of(loss)
    ranges: dict[str, Range] = {"max_leaves": _LEAVES} if model in BOOSTED else {}
    if "focus" in spec.defaults:
        ranges["focus"] = _FOCUS
    ranges |= spec.search
    own_numbers = spec.by_classes(classes)
    points = qmc.Halton(d=5, scramble=True, rng=derive_seed(seed, name, "search")).random(count)
    trials = []
    for number in range(count):
        found = {}
        for place, (title, (low, high, usual)) in enumerate(ranges.items()):
            first = own_numbers.get(title, usual)
            share = points[number, place] if number else None
            found[title] = number_between(share, low, high, float(first))
        own: dict[str, Any] = {title: v for title, v in found.items() if title != "max_leaves"}
        own |= {title: round(own[title]) for title in spec.counts if title in own}
        trials.append(Trial(number, found, {**own_numbers, **own}))
    return trials
