"""mixing-uci: what is run, and what its page says."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from test_recipes_all import words
from uci_files import real_data, write_prepared

from expacc.functional import mixed_expected_error
from expacc.functional.softmax import focus_weights
from expacc.recipes.mixing.scores import scores_of, summary
from expacc.recipes.mixing.uci import (
    ARMS,
    CE,
    CONTROL,
    EL,
    EVERY,
    GRADUAL,
    SHAPES,
    SWEEP,
    TABLES,
    Shape,
    gradient_volume,
    plan,
    read_tables,
    scales_differ,
)
from expacc.recipes.mixing.uci_page import TABLE_4, gains_chart, look_of
from expacc.recipes.page import verdict
from expacc.recipes.paper import Layout
from expacc.recipes.recipe import RecipeOptions, recipes_of
from expacc.recipes.sweep import Place, execute, grid
from expacc.runner.items import WorkItem, check_rows
from expacc.runner.rows import Row
from expacc.schedules import focus_gradual

UCI = {recipe.name: recipe for recipe in recipes_of("mixing")}["mixing-uci"]
GOOD = 3  # epochs of most tests here


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Four small tables, two of them by the paper's names; one with a class of one row."""
    root = tmp_path_factory.mktemp("data")
    for seed, (name, rows, features, classes) in enumerate(
        [("iris", 61, 4, 3), ("wine", 70, 5, 3), ("lenses", 24, 3, 2), ("mine", 50, 3, 4)]
    ):
        write_prepared(root / "uci121" / name, rows, features, classes, seed)
    return root


@pytest.fixture(scope="module")
def rows_and_facts(data):
    """All rows of a short study over the four tables."""
    work = plan(RecipeOptions(data=data))
    rows = []
    for item in work.items:
        short = dataclasses.replace(item, payload={**item.payload, "epochs": GOOD})
        found = execute(short, work.shared)
        check_rows(item.key, found)
        assert len([row for row in found if row.kind == "trial"]) == item.runs
        rows += found
    return rows, dict(work.facts)


# --------------------------------------------------------------------------------- paper and arms


def test_the_paper_is_as_printed():
    assert len(TABLES) == len(set(TABLES)) == 121
    for shape in SHAPES:
        assert tuple(TABLE_4[shape]) == ARMS
        printed = TABLE_4[shape]
        assert min(printed, key=lambda name: printed[name]["mean_rank"].mean) == GRADUAL
        assert max(printed, key=lambda name: printed[name]["mean_rank"].mean) == EL
        # With ties split the six would sum to 21.
        assert sum(one["mean_rank"].mean for one in printed.values()) < 17


@pytest.mark.parametrize("weights", [(1.0, 0.0), (1.0, 1.0), (1.0, 5.0), (0.0, 1.0)])
def test_the_volume_is_the_area_under_the_gradient(weights):
    p = torch.linspace(1e-4, 1 - 1e-4, 20_001, dtype=torch.float64)
    logits = torch.stack([torch.log(p / (1 - p)), torch.zeros_like(p)], 1).requires_grad_()
    label = torch.zeros(len(p), dtype=torch.int64)
    ce_weight, error_weight = weights
    loss = mixed_expected_error(
        logits, label, ce_weight=ce_weight, error_weight=error_weight, reduction="sum"
    )
    (slope,) = torch.autograd.grad(loss, logits)
    area = torch.trapezoid(slope[:, 0].abs(), p).item()
    assert gradient_volume(*weights) == pytest.approx(area / 0.5, rel=1e-3)


def test_runs_follow_the_schedules(data):
    work = plan(RecipeOptions(data=data))
    item = next(item for item in work.items if item.key == "wine|linear")
    (opened,) = SWEEP.open(item.payload, work.shared, ["a"])
    runs = {
        arm: SWEEP.run(item.payload, opened, Place("fold 1", arm, 0, 0, {"learning_rate": 0.01}))
        for arm in EVERY
    }
    assert len({run.key for run in runs.values()}) == len(EVERY)
    assert {run.group for run in runs.values()} == {"wine|linear|fold 1|0"}
    assert (
        runs[CE].loss_params == runs[CONTROL].loss_params == {"ce_weight": 1.0, "error_weight": 0.0}
    )
    assert runs[EL].loss_params == {"ce_weight": 0.0, "error_weight": 1.0}
    assert runs[GRADUAL].loss_params["focus"] is focus_gradual
    switch = runs["CE+EL F=0,0.5"].loss_params["focus"]
    assert [focus_weights(switch(epoch / 50)) for epoch in (0, 47, 48)] == [
        *((1.0, 1.0), (1.0, 1.0), (0.0, 1.0)),
    ]
    control = runs[CONTROL].learning_rate
    assert control(0.0) == pytest.approx(0.01 * 4 / 3)
    assert control(49 / 50) == pytest.approx(0.01 / 3)
    assert runs["Focal"].loss == "focal"


