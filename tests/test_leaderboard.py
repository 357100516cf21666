"""The leaderboard says what the rows say: seeds averaged, the right test, failures as failures."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from study_samples import LOSSES, hostile, sample

from expacc.compare.leaderboard import leaderboard, leaderboard_csv, leaderboard_json
from expacc.compare.page_tables import overall_table
from expacc.compare.record import TableFacts, read_protocol
from expacc.compare.terminal import print_leaderboard
from expacc.report.words import OUTSIDE, loss_name
from expacc.runner.rows import Predictions
from expacc.stats import adjust, combined_5x2_f, mcnemar, paired_rows
from expacc.training import LOSS_NAMES


def accuracies(record, loss, fold, noise=0.0):
    return [
        row.metrics["accuracy"]
        for row in record.rows
        if (row.kind, row.loss, row.fold, row.noise) == ("final", loss, fold, noise)
    ]


def test_accuracy_is_the_mean_over_folds_of_the_mean_over_seeds():
    record = sample(seeds=3, folds="10")
    board = leaderboard(record).boards[0]
    for entry in board.entries:
        if entry.loss in OUTSIDE:
            continue
        per_fold = [np.mean(accuracies(record, entry.loss, fold)) for fold in board.folds]
        assert entry.accuracy == pytest.approx(np.mean(per_fold))
        assert entry.spread == pytest.approx(np.std(per_fold, ddof=1))
    scores = [entry.accuracy for entry in board.entries]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(("folds", "parts"), [("5x2", 2), ("10", 10), ("3x4", 4), ("5x3", 3)])
def test_folds_are_decided_by_their_rows(folds, parts):
    record = sample(folds=folds, seeds=2)
    board = leaderboard(record).boards[0]
    exact = board.entry("exact")
    assert exact.test == paired_rows(row_gains(record, board, "exact"), parts)
    if folds != "5x2":
        assert exact.second_test is None
        return
    assert board.folds[:3] == ("1a", "1b", "2a")
    means = [
        [np.mean(accuracies(record, loss, fold)) for fold in board.folds]
        for loss in ("exact", "cross_entropy")
    ]
    ten = np.reshape(np.subtract(*means), (5, 2))
    assert exact.second_test == combined_5x2_f(ten, 300)
    assert exact.difference == pytest.approx(ten.mean())
    assert exact.wins + exact.ties + exact.losses == 10
    assert exact.wins == int((ten > 1e-10).sum())


def row_gains(record, board, loss):
    """Repetitions × rows: the share of seeds right, less that of cross entropy."""
    facts = record.tables[board.table]
    repeats = 5 if "1a" in board.folds else len({fold.rpartition(".")[0] for fold in board.folds})
    gains = np.zeros((repeats, facts.rows))
    seeds = max(row.seed for row in record.rows) + 1
    for row in record.rows:
        if row.kind == "final" and row.loss in (loss, "cross_entropy"):
            repeat = list(board.folds).index(row.fold) * repeats // len(board.folds)
            right = row.predictions.predicted == facts.labels[row.predictions.rows]
            gains[repeat, row.predictions.rows] += right * (1 if row.loss == loss else -1) / seeds
    return gains


def test_splits_that_test_rows_unequally_often_get_the_corrected_t():
    record = sample(folds="10")
    rows = tuple(
        replace(row, predictions=Predictions(*(p[:50] for p in vars(row.predictions).values())))
        if row.fold == "3"
        else row
        for row in record.rows
        if row.kind == "final"
    )
    twice = tuple(replace(row, fold="1b", key=f"{row.key}b") for row in rows if row.fold == "1")
    record = replace(record, rows=rows + twice, settings={**record.settings, "folds": "holdout"})
    (name,) = record.tables
    facts = replace(record.tables[name], folds=(*map(str, range(1, 11)), "1b"))
    board = leaderboard(replace(record, tables={name: facts})).boards[0]
    assert board.entry("exact").test.test == "corrected paired t"


def test_a_holdout_gets_mcnemar_over_its_rows():
    record = sample(folds="holdout", seeds=2)
    labels = record.tables["digits"].labels

    def right(loss):
        found = [r for r in record.rows if r.kind == "final" and r.loss == loss]
        return np.array([r.predictions.predicted == labels[r.predictions.rows] for r in found])

    entry = leaderboard(record).boards[0].entry("exact")
    assert entry.test == mcnemar(right("exact"), right("cross_entropy"))


def test_p_is_adjusted_over_the_losses_and_every_board_of_a_study():
    alone = leaderboard(sample(trials=0)).boards[0]
    noisy = leaderboard(sample(trials=0, noises=(0.0, 0.2))).board("digits", 0.0)
    several = leaderboard(sample(tables=("digits", "b", "c"), trials=0, noises=(0.0, 0.2)))
    for board, times in ((alone, 1), (noisy, 2), (several.board("digits"), 6)):
        tested = [entry for entry in board.entries if entry.test is not None]
        assert {entry.loss for entry in tested} == {*LOSSES} - {"cross_entropy"}
        expected = np.minimum(1, times * adjust([entry.test.p_value for entry in tested]))
        assert [entry.adjusted_p for entry in tested] == pytest.approx(expected.tolist())


def test_verdicts_follow_the_test():
    entries = {e.loss: e for e in leaderboard(sample(rows=1500)).boards[0].entries}
    assert entries["exact"].verdict == "better"
    assert entries["focal"].verdict == "worse"
    assert entries["cross_entropy"].verdict == "reference"
    assert entries["logistic_regression"].verdict == "outside"
    same = leaderboard(sample(effect=0.0))
    assert {e.verdict for e in same.boards[0].entries} == {"even", "reference", "outside"}
    assert same.verdict == "keep"
    assert same.answer.choice == "cross entropy"


def test_a_failed_run_is_a_failure_with_its_reason():
    board = leaderboard(sample(fail=[("exact", "2a"), ("focal", "*")]))
    one = board.boards[0]
    exact, focal = one.entry("exact"), one.entry("focal")
    assert focal.accuracy is None
    assert focal.difference is None
    assert len(focal.failures) == 10
    assert len(exact.folds) == 9
    assert exact.test is None
    assert exact.verdict == "unfinished"
    assert one.entries[-1].loss == "focal"
    assert one.entries[-2].loss == "exact", "nine good folds do not outrank ten"
    assert {f.reason for f in board.failures} == {
        "diverged at step 120: its gradient is not finite"
    }
    assert "EXACT" not in board.answer.sentence
    assert any("EXACT" in note and "9 of 10" in note for note in board.notes)


def test_a_failed_seed_leaves_its_fold_to_the_others():
    record = sample(seeds=2)
    rows = tuple(
        replace(r, metrics={}, predictions=None, failure="out of memory")
        if (r.kind, r.loss, r.fold, r.seed) == ("final", "exact", "1a", 1)
        else r
        for r in record.rows
    )
    entry = leaderboard(replace(record, rows=rows)).boards[0].entry("exact")
    assert entry.folds["1a"] == accuracies(record, "exact", "1a")[0]
    assert entry.test is not None
    assert [f.reason for f in entry.failures] == ["out of memory"]
    rows = [  # a score beside a failure is not believed
        replace(row, failure="diverged") if row.loss == "exact" and row.kind == "final" else row
        for row in record.rows
    ]
    assert leaderboard(replace(record, rows=tuple(rows))).boards[0].entry("exact").accuracy is None


@pytest.mark.parametrize(
    ("share", "verdict"), [(0.0, "unfinished"), (0.3, "unfinished"), (0.7, "better")]
)
def test_a_running_study_has_a_board(share, verdict):
    record = sample()
    finals = [row for row in record.rows if row.kind != "trial"]
    board = leaderboard(replace(record, rows=tuple(finals[: int(share * len(finals))])))
    assert board.verdict == verdict
    assert not board.boards[0].complete
    assert len(board.boards[0].entries) >= 5, "losses that have not begun are listed too"


def test_no_reference_no_answer():
    board = leaderboard(sample(fail=[("cross_entropy", "*")]))
    assert board.verdict == "unfinished"
    assert "no answer yet" in board.answer.sentence
    assert all(entry.test is None for entry in board.boards[0].entries)


def test_several_tables_are_ranked():
    record = sample(tables=tuple("abcdef"), trials=0)
    board = leaderboard(record)
    overall = board.overall
    assert overall.tables == tuple("abcdef")
    assert overall.accuracies.shape == (6, 5)
    assert overall.entries[0].loss == "exact"
    assert [e.mean_rank for e in overall.entries] == sorted(e.mean_rank for e in overall.entries)
    exact = overall.entries[0]
    assert exact.against.wins == 6
    gaps = [b.entry("exact").accuracy - b.entry("cross_entropy").accuracy for b in board.boards]
    assert exact.difference == pytest.approx(np.mean(gaps))
    assert exact.interval[0] < exact.difference < exact.interval[1]
    assert board.answer == overall.answer
    assert [entry.loss for entry in overall.outside] == ["logistic_regression", "majority_class"]
    outside = overall.outside[0]
    assert outside.loss not in overall.losses
    assert outside.adjusted_p is None
    reference = next(entry for entry in overall.entries if entry.difference is None)
    assert outside.difference == pytest.approx(outside.accuracy - reference.accuracy)
    low, high = outside.interval
    assert low <= outside.difference <= high
    last = overall_table(overall)[1][-2]
    assert (last["note"], last["cells"][0]["value"]) == ("scikit-learn", "–")


def test_a_loss_that_always_fails_does_not_take_the_tables_with_it():
    overall = leaderboard(sample(tables=tuple("abcd"), trials=0, fail=[("focal", "*")]))
    assert "focal" not in overall.overall.losses
    assert len(overall.overall.tables) == 4
    assert any("focal" in note for note in overall.notes)


def test_noise_levels_have_boards_of_their_own():
    board = leaderboard(sample(noises=(0.2, 0.0, 0.05), trials=0))
    assert [one.noise for one in board.boards] == [0.0]
    assert [one.noise for one in board.noisy] == [0.05, 0.2]
    assert board.board("digits", 0.2).entry("exact").difference > 0.05
    only = leaderboard(sample(noises=(0.2,), trials=0))
    assert only.answer.sentence.startswith("With 20 % of training labels replaced at random: ")


def test_time_counts_the_search_and_losses_have_names_for_people():
    record = sample(trials=4)
    entry = leaderboard(record).boards[0].entry("exact")
    assert entry.seconds == pytest.approx(sum(r.seconds for r in record.rows if r.loss == "exact"))
    assert all("_" not in loss_name(loss) for loss in LOSS_NAMES)
    assert len({loss_name(loss) for loss in LOSS_NAMES}) == len(LOSS_NAMES)
    assert loss_name("exact") == "EXACT"


@pytest.mark.parametrize(
    ("folds", "kind", "count"),
    [("5x2", "5x2", 10), ("10", "folds", 10), ("3x10", "folds", 0), ("holdout", "holdout", 1)],
)
def test_protocols(folds, kind, count):
    protocol = read_protocol(folds)
    assert protocol.kind == kind
    assert len(protocol.folds) == count


def test_folds_that_came_with_a_table_are_all_asked_for():
    assert read_protocol("holdout", ("1", "2", "3", "4")).text == "4 given folds"
    assert read_protocol("holdout", ("holdout",)).kind == "holdout"
    record = sample(folds="4", trials=0)
    (name,) = record.tables
    facts = replace(record.tables[name], folds=("1", "2", "3", "4"))
    record = replace(record, settings={**record.settings, "folds": "holdout"}, tables={name: facts})
    board = leaderboard(record)
    assert board.boards[0].complete
    assert board.boards[0].entry("exact").test is not None
    cut = replace(record, rows=tuple(row for row in record.rows if row.fold != "4"))
    assert not leaderboard(cut).boards[0].complete
    repeated = replace(facts, folds=("1.1", "1.2", "2.1", "2.2"))
    few = replace(
        record, settings={**record.settings, "folds": "2x2"}, tables={name: repeated}, rows=()
    )
    assert leaderboard(few).boards[0].folds == repeated.folds


def test_refusals():
    with pytest.raises(ValueError, match="one class number per row"):
        TableFacts("t", 3, 2, ("a", "b"), np.zeros(2, np.int32))
    with pytest.raises(ValueError, match="at least one table"):
        leaderboard(replace(sample(trials=0), tables={}, rows=()))


def test_files_hold_the_same_numbers():
    record = sample(tables=("a", "b"), noises=(0.0, 0.1), trials=0, fail=[("exact", "1a")])
    board = leaderboard(record)
    told = json.loads(leaderboard_json(record, board))
    lines = list(csv.DictReader(io.StringIO(leaderboard_csv(board))))
    assert len(lines) == 2 * 2 * 7  # five losses, logistic regression and the most frequent class
    assert {line["target"] for line in lines} == {"label"}
    assert len(told["failures"]) == 4
    for line in lines:
        one = board.board(line["table"], float(line["noise"]))
        entry = one.entry(line["loss"])
        assert float(line["accuracy"]) == pytest.approx(entry.accuracy, abs=1e-5)
        assert (line["p"] == "") == (entry.test is None)


def drawn(board, width):
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    print_leaderboard(board, console)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_the_terminal_shows_answer_and_board(width):
    board = leaderboard(sample(fail=[("focal", "*")]))
    text = drawn(board, width)
    flat = " ".join(text.split())
    assert board.answer.sentence in flat
    for entry in board.boards[0].entries:
        if entry.accuracy is not None:
            assert f"{entry.accuracy * 100:.1f}" in flat
    assert "diverged at step 120" in flat
    assert "calibr" in flat
    first, *others = text.splitlines()
    said, others = others[: len(board.answer.also)], others[len(board.answer.also) :]
    # One line each where it is no terminal.
    assert (first, *said) == (board.answer.sentence, *board.answer.also)
    assert max(map(len, others)) <= width


def test_the_terminal_shows_several_tables_and_noise_and_names_cannot_draw():
    assert "mean rank" in drawn(leaderboard(sample(tables=tuple("abc"), trials=0)), 120)
    assert "20 % of training labels" in drawn(leaderboard(sample(noises=(0.0, 0.2))), 120)
    record = hostile()
    text = drawn(leaderboard(record), 100)
    assert not {"\x1b", "\x00"} & set(text)
    marked = replace(record, tables={"[red]x[/red]": next(iter(record.tables.values()))}, rows=())
    assert "[red]x[/red]" in drawn(leaderboard(marked), 100)
