"""Old import paths work for one release, and say where things went."""

import importlib
import subprocess
import sys

import pytest

from expacc import study


@pytest.mark.parametrize(("old", "new"), study._MOVED.items())
def test_the_old_path_leads_to_the_new_module(old, new):
    sys.modules.pop(f"expacc.study.{old}", None)
    with pytest.warns(DeprecationWarning, match=rf"expacc\.study\.{old} is expacc\.{new} now"):
        found = importlib.import_module(f"expacc.study.{old}")
    for part in f"expacc.{new}".split(" and "):
        there = importlib.import_module(part)
        for name in getattr(there, "__all__", vars(there)):
            assert name[0] == "_" or getattr(found, name) is getattr(there, name)
    with pytest.raises(AttributeError, match="nothing"):
        found.nothing  # noqa: B018


def test_names_are_found_by_from_import():
    code = (
        "import warnings; warnings.simplefilter('ignore');"
        "from expacc.study.stats import wilcoxon; from expacc.study import store;"
        "from expacc.stats import wilcoxon as new; assert wilcoxon is new; store.Store"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("expacc.study.nothing")


@pytest.mark.parametrize(("old", "new"), [("Plan", "TrainConfig"), ("Rows", "TensorTable")])
def test_an_old_name_leads_to_the_new_one(old, new):
    from expacc import training

    with pytest.warns(DeprecationWarning, match=f"is now {new}"):
        assert getattr(training, old) is getattr(training, new)


def test_train_runs_takes_its_plan_for_one_release():
    import torch

    from expacc.training import Run, TensorTable, TrainConfig, train_runs

    rows = TensorTable(torch.eye(2), torch.tensor([0, 1]), classes=2)
    with pytest.warns(DeprecationWarning, match=r"config="):
        (result,) = train_runs(rows, [Run("a", torch.arange(2))], plan=TrainConfig(epochs=3))
    assert result.epochs == 3