# ----------------------------------------------------------------------------------------- tables


def test_tables_travel_and_keep_test_rows_sealed(data):
    tables, left_out = read_tables(data / "uci121")
    assert sorted(tables) == ["iris", "lenses", "mine", "wine"]
    assert left_out == []
    assert list(read_tables(data / "uci121", most=1)[0]) == ["lenses"]
    table = tables["mine"]
    size = Shape.of(table)
    assert (size.rows, size.features, size.classes, len(size.folds)) == (50, 3, 4, 4)
    work = plan(RecipeOptions(data=data))
    ask = {"table": "mine", "folds": ["fold 2"]}
    (opened,) = SWEEP.open(ask, work.shared, ["a", "b"])
    split = table.given[1]
    assert len(opened.train["fold 2"]) == len(split.train)
    assert len(opened.held["fold 2"]) == len(split.validation)
    held = opened.rows.labels[opened.held["fold 2"]]
    assert held.tolist() == table.target.codes[split.validation].tolist()
    assert opened.test["fold 2"].waiting == ("a", "b")
    assert len(opened.test["fold 2"]) == len(split.test)
    # A table is one entry of the digests.
    assert {key.partition("/")[0] for key in work.shared} == set(tables)


def test_tables_without_a_usable_fold_are_named(tmp_path):
    write_prepared(tmp_path / "uci121" / "wine", 40, 3, 2, seed=0)
    write_prepared(tmp_path / "uci121" / "iris", 40, 3, 2, seed=1)
    (tmp_path / "uci121" / "iris" / "validation_folds_py.dat").unlink()
    work = plan(RecipeOptions(data=tmp_path))
    assert {item.payload["table"] for item in work.items} == {"wine"}
    assert any("uci121/iris is left out" in sentence for sentence in work.missing)


def test_other_scales_of_test_rows_are_seen(tmp_path):
    write_prepared(tmp_path / "wine", 80, 3, 2, seed=0)
    (table,) = read_tables(tmp_path)[0].values()
    assert not scales_differ(table)
    column = table.columns[1]
    moved = np.array(column.values)
    moved[table.given[0].test] += 1000.0
    columns = (table.columns[0], dataclasses.replace(column, values=moved), *table.columns[2:])
    assert scales_differ(dataclasses.replace(table, columns=columns))


# ------------------------------------------------------------------------------------------- work


def test_the_plan_is_the_papers(data):
    work = plan(RecipeOptions(data=data))
    assert sum(item.runs for item in work.items) == 4 * 2 * 4 * 2 * 3 * len(EVERY)
    assert len({item.key for item in work.items}) == len(work.items) == 8
    first = work.items[0].payload
    assert (first["epochs"], first["batch"]) == (50, 8)
    assert first["settings"] == dict.fromkeys(EVERY, grid(learning_rate=(0.01, 0.005, 0.001)))
    assert first["seeds"] == [0, 1]
    assert len(first["folds"]) == 4
    (sentence,) = work.missing
    assert sentence.startswith("uci121/abalone, ")
    assert "and 112 more are missing" in sentence
    more = plan(RecipeOptions(data=data, seeds=3, seed=5))
    assert more.items[0].payload["seeds"] == [0, 1, 2]
    assert more.items[0].payload["seed"] == 5


def test_items_are_the_same_on_every_device_and_the_longest_come_first(data):
    here, there = plan(RecipeOptions(data=data)), plan(RecipeOptions(data=data, device="cuda"))
    assert [item.key for item in here.items] == [item.key for item in there.items]
    assert there.items[0].payload["device"] == "cuda"
    sizes = {name: about["train"] for name, about in here.facts["tables"].items()}
    assert here.items[0].payload["labels"] == {"shape": "one hidden layer"}
    assert sizes[here.items[0].payload["table"]] == max(sizes.values())


