"""A fit that does not come to its end changes nothing: the model before it, or none."""

import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import NotFittedError

import expacc.estimator
from expacc.estimator import AccuracyClassifier, AccuracyClassifierCV

HERE = str(Path(expacc.estimator.__file__).parent)
IRIS = load_iris(as_frame=True, return_X_y=True)  # with names, which the next table has not
WINE = load_wine(return_X_y=True)
WINE = (WINE[0][::4], np.array(["red", "rosé", "white"])[WINE[1][::4]])
SHORT = {"epochs": 1, "cv": 2, "random_state": 0}
CLASSIFIERS = {
    "linear": AccuracyClassifier(**SHORT),
    "network": AccuracyClassifier(hidden_layer_sizes=(3,), **SHORT),
    "search": AccuracyClassifierCV(losses=("exact", "hinge"), **SHORT),
}
every = pytest.mark.parametrize("kind", CLASSIFIERS)


class Interrupted:
    """Ctrl-C before the instruction ``number`` of classifier.py, or the line so of its neighbours.

    Counted are the instructions of the one and the lines of the others, so with a large number the
    block runs to its end and ``count`` says how many there are.
    """

    def __init__(self, number=sys.maxsize):
        self.number, self.count = number, 0

    def __enter__(self):
        sys.settrace(self.call)
        return self

    def __exit__(self, *_):
        sys.settrace(None)

    def call(self, frame, event, argument):
        path = frame.f_code.co_filename
        if not path.startswith(HERE):
            return None
        frame.f_trace_opcodes = path.endswith("classifier.py")
        return self.step

    def step(self, frame, event, argument):
        if event == ("opcode" if frame.f_trace_opcodes else "line"):
            self.count += 1
            if self.count == self.number:
                raise KeyboardInterrupt
        return self.step


def points(classifier, most):
    """Numbers of instructions to stop at: a spread of them, and all of the last."""
    with Interrupted() as watched:
        classifier.fit(*WINE)
    assert watched.count > most
    last = range(watched.count - 25, watched.count + 1)
    return sorted({*np.linspace(1, watched.count, most - len(last), dtype=int).tolist(), *last})


def fresh(kind):
    classifier = CLASSIFIERS[kind]
    return type(classifier)(**classifier.get_params())


def answers(classifier, features):
    """All that a fitted classifier says of rows and of itself."""
    return {
        "classes": classifier.predict(features).tolist(),
        "chances": classifier.predict_proba(features).tolist(),
        "known": {name: repr(value) for name, value in vars(classifier).items()},
    }


@every
def test_ctrl_c_in_a_second_fit_leaves_the_first(kind):
    classifier = fresh(kind).fit(*IRIS)
    before, after = answers(classifier, IRIS[0]), answers(fresh(kind).fit(*WINE), WINE[0])
    stayed = 0
    for number in points(fresh(kind), most=60):
        with pytest.raises(KeyboardInterrupt), Interrupted(number):
            classifier.fit(*WINE)
        if set(classifier.classes_) == {"red", "rosé", "white"}:  # at the end of all
            assert answers(classifier, WINE[0]) == after, number
            break
        assert answers(classifier, IRIS[0]) == before, number
        stayed += 1
    assert stayed >= 50


@every
def test_ctrl_c_in_a_first_fit_leaves_nothing(kind):
    classifier = fresh(kind)
    before = dict(vars(classifier))
    *early, last = points(fresh(kind), most=40)
    for number in early[:-5]:  # the last ones come when it is fitted
        with pytest.raises(KeyboardInterrupt), Interrupted(number):
            classifier.fit(*WINE)
        assert vars(classifier) == before, number
        with pytest.raises(NotFittedError):
            classifier.predict(WINE[0])
    with pytest.raises(KeyboardInterrupt), Interrupted(last):
        classifier.fit(*WINE)
    assert answers(classifier, WINE[0]) == answers(fresh(kind).fit(*WINE), WINE[0])


@every
def test_a_fit_that_is_refused_leaves_the_one_before(kind):
    classifier = fresh(kind).fit(*IRIS)
    before = answers(classifier, IRIS[0])
    for labels in (np.zeros(45), np.arange(45), None, WINE[1][:3]):
        with pytest.raises(ValueError, match=r"y must|y contains|inconsistent|class"):
            classifier.fit(WINE[0], labels)
        assert answers(classifier, IRIS[0]) == before
