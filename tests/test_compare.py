"""A study from tables to rows: planned, run, read back; fair to every loss, and the same twice."""

import numpy as np
import pytest

from expacc.compare import work
from expacc.compare.serialize import (
    failed_rows,
    pack_splits,
    pack_table,
    unpack_split,
    unpack_table,
)
from expacc.compare.study import (
    Settings,
    identity,
    load_record,
    plan_study,
    run_study,
)
from expacc.compare.training_budget import (
    batch_and_epochs,
    epochs_a_point,
    fold_seconds,
    trials_of,
    usual_trials,
)
from expacc.compare.work import best_trial
from expacc.data import read_table
from expacc.report.words import DEFAULT_LOSSES
from expacc.runner import items
from expacc.runner.rows import Row, RunningScores
from expacc.training import LOSS_NAMES

SMALL = Settings(losses=("exact", "hinge"), trials=2, folds="2", seeds=1)


@pytest.fixture(scope="module")
def iris():
    return read_table("iris")


@pytest.fixture(scope="module")
def study(iris):
    return plan_study([iris], SMALL)


@pytest.fixture(scope="module")
def rows(study):
    return work.execute(study.items[0], study.shared)


def without_time(rows):
    return [
        (row.key, dict(row.numbers), dict(row.metrics), row.failure, dict(row.curves))
        for row in rows
    ]


def test_settings_always_hold_cross_entropy():
    assert Settings(losses=("exact", "exact")).losses == ("cross_entropy", "exact")
    assert Settings().losses == DEFAULT_LOSSES


@pytest.mark.parametrize(
    ("folds", "names"),
    [
        ("5x2", ["1a", "1b", "2a", "2b", "3a", "3b", "4a", "4b", "5a", "5b"]),
        ("3", ["1", "2", "3"]),
        ("2x2", ["1.1", "1.2", "2.1", "2.2"]),
        ("holdout", ["holdout"]),
    ],
)
def test_items_are_folds_times_noise(iris, folds, names):
    planned = plan_study([iris], Settings(folds=folds, label_noise=(0.0, 0.1), trials=3))
    # First the losses, then what is run beside them.
    assert [item.payload["fold"] for item in planned.items] == names * 4
    assert len({item.key for item in planned.items}) == 4 * len(names)
    assert planned.runs == 2 * len(names) * (6 * (3 + 2) + 4)


def test_larger_tables_have_fewer_trials_unless_asked_for(iris):
    digits = read_table("digits")
    both = plan_study([iris, digits], Settings(losses=("exact",), folds="2"))
    of_losses = [item.payload for item in both.items if "losses" in item.payload]
    assert {payload["table"]: payload["trials"] for payload in of_losses} == {
        "iris": 20,
        "digits": 16,
    }
    assert both.trials == identity(both)["trials"] == [16, 20]
    asked = plan_study([iris, digits], Settings(folds="2", trials=7))
    assert asked.trials == identity(asked)["trials"] == 7
    # What was typed or left open makes no difference to a resumed study.
    open_, typed = (plan_study([iris], Settings(folds="2", trials=n)) for n in (None, 20))
    assert identity(open_) == identity(typed)


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_trials_and_seconds_go_with_the_size_of_a_table(model):
    def shape(rows, features, classes):
        return usual_trials(rows, features, classes, model), fold_seconds(
            rows, features, classes, losses=DEFAULT_LOSSES, model=model
        )

    small = shape(200, 5, 2)
    assert small[0] == 20
    for more in (shape(50_000, 5, 2), shape(500, 500, 2), shape(500, 5, 40)):
        assert 8 <= more[0] <= small[0]
        assert more[1] > small[1]
    assert shape(5000, 100, 40)[0] == 8