def test_weights_that_take_turns_are_cut_by_fold(tmp_path):
    write_prepared(tmp_path / "uci121" / "musk-2", 40, 120, 2, seed=0)
    work = plan(RecipeOptions(data=tmp_path))
    keys = {item.key for item in work.items}
    assert "musk-2|linear" in keys
    assert "musk-2|one hidden layer|fold 3" in keys
    assert sum(item.runs for item in work.items) == 2 * 4 * 2 * 3 * len(EVERY)


def test_effort_grows_with_rows_and_weights(data):
    size = Shape.of(read_tables(data / "uci121")[0]["wine"])
    assert size.effort("one hidden layer") > size.effort("linear")
    assert dataclasses.replace(size, train=10 * size.train).effort("linear") > size.effort("linear")


def test_when_every_rate_diverges_the_row_says_so(data):
    work = plan(RecipeOptions(data=data))
    item = next(item for item in work.items if item.key == "lenses|one hidden layer")
    payload = {
        **item.payload,
        "epochs": 2,
        "settings": dict.fromkeys(EVERY, grid(learning_rate=[1e30, 1e29])),
        "folds": item.payload["folds"][:1],
    }
    found = execute(WorkItem(item.key, payload, 2 * 2 * len(EVERY)), work.shared)
    check_rows(item.key, found)
    finals = [row for row in found if row.kind == "final"]
    assert len(finals) == 2 * len(EVERY)
    assert {row.failure for row in finals} >= {"every setting diverged"}
    assert any(row.kind == "trial" and row.failure.startswith("diverged at step") for row in found)


def test_a_class_that_training_rows_lack(tmp_path):
    write_prepared(tmp_path / "uci121" / "wine", 30, 3, 2, seed=0)
    folder = tmp_path / "uci121" / "wine"
    labels = np.loadtxt(folder / "labels_py.dat", dtype=int)
    test = np.loadtxt(folder / "folds_py.dat", delimiter=",", dtype=int)[:, 0] == 1
    labels[np.flatnonzero(test)[0]] = 7  # one row of a class of its own, in fold 1 to test on
    np.savetxt(folder / "labels_py.dat", labels, fmt="%d")
    work = plan(RecipeOptions(data=tmp_path))
    for item in work.items:
        short = dataclasses.replace(item, payload={**item.payload, "epochs": 2})
        found = execute(short, work.shared)
        check_rows(item.key, found)
        assert all(row.failure is None for row in found)


def test_quick_takes_a_part(data):
    work = plan(RecipeOptions(data=data, quick=True))
    assert {item.payload["epochs"] for item in work.items} == {20}
    assert {len(item.payload["folds"]) for item in work.items} == {2}
    assert {tuple(item.payload["seeds"]) for item in work.items} == {(0,)}
    assert work.missing == ()


# ----------------------------------------------------------------------------------------- scores


def row_of(table, shape, fold, seed, loss, accuracy, failure=None):
    key = f"{table}|{shape}|{fold}|{seed}|{loss}"
    metrics = {} if failure else {"accuracy": accuracy, "best_epoch": 1.0}
    numbers = {"shape": shape, "learning_rate": 0.01}
    return Row(key, table, "final", table, loss, fold, 0.0, seed, numbers, metrics, failure=failure)


def rows_with(accuracies, tables, folds=("fold 1",), seeds=(0,)):
    """Rows in which loss → accuracy, or a function of (table number, seed number, fold number)."""
    found = []
    for shape in SHAPES:
        for t, table in enumerate(tables):
            for s in seeds:
                for f, fold in enumerate(folds):
                    for loss in EVERY:
                        value = accuracies[loss]
                        value = value(t, s, f) if callable(value) else value
                        found.append(row_of(table, shape, fold, s, loss, value))
    return found


def test_wins_gains_and_ranks_by_hand():
    accuracies = dict.fromkeys(EVERY, 0.5)
    accuracies |= {GRADUAL: 0.9, "CE+EL F=0": 0.9, CE: 0.8, EL: 0.1}
    rows = rows_with(accuracies, ["iris", "wine"])
    scores = scores_of(rows, "linear", {"iris": ["fold 1"], "wine": ["fold 1"]})
    found = summary(scores, ARMS)
    assert (found[GRADUAL].wins.mean, found[CE].wins.mean) == (100.0, 0.0)
    # Two share rank 1, CE is third, two share rank 4, EL is sixth.
    assert [found[name].mean_rank.mean for name in ARMS] == [3, 1, 4, 1, 6, 4]
    assert found[GRADUAL].gain.mean == pytest.approx(10)
    assert found[EL].gain.mean == pytest.approx(-70)
    assert (found[GRADUAL].better, found[GRADUAL].level, found[GRADUAL].worse) == (2, 0, 0)
    assert found[CE].level == 2
    assert found[GRADUAL].gain.splits == 1
    assert found[GRADUAL].gain.spread is None
    assert found[GRADUAL].gain.error == pytest.approx(0)


