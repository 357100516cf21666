"""Rows with wrong labels come first, and only models that did not see a row may judge it."""

import csv
import io
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from study_samples import sample

from expacc.compare.suspects import pack_source, rank_rows, suspects, suspects_csv
from expacc.runner.rows import Predictions, Row


def model(rows, predicted, given, loss="exact", failure=None):
    said = Predictions(
        np.array(rows, np.int32),
        np.array(predicted, np.int32),
        np.full(len(rows), 0.9, np.float32),
        np.array(given, np.float32),
    )
    return Row("k", "i", "final", "t", loss, "1", predictions=said, failure=failure)


LABELS = np.array([0, 1, 2, 0], np.int32)


def test_by_hand():
    rows = [
        model([0, 1, 2], [0, 2, 2], [0.9, 0.1, 0.6]),
        model([0, 1, 2], [1, 2, 0], [0.3, 0.3, 0.2]),
    ]
    found = rank_rows(rows, LABELS, 3)
    assert found.rows.tolist() == [1, 2, 0]  # row 3 was tested by nobody
    belief = [0.03**0.5, 0.12**0.5, 0.27**0.5]  # geometric means
    assert found.belief.tolist() == pytest.approx(belief)
    assert found.score.tolist() == pytest.approx([1 - one for one in belief])
    assert found.given.tolist() == [1, 2, 0]
    assert found.suggested.tolist() == [2, 0, 1]  # among equals another than the given one
    assert found.against.tolist() == [2, 1, 1]
    assert found.judged.tolist() == [2, 2, 2]
    assert found.disbelieved.tolist() == [True, False, False]


def test_no_model_decides_alone():
    fooled = [model([0], [1], [0.01]), model([0], [1], [0.01]), model([0], [0], [0.8])]
    unsure = [model([3], [1], [0.2]), model([3], [1], [0.2]), model([3], [0], [0.3])]
    assert rank_rows([*fooled, *unsure], LABELS, 3).rows.tolist() == [0, 3]
    sure = [model([0], [1], [0.0]), *[model([0], [0], [0.9])] * 9]
    doubted = [model([3], [1], [0.1])] * 10
    found = rank_rows([*sure, *doubted], LABELS, 3)
    assert found.rows.tolist() == [3, 0]
    assert np.isfinite(found.belief).all()


def test_equal_scores_are_ordered_by_disagreement():
    # Row 0 is believed once and doubted once, row 3 doubted twice by rivals that differ.
    rows = [model([0, 3], [0, 1], [0.2, 0.2]), model([0, 3], [1, 2], [0.2, 0.2])]
    found = rank_rows(rows, LABELS, 3)
    assert found.score[0] == found.score[1]
    assert found.rows.tolist() == [3, 0]


def test_failed_runs_have_no_say():
    rows = [model([0], [0], [0.9]), model([0], [2], [0.0], failure="diverged")]
    assert rank_rows(rows, LABELS, 3).against.tolist() == [0]
    assert len(rank_rows([], LABELS, 3).rows) == 0


def test_wrong_labels_stand_first_whatever_the_order_of_rows():
    record = sample(rows=1000, wrong_share=0.05, seed=3)
    random = np.random.default_rng(3)
    random.integers(0, 10, 1000)
    random.gamma(1.3, 0.8, 1000)
    wrong = random.random(1000) < 0.05  # as the sample drew them
    found = suspects(record, "digits")
    assert len(found.rows) == 1000
    assert wrong[found.rows[:100]].sum() >= 0.9 * wrong.sum()
    turned = suspects(replace(record, rows=record.rows[::-1]), "digits")
    assert turned.rows.tolist() == found.rows.tolist()


def test_only_accuracy_trained_models_on_unaltered_labels_are_asked():
    record = sample(noises=(0.0, 0.2), trials=0)
    found = suspects(record, "digits")
    assert set(found.losses) == {"exact", "leaky_expected_error", "mixed_expected_error"}
    assert set(found.judged.tolist()) == {15}  # three losses, five repetitions, one level
    others = sample(losses=("cross_entropy", "focal"), trials=0)
    assert set(suspects(others, "digits").losses) == {"cross_entropy", "focal"}


def test_the_file_lists_every_doubted_row():
    record = sample(wrong_share=0.05, trials=0, class_names=[*"abcdefghi", "=cmd()"])
    count = record.tables["digits"].rows
    written = {"=x": [f"cell {row}" for row in range(count)]}
    file = SimpleNamespace(rows=count, lines=2 * np.arange(count) + 3, written=written)
    facts = replace(record.tables["digits"], source=pack_source(file))
    record = replace(record, tables={"digits": facts})
    found = suspects(record, "digits")
    lines = list(csv.DictReader(io.StringIO(suspects_csv(record, [found]))))
    doubted = found.rows[found.against > 0]
    assert [int(line["line"]) for line in lines] == (2 * doubted + 3).tolist()
    assert [line["'=x"] for line in lines] == [f"cell {row}" for row in doubted]
    assert [int(line["rank"]) for line in lines] == (np.flatnonzero(found.against) + 1).tolist()
    assert all((line["disbelieved_by_all"] == "yes") == (line["models_against"] == line["models"])
               for line in lines)  # fmt: skip
    labels = {line["given"] for line in lines} | {line["suggested"] for line in lines}
    assert "'=cmd()" in labels, "a spreadsheet would run it"
    assert "=cmd()" not in labels