@pytest.mark.parametrize(
    "rows", [1, 10, 50, 65, 100, 700, 1037, 1555, 1600, 5000, 20_000, 90_000, 10**6]
)
def test_the_pace_is_a_thousand_steps_in_equal_batches(rows):
    batch, epochs = batch_and_epochs(rows)
    steps = -(-rows // batch)
    assert rows - (steps - 1) * batch > batch / 2  # the last one, too
    assert steps * batch - rows < steps  # the last lacks less than a row for each of the others
    assert min(rows, 32) <= batch <= 1024
    assert 10 <= epochs <= 250
    assert steps * epochs >= min(1000, 250 * steps)
    if 300 <= rows <= 100_000:
        assert 990 <= steps * epochs <= 1150
    assert epochs / epochs_a_point(epochs) <= 50


def test_tables_and_splits_survive_the_parcel(iris, study):
    again = unpack_table("iris", study.shared)
    for mine, theirs in zip(iris.columns, again.columns, strict=True):
        assert (mine.name, mine.kind, mine.levels) == (theirs.name, theirs.kind, theirs.levels)
        np.testing.assert_array_equal(mine.values, theirs.values)
    assert again.target.classes == iris.target.classes
    split = unpack_split("iris", "1", study.shared)
    assert len(split.train) + len(split.test) == 150
    assert pack_table(again).keys() == pack_table(iris).keys()
    assert pack_splits("iris", [split])


def test_a_part_tells_how_far_it_is(study):
    told = []
    items.listen(told.append)
    rows = work.execute(study.items[0], study.shared)
    items.listen(lambda _: None)
    assert len(told) > 2
    assert 0 < sum(told[:-1]) < sum(told) <= len(rows)


def test_every_loss_has_the_same_budget(rows):
    losses = ("cross_entropy", "exact", "hinge")
    for loss in losses:
        trials = [row for row in rows if row.kind == "trial" and row.loss == loss]
        assert len(trials) == 2
        assert all("validation_accuracy" in row.metrics for row in trials)
    rates, decays, warm = (
        [[r.numbers[name] for r in rows if r.kind == "trial" and r.loss == loss] for loss in losses]
        for name in ("learning_rate", "weight_decay", "warm_start")
    )
    usual = pytest.approx(1 / 75, rel=1e-3)
    assert decays == [[usual, usual], [pytest.approx(0.1 / 75, rel=1e-3), usual], [usual, usual]]
    assert warm == [[0, 1], [1, 0], [1, 0]]  # cross entropy's own solution begins with nothing
    assert rates == [[0.2, 0.05], [0.05, 0.2], [0.05, 0.2]]
    # Drawn trials are everybody's: a quarter of the rate where a solution is gone on from.
    drawn = [trials_of(loss, "linear", 10, 0, "iris/1", 75, 3)[4:] for loss in losses]
    for own in drawn[1:]:
        for trial, theirs in zip(own, drawn[0], strict=True):
            assert trial.weight_decay == theirs.weight_decay
            assert trial.warm != theirs.warm
            paces = (trial.learning_rate / theirs.learning_rate) ** (1 if theirs.warm else -1)
            assert paces == pytest.approx(4, rel=1e-3)
    assert len({trial.learning_rate for trial in drawn[0]}) == 6
    other = trials_of("exact", "linear", 4, 0, "iris/1", 75, 3)[3]  # goes on, nearer to the error
    assert other.found == pytest.approx(
        {
            "learning_rate": 0.05,
            "weight_decay": 0.1 / 75,
            "sigma": 0.3,
            "margin": 3,
            "warm_start": 1,
        },
        rel=1e-3,
    )
    finals = [row for row in rows if row.kind == "final"]
    assert [row.loss for row in finals] == list(losses)
    assert {row.kind for row in rows} == {"trial", "final"}
    for row in finals:
        assert row.metrics["accuracy"] > 0.8
        assert len(row.predictions.rows) == 75
        right = row.predictions.predicted == read_table("iris").target.codes[row.predictions.rows]
        assert right.mean() == pytest.approx(row.metrics["accuracy"])


def test_the_best_trial_is_the_one_that_is_trained_again(rows):
    for final in (row for row in rows if row.kind == "final"):
        trials = [row for row in rows if row.kind == "trial" and row.loss == final.loss]
        first, second = (row.metrics["validation_accuracy"] for row in trials)
        # As far as that tells: a lead of a row or two is never beyond its error.
        assert final.numbers == trials[0].numbers or 75 * (second - first) > 1.5


def test_the_default_stays_unless_it_is_beaten_by_a_standard_error():
    def trial(share, loss=1.0, failure=None):
        found = {} if failure else {"validation_accuracy": share, "validation_loss": loss}
        return Row("k", "i", "trial", "t", "exact", "1", metrics=found, failure=failure)

    def chosen(rows, *shares, flipped=0):
        """The first has so many of its last rows right that others have wrong, too."""
        trials, right = [], []
        for place, share in enumerate(shares):
            own = np.arange(rows) < round(share * rows)
            own = own if place else np.concatenate([own[flipped:], ~own[rows - flipped :]])
            trials.append(trial(own.mean()))
            right.append(own)
        return best_trial(trials, right)

    assert chosen(100, 0.80, 0.81, 0.805) == 0  # one row
    assert chosen(100, 0.80, 0.83, 0.81) == 1  # three more rows, and none is lost
    assert chosen(100, 0.80, 0.83, flipped=10) == 0  # the same lead, of 13 gained and 10 lost
    assert chosen(100, 1.0, 1.0) == 0
    none = np.zeros(100, bool)
    failed = [trial(0.8, failure="diverged"), trial(0.5, 2.0), trial(0.5)]
    assert best_trial(failed, [none] * 3) == 2
    assert best_trial(failed[:1], [none]) is None


def test_the_same_item_gives_the_same_rows(study, rows):
    assert without_time(work.execute(study.items[0], study.shared)) == without_time(rows)


def test_noise_goes_into_training_labels_only(iris):
    planned = plan_study(
        [iris], Settings(losses=("hinge",), trials=1, folds="2", label_noise=(0.3,))
    )
    rows = work.execute(planned.items[0], planned.shared)
    final = next(row for row in rows if row.kind == "final")
    assert final.noise == 0.3
    assert final.metrics["train_accuracy"] < 0.85  # a third of the labels are wrong
    assert final.metrics["accuracy"] > 0.75  # judged on labels that are right


def test_trials_cover_their_ranges():
    for loss in LOSS_NAMES:
        trials = trials_of(loss, "linear", 30, 0, "table/1", 1000, 3)
        rates = [trial.learning_rate for trial in trials]
        warm = [trial.warm for trial in trials]
        assert warm[:2] == [loss != "cross_entropy", loss == "cross_entropy"]
        assert sum(warm) == 15
        assert sorted(rates[:2]) == [0.05, 0.2]
        for some, pace in ((True, 0.25), (False, 1)):
            own = [rate / pace for rate, each in zip(rates, warm, strict=True) if each == some]
            assert 0.02 <= min(own) < 0.04
            assert 0.5 < max(own) <= 1
        part = 0.1 if loss in ("exact", "expected_error") else 1
        assert trials[0].weight_decay == pytest.approx(1e-3 * part)
        two = trials_of(loss, "linear", 2, 0, "table/1", 1000, 2)
        assert [each.weight_decay for each in two] == pytest.approx([2e-3 * part, 2e-3])
    first, again, other = (trials_of("focal", "mlp", 5, 0, key, 9, 3)[3].found for key in "aab")
    assert first == again != other


@pytest.mark.parametrize("name", ["breast-cancer", "wine"])
def test_the_first_trial_of_cross_entropy_is_logistic_regression(name):
    """The outside check has the same objective, so trained to the end we agree with it."""
    study = plan_study(
        [read_table(name)],
        Settings(losses=("cross_entropy",), folds="2", trials=1, seeds=1, references="fast"),
    )
    rows = [row for item in study.items for row in work.execute(item, study.shared)]
    judged = [row for row in rows if row.kind != "trial"]
    ours, theirs = (
        np.concatenate([row.predictions.predicted for row in judged if row.loss == loss])
        for loss in ("cross_entropy", "logistic_regression")
    )
    assert len(ours) == len(theirs)
    assert (ours != theirs).mean() < 0.01


def test_run_and_read_back(study, tmp_path):
    record, outcome = run_study(study, tmp_path, workers=0, progress=False, command="expacc …")
    assert (outcome.done, outcome.failed) == (study.runs, 0)
    again, second = run_study(study, tmp_path, workers=0, progress=False, command="expacc …")
    assert (second.done, second.skipped) == (0, 4)
    assert without_time(again.rows) == without_time(record.rows)
    assert load_record(tmp_path).tables["iris"].classes == ("setosa", "versicolor", "virginica")
    assert record.settings["folds"] == "2"
    assert RunningScores()(record.rows).endswith("%")
    failed = failed_rows(study.items[0], "the worker died")
    assert {row.loss for row in failed} == {"cross_entropy", "exact", "hinge"}
    assert all(row.failure == "the worker died" and not row.metrics for row in failed)


def test_a_model_without_logits_has_no_score(study, monkeypatch):
    """The argmax of NaN is the first class: a diverged model would score its share."""
    score = work._score

    def spoiled(test, method, model):
        logits = score(test, method, model)
        if method.startswith("exact"):
            logits[3, 1] = np.inf
        return logits

    monkeypatch.setattr(work, "_score", spoiled)
    finals = [row for row in work.execute(study.items[0], study.shared) if row.kind == "final"]
    for row in finals:
        failed = "logits of test rows are not finite" if row.loss == "exact" else None
        assert row.failure == failed
        assert bool(row.metrics) == (failed is None)


def test_a_table_that_cannot_be_trained_on_is_refused_before_any_work(tmp_path):
    path = tmp_path / "numbers.csv"
    path.write_text("x,y\n" + "".join(f"{i % 7},{i}\n" for i in range(10_001)))
    with pytest.raises(ValueError, match="'y', the last column, is different in every row: an id"):
        read_table(path)
    with pytest.raises(ValueError, match="the target 'y' holds 10,001 different numbers"):
        read_table(path, target="y")
    with pytest.raises(ValueError, match=r"at most 10,000 classes; 'y' has 10,001"):
        plan_study([read_table(path, target="y", categorical=["y"])], SMALL)
    path.write_text("a,b,y\n" + "".join(f"k{i},{i % 7},{i % 2}\n" for i in range(50_000)))
    with pytest.raises(ValueError, match=r"got 50,000 × 50,001, .*--max-levels"):
        plan_study([read_table(path, categorical=["a"])], SMALL)