def test_spread_is_over_splits_and_error_over_tables():
    accuracies = dict.fromkeys(EVERY, 0.5)
    accuracies[GRADUAL] = lambda table, seed, fold: 0.5 + 0.1 * table + 0.02 * seed
    rows = rows_with(accuracies, ["iris", "wine"], seeds=(0, 1))
    scores = scores_of(rows, "linear", {"iris": ["fold 1"], "wine": ["fold 1"]})
    gain = summary(scores, ARMS)[GRADUAL].gain
    assert gain.mean == pytest.approx(6)
    assert gain.spread == pytest.approx(math.sqrt(2))  # 5 and 7 points
    assert gain.error == pytest.approx(5)  # 1 and 11 points: deviation 7.07, over √2
    assert scores.means(0)[:, EVERY.index(GRADUAL)] == pytest.approx([50, 60])


def test_tables_with_a_gap_are_left_out():
    rows = rows_with(dict.fromkeys(EVERY, 0.5), ["iris", "wine", "zzz"])
    gone = next(r for r in rows if r.table == "wine" and r.numbers["shape"] == "linear")
    rows = [r for r in rows if r is not gone]
    rows.append(row_of("wine", "linear", "fold 1", 0, gone.loss, 0, failure="died"))
    folds = {name: ["fold 1"] for name in ("iris", "wine", "zzz")}
    scores = scores_of(rows, "linear", folds)
    assert scores.tables == ("iris", "zzz")
    assert scores.left_out == ("wine",)
    assert scores_of(rows, "one hidden layer", folds).tables == ("iris", "wine", "zzz")


# ------------------------------------------------------------------------------------------- page


def facts_of(tables, folds=("fold 1",), **more):
    about = {"rows": 100, "train": 50, "features": 3, "classes": 2, "apart": False}
    return {"tables": {name: {**about, "folds": list(folds)} for name in tables}, **more}


NAMES = TABLES[:12]


def noisy(level):
    """Around ``level``, differently on every table."""
    return lambda table, seed, fold: level + 0.001 * ((7 * table + 3 * seed + fold) % 5)


def verdicts_of(accuracies):
    """The claims about each architecture, as verdicts."""
    page = UCI.write(rows_with(accuracies, NAMES, seeds=(0, 1)), facts_of(NAMES, epochs=50))
    assert len(page.claims) == 2 * 6
    halves = [[one.holds for one in page.claims[low : low + 6]] for low in (0, 6)]
    assert halves[0] == halves[1]
    return halves[0], {one.says: one for one in page.claims}


@pytest.mark.parametrize(
    ("levels", "holds"),  # first, last, ahead of CE, all pairs, a gain, control behind
    [
        ((0.9, 0.88, 0.86, 0.3, 0.5), [True, True, True, True, True, True]),
        ((0.82, 0.9, 0.81, 0.3, 0.5), [False, True, True, False, True, True]),
        ((0.9, 0.88, 0.86, 0.5, 0.3), [True, False, True, False, True, True]),
        ((0.4, 0.88, 0.86, 0.5, 0.3), [False, False, False, False, False, False]),
    ],
)
def test_verdicts_follow_the_numbers(levels, holds):
    losses = (GRADUAL, "CE+EL F=0,0.5", "CE+EL F=0", EL, "Focal")
    accuracies = {CE: noisy(0.8), CONTROL: noisy(0.8)}
    accuracies |= {name: noisy(level) for name, level in zip(losses, levels, strict=True)}
    found, claims = verdicts_of(accuracies)
    assert found == holds
    gain = f"{100 * (levels[0] - 0.8):+.2f}".replace("-", "−")
    assert claims["F=0-0.5 over CE, points; linear"].ours.startswith(gain)


def test_when_all_are_level_nobody_is_ahead():
    found, claims = verdicts_of(dict.fromkeys(EVERY, 0.5))
    assert found == [True, True, False, False, False, False]  # all share the first place
    assert claims["ahead of CE by mean rank; linear"].ours == "none"
    assert claims["F=0-0.5 over CE, points; linear"].ours.startswith(
        "0.00, better on 0, worse on 0"
    )


