"""A study that is killed goes on within a fold: the parts that it kept, and the same numbers."""

from dataclasses import replace

import numpy as np
import pytest
from studies import failed_rows, make_row, plan

from expacc.compare import kept, work
from expacc.compare.study import Settings, load_record, plan_study, run_study
from expacc.data import read_table
from expacc.runner import items
from expacc.runner.engine import run_items
from expacc.runner.rows import to_columns
from expacc.runner.store import Store

NAIVE = "sklearn.naive_bayes.GaussianNB"
MODELS = {
    "linear": ("hinge",),
    "mlp": ("hinge",),
    "lightgbm": ("expected_error",),
    "xgboost": ("expected_error",),
    NAIVE: ("expected_error",),
}


def parts_of(item, shared):
    """Rows of an item, and the parts that it gave."""
    found = []
    items.listen(lambda told: found.append(told) if isinstance(told, bytes) else None)
    try:
        return work.execute(item, shared), found
    finally:
        items.listen(None)


def without_seconds(rows):
    return sorted((to_columns(replace(row, seconds=0.0)) for row in rows), key=str)


SLOW = dict.fromkeys(("mlp", "xgboost"), pytest.mark.slow)


@pytest.mark.parametrize("model", [pytest.param(name, marks=SLOW.get(name, ())) for name in MODELS])
def test_an_item_goes_on_where_it_was_to_the_bit(model, monkeypatch):
    settings = Settings(losses=MODELS[model], model=model, trials=2, folds="2", seeds=1)
    study = plan_study([read_table("iris")], settings)
    item, beside = study.items[0], study.items[-1]
    monkeypatch.setattr(kept, "EVERY", 0.0)
    monkeypatch.setattr(kept, "LONGEST", 0.0)
    whole, parts = parts_of(item, study.shared)
    assert len(parts) > 4
    for count in (len(parts) // 2, len(parts)):
        begun = items.WorkItem(item.key, item.payload, item.runs, kept=tuple(parts[:count]))
        rows, more = parts_of(begun, study.shared)
        assert without_seconds(rows) == without_seconds(whole)
        assert len(more) == len(parts) - count  # nothing is done twice
    if model != "linear":
        return
    rows, parts = parts_of(beside, study.shared)
    begun = items.WorkItem(beside.key, beside.payload, kept=tuple(parts))
    assert len(parts) == len(rows) > 2
    assert without_seconds(parts_of(begun, study.shared)[0]) == without_seconds(rows)


def test_a_part_that_is_none_is_not_used():
    good = kept.packed({"a": kept.Entry([1.5], [np.arange(3.0)])})
    assert kept.unpacked(good)["a"].facts == [1.5]
    for bad in (b"", b"x", good[:-1], good + b"1", b"\xff" * 40, good.replace(b"float", b"bogus")):
        assert kept.unpacked(bad) == {}


def test_a_study_that_is_stopped_within_a_fold_does_nothing_twice(tmp_path, monkeypatch):
    settings = Settings(losses=("hinge",), trials=2, folds="2", seeds=1, references="none")
    study = plan_study([read_table("iris")], settings)
    monkeypatch.setattr(kept, "EVERY", 0.0)
    monkeypatch.setattr(kept, "LONGEST", 0.0)
    train, keys = work.train_runs, []

    def counting(rows, runs, config, **more):
        if len(keys) == 12:
            raise KeyboardInterrupt
        keys.extend(run.key for run in runs)
        return train(rows, runs, config, **more)

    monkeypatch.setattr(work, "train_runs", counting)
    stopped, apart = tmp_path / "stopped", tmp_path / "apart"
    with pytest.raises(KeyboardInterrupt):
        run_study(study, stopped, workers=0, progress=False)
    names = sorted(path.name for path in stopped.iterdir())
    assert [name.startswith("study.part-") for name in names].count(True) == 12
    monkeypatch.setattr(work, "train_runs", lambda *a, **b: keys.append("more") or train(*a, **b))
    run_study(study, stopped, workers=0, progress=False)
    resumed = len(keys)
    run_study(study, apart, workers=0, progress=False)
    assert len(keys) - resumed == resumed  # calls, which train one run each
    one, two = (load_record(folder).rows for folder in (stopped, apart))
    assert without_seconds(one) == without_seconds(two)
    for folder in (stopped, apart):
        assert sorted(path.name for path in folder.iterdir()) == ["study.lock", "study.sqlite"]


def piecemeal(item, shared):
    """Three parts, then the rows; says how many parts there were, and dies where it is asked to."""
    had = len(item.kept)
    for number in range(had, 3):
        items.keep(f"{item.key}/{number}".encode())
        if item.payload.get("die") and not had and number == 1:
            stumble = {"number": 0, "0": "die"}
            __import__("studies").stumble(items.WorkItem("", stumble), shared)
    assert list(item.kept) == [f"{item.key}/{number}".encode() for number in range(had)]
    return [make_row(item, 0, metrics={"accuracy": 1.0}, numbers={"had": had})]


@pytest.mark.parametrize("workers", [0, 2])
def test_parts_are_given_back_and_deleted(tmp_path, workers):
    path, options = tmp_path / "study.sqlite", {"failed_rows": failed_rows, "progress": False}
    with Store.open(tmp_path, {}) as store:
        store.keep("item-00000", b"item-00000/0")
        store.keep("item-00001", b"other")
        (spoiled,) = set(tmp_path.glob("study.part-*")) - {store.parts._path("item-00000", 0)}
        spoiled.write_bytes(b"x" + spoiled.read_bytes()[1:])
        (todo,) = plan(1, die=workers > 0)
        run_items(store, [todo, *plan(3)[1:]], "test_parts:piecemeal", workers=workers, **options)
        had = [row.numbers["had"] for row in store.rows()]
    assert had == [2 if workers else 1, 0, 0] or had == [1, 0, 0]
    assert not list(tmp_path.glob("study.part-*"))
    assert path.exists()


def test_parts_of_another_study_or_version_are_none(tmp_path, monkeypatch):
    with Store.open(tmp_path, {"a": 1}) as store:
        store.keep("item", b"1")
        assert store.parts.of("item") == (b"1",)
    with Store.open(tmp_path, {"a": 1}) as store:
        assert store.parts.of("item") == (b"1",)
        monkeypatch.setattr("expacc.runner.store_files.versions", lambda: {"torch": "0"})
        assert store.parts.of("item") == ()
    with Store.open(tmp_path, {"a": 2}, resume=False) as store:
        assert not list(tmp_path.glob("study.part-*"))
