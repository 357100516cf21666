"""Studies, recipes and models that die at their k-th write: for test_deaths.py.

In a module of its own, because the processes that die import it.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

import fake_recipes
import numpy as np

from expacc.compare import study as compare
from expacc.compare.deploy import Deployed
from expacc.compare.study import Settings, plan_study, run_study
from expacc.data import Column, Labels, Table
from expacc.data.preprocess import Preprocessor
from expacc.estimator import AccuracyClassifier
from expacc.estimator.saving import cv_results
from expacc.recipes.recipe import RecipeOptions
from expacc.recipes.runner import How, run_recipe
from expacc.runner import store_files
from expacc.runner.rows import Predictions, Row

SETTINGS = Settings(losses=("hinge",), trials=1, folds="2", seeds=1)
ROWS = 12
_WRITES = ("BEGIN", "COMMIT", "PRAGMA")  # what is between is undone; test_kills.py looks at it


def table():
    numbers = Column("x", "number", np.arange(float(ROWS)))
    labels = Labels("y", ("a", "b"), np.arange(ROWS) % 2)
    return Table("toy", (numbers,), labels, ROWS, np.arange(ROWS), sha256="0" * 64)


def execute(item, shared):
    """Rows of a model that is right where a number that depends on the loss is odd."""
    ask, rows = item.payload, []
    test = np.array(shared[f"toy/split/{ask['fold']}/test"])
    labels = np.array(shared["toy/labels"])[test]
    for loss in ask["losses"]:
        wrong = (test * len(loss)) % 5 == 0
        said = np.where(wrong, 1 - labels, labels).astype(np.int32)
        sure = np.full(len(test), 0.75, np.float32)
        head = (f"{item.key}|final|{loss}|0", item.key, "final", "toy", loss, ask["fold"])
        metrics = {"accuracy": float((said == labels).mean())}
        predictions = Predictions(test.astype(np.int32), said, sure, sure)
        rows.append(Row(*head, metrics=metrics, predictions=predictions))
    return rows


def study(folder):
    compare.EXECUTOR = "dying:execute"
    planned = plan_study([table()], SETTINGS)
    run_study(planned, folder, workers=0, progress=False, command="expacc compare toy")


def recipe(folder):
    one, ask = fake_recipes.RECIPES[0], RecipeOptions(quick=True, seeds=1)
    run_recipe(one, ask, one.plan(ask), folder, How(workers=0, progress=False))


def model(folder, scale=2.0):
    """Two models of the same shape, so that a mix of them could be read."""
    known = AccuracyClassifier()
    known.classes_, known.n_features_in_ = np.array(["a", "b"]), 1
    known.layers_ = [(np.array([[scale], [-scale]]), np.zeros(2))]
    known.temperature_ = known.bend_ = 1.0
    known.best_params_, known.cv_results_ = {"loss": "hinge"}, cv_results([])
    Deployed(known, Preprocessor.fit(table()), {}, {"scale": scale}).save(folder)


def deaths(work, base):
    """A folder for each write, left by a process that was killed right before it.

    Each is a copy of ``base/before``, where there is one.
    """
    number = 1
    while True:
        folder = base / str(number)
        if (base / "before").exists():
            shutil.copytree(base / "before", folder)
        process = os.fork()
        if not process:
            os._exit(0 if die_at(work, folder, number) < number else 1)
        _, status = os.waitpid(process, 0)
        if os.WIFEXITED(status):  # it had fewer writes
            assert os.WEXITSTATUS(status) == 0
            shutil.rmtree(folder)
            return
        assert os.WTERMSIG(status) == signal.SIGKILL
        number += 1


def die_at(work, folder, number):
    """Do the work, but be killed right before its write ``number``; how many there were."""
    count = 0

    def write(*_):
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def heard(event, arguments):
        opened = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if opened or event in ("os.rename", "os.remove", "os.mkdir", "os.truncate"):
            write()

    def asked(statement):
        if statement.lstrip().upper().startswith(_WRITES):
            write()

    make = store_files.Connection.to.__func__

    def traced(cls, *arguments):
        found = make(cls, *arguments)
        found.set_trace_callback(asked)
        return found

    store_files.Connection.to = classmethod(traced)
    for name in ("fsync", "pwrite"):
        setattr(os, name, _before(getattr(os, name), write))
    sys.addaudithook(heard)
    globals()[work](Path(folder))
    return count


def _before(function, first):
    def both(*arguments):
        first()
        return function(*arguments)

    return both


if __name__ == "__main__":
    deaths(sys.argv[1], Path(sys.argv[2]))