def test_numbers_stand_beside_the_papers(rows_and_facts):
    rows, facts = rows_and_facts
    page = UCI.write(rows, facts)
    beside = {
        (section.title, *row.labels): (row, verdict(row, section.slack))
        for section in page.sections
        for row in section.beside
    }
    assert len(beside) == 3 * 2 * len(EVERY)
    row, _ = beside["Table 4: wins", "linear", GRADUAL]
    assert row.theirs.mean == pytest.approx(100 * 48 / 121)
    assert row.ours.count == 8  # folds times seeds
    row, word = beside["Table 4: gain", "one hidden layer", CE]
    assert (row.ours.mean, word) == (0.0, "within")
    assert beside["Table 4: mean rank", "linear", CONTROL][1] == "new"
    said = words(page)
    assert "3 of the paper's 121, and 1 more of the same kind" in said
    assert "Friedman's χ²" in said
    charts = [chart for section in page.sections for chart in section.charts]
    keys = [chart.key for chart in charts]
    assert len(keys) == 2 + 4 + 2
    grids = {grid.title: grid for section in page.sections for grid in section.grids}
    assert len(grids["Test accuracy, linear"].rows) == 4
    chosen = grids["Chosen by the validation rows"]
    assert len(chosen.rows) == 2 * len(EVERY)
    assert {row[-1] for row in chosen.rows} == {"0 of 96"}


def test_a_part_of_the_rows_is_enough(rows_and_facts):
    rows, facts = rows_and_facts
    linear = UCI.write([r for r in rows if r.numbers["shape"] == "linear"], facts)
    known = {claim.says.partition("; ")[2] for claim in linear.claims if claim.holds is not None}
    assert known == {"linear"}
    page = UCI.write([r for r in rows if r.table == "wine"], facts)
    assert page.sections  # too few to test, enough to show
    assert not any(section.title.startswith("Figure 3") for section in page.sections)
    failed = [
        dataclasses.replace(r, metrics={}, failure="diverged")
        if r.table == "iris" and r.loss == EL
        else r
        for r in rows
    ]
    page = UCI.write(failed, facts)
    assert any("a score is missing: iris" in text for text in page.deviations)


def test_quick_and_odd_tables_are_told():
    rows = rows_with(dict.fromkeys(EVERY, 0.5), NAMES[:3])
    facts = facts_of(NAMES[:3], epochs=20)
    facts["tables"][NAMES[1]]["apart"] = True
    said = "\n".join(UCI.write(rows, facts).deviations)
    assert "Trained for 20 epochs; the paper has 50" in said
    assert f"they are kept as the paper has them: {NAMES[1]}." in said


def test_the_control_is_judged():
    accuracies = {name: noisy(0.8) for name in EVERY} | {CONTROL: noisy(0.85)}
    page = UCI.write(rows_with(accuracies, NAMES, seeds=(0, 1)), facts_of(NAMES, epochs=50))
    grids = {grid.title: grid for section in page.sections for grid in section.grids}
    line = grids["The control less another loss, mean over tables"].rows[0]
    assert line[:5] == ("linear", CE, "+5.00", "12", "0")
    claim = next(one for one in page.claims if one.says.startswith("CE, rate scaled"))
    assert claim.ours.startswith("+5.00")
    assert claim.verdict == "does not hold"


def test_every_loss_has_its_own_look():
    found = [look_of(name) for name in EVERY]
    assert (
        len({look.colour for look in found}) == len({look.marker for look in found}) == len(found)
    )


def test_a_chart_of_one_table_can_be_drawn():
    rows = rows_with(dict.fromkeys(EVERY, 0.5), ["iris"])
    chart = gains_chart(
        Layout("mixing", "mixing-uci", {}), "gains", scores_of(rows, "linear", {"iris": ["fold 1"]})
    )
    assert "CE+EL F=0-0.5 0.00 on average" in chart.finding


# -------------------------------------------------------------------------------------- the whole


@pytest.mark.slow
def test_real_tables():
    work = plan(RecipeOptions(data=real_data("uci121/wine")))
    names = ("wine", "lenses", "balloons", "trains", "low-res-spect")
    rows = []
    for item in work.items:
        if item.payload["table"] in names and item.payload["labels"]["shape"] == "linear":
            rows += execute(item, work.shared)
    assert all(row.failure is None for row in rows)
    wine = [
        row.metrics["accuracy"]
        for row in rows
        if row.kind == "final" and row.table == "wine" and row.loss in (CE, GRADUAL)
    ]
    assert np.mean(wine) > 0.96
