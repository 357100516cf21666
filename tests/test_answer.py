"""The sentences, letter by letter."""

from types import SimpleNamespace

import numpy as np
import pytest

from expacc.compare.answer import Rival, answer_many_tables, answer_one_table
from expacc.compare.standing import _is_far
from expacc.report.words import p_text
from expacc.stats import conover, wilcoxon_against
from expacc.stats.one_table import PairedTest


def rival(name, accuracy, p_value, reference=0.921, interval=None):
    gain = accuracy - reference
    if interval is None:
        reach = abs(gain) * (0.5 if p_value <= 0.05 else 2) + 0.0001
        interval = (gain - reach, gain + reach)
    test = PairedTest("any", 1.0, p_value, (5.0,), gain, interval)
    return Rival(name, accuracy, test, p_value)


def ask(*rivals, accuracy=0.921):
    return answer_one_table("car.csv", "cross entropy", accuracy, rivals, protocol="5×2 cv")


SEEN = " A true gain of {} points would have been seen in four of five such studies."


KEEP = ": keep cross entropy."
# The rivals, the sentence, and who beats cross entropy, the best first.
ONE_TABLE = {
    "one winner": (
        [rival("EXACT", 0.952, 0.003), rival("focal", 0.93, 0.4)],
        "On car.csv EXACT beats cross entropy by 3.1 points (95.2 vs 92.1, 5×2 cv, p = 0.003).",
        ("EXACT",),
    ),
    "two winners": (
        [rival("leaky", 0.94, 0.01), rival("EXACT", 0.952, 0.0003)],
        "On car.csv EXACT beats cross entropy by 3.1 points (95.2 vs 92.1, 5×2 cv, p < 0.001); "
        "so does leaky (+1.9).",
        ("EXACT", "leaky"),
    ),
    "three winners": (
        [rival("a", 0.94, 0.01), rival("b", 0.952, 0.0003), rival("c", 0.93, 0.04)],
        "On car.csv b beats cross entropy by 3.1 points (95.2 vs 92.1, 5×2 cv, p < 0.001); "
        "so do a (+1.9) and c (+0.9).",
        ("b", "a", "c"),
    ),
    "a higher accuracy by chance does not win": (
        [rival("lucky", 0.96, 0.2), rival("EXACT", 0.952, 0.003)],
        "On car.csv EXACT beats cross entropy by 3.1 points (95.2 vs 92.1, 5×2 cv, p = 0.003).",
        ("EXACT",),
    ),
    # An interval of ± 0.41 points is a standard error of 0.209; two rivals: 2.24 + 0.84 of them.
    "nothing gained": (
        [rival("EXACT", 0.923, 0.61), rival("focal", 0.9, 0.01)],
        "No loss beats cross entropy on this data beyond chance (largest gain 0.2 points, "
        "p = 0.61)" + KEEP + SEEN.format("0.6"),
        (),
    ),
    "a rejection without direction is no win": (
        [rival("EXACT", 0.943, 0.01, interval=(-0.02, 0.05))],
        "No loss beats cross entropy on this data beyond chance (largest gain 2.2 points, "
        "p = 0.010, but its splits disagree about the sign)" + KEEP + SEEN.format("5.0"),
        (),
    ),
    "the reference is best": (
        [rival("EXACT", 0.918, 0.4), rival("focal", 0.9, 0.01)],
        "No loss beats cross entropy on this data, it is the best itself (nearest EXACT, "
        "0.3 points behind, p = 0.40)" + KEEP + SEEN.format("1.0"),
        (),
    ),
    "level": (
        [rival("EXACT", 0.921, 1.0)],
        "No loss beats cross entropy on this data (EXACT is level with it at 92.1, p = 1)"
        + KEEP + SEEN.format("0.01"),
        (),
    ),
    "it could have seen nothing": (
        [rival("EXACT", 0.921, 1.0, interval=(-1.0, 1.0))],
        "No loss beats cross entropy on this data (EXACT is level with it at 92.1, p = 1)"
        + KEEP + " It could not have seen any gain.",
        (),
    ),
    "the reference beats all": (
        [rival("EXACT", 0.909, 0.01), rival("focal", 0.9, 0.004)],
        "On car.csv cross entropy beats all 2 other losses (nearest EXACT, 1.2 points behind, "
        "92.1 vs 90.9, 5×2 cv, p = 0.010)" + KEEP,
        (),
    ),
    "the reference beats the one": (
        [rival("EXACT", 0.909, 0.01)],
        "On car.csv cross entropy beats EXACT (1.2 points behind, 92.1 vs 90.9, 5×2 cv, "
        "p = 0.010)" + KEEP,
        (),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rivals", "sentence", "beats"), ONE_TABLE.values(), ids=ONE_TABLE)
def test_one_table(rivals, sentence, beats):
    answer = ask(*rivals)
    assert answer.sentence == sentence
    assert (answer.choice, answer.beats) == ((*beats, "cross entropy")[0], beats)


def test_more_claims_are_seen_less_easily():
    rivals = [rival("b", 0.9, 0.5, 0.9, (-0.01, 0.01))]
    for families, gain in ((1, "1.4"), (20, "2.0")):  # (1.96 or 3.02, + 0.84) / 1.96
        answer = answer_one_table("t", "a", 0.9, rivals, protocol="", families=families)
        assert f"gain of {gain} points" in answer.sentence


@pytest.mark.parametrize("p_value", [0.0496, 0.04999, 0.0500001, 0.0504, 0.051, 0.9999, 0.001])
def test_p_is_never_rounded_across_the_level(p_value):
    text = p_text(p_value)
    assert (float(text.split()[-1]) < 0.05) == (p_value < 0.05)


NAMES = ["cross entropy", "EXACT", "focal"]


def scores(gains, tables=12, noise=0.001, seed=0):
    generator = np.random.default_rng(seed)
    level = generator.uniform(0.7, 0.9, (tables, 1))
    return level + np.array(gains) + noise * generator.normal(size=(tables, len(gains)))


def test_many_tables_with_a_winner():
    # EXACT is ahead by 1 to 10 points on ten tables and 11 and 12 behind on two: the smaller rank
    # sum is 23 of 78. focal is level.
    gaps = np.array([*range(1, 11), -11, -12]) / 100
    table = 0.5 + np.stack([np.zeros(12), gaps, np.zeros(12)], 1)
    answer = answer_many_tables(table, NAMES, "cross entropy")
    assert answer.sentence.startswith(
        "Over 12 tables no loss beats cross entropy beyond chance (nearest EXACT, better on 10 of "
        "12, 2.7 points higher on average, Wilcoxon signed rank, p = 0.47): keep cross entropy. A "
    )
    gaps[10:] = [0.11, -0.012]  # the smallest but one; rank sum 2 of 78, 3 of 4096 flips, both ways
    table[:, 1] = 0.5 + gaps
    answer = answer_many_tables(table, NAMES, "cross entropy")
    assert answer.sentence == (
        "Over 12 tables EXACT beats cross entropy (better on 11 of 12, 5.4 points higher on "
        "average, Wilcoxon signed rank, p = 0.003)."
    )
    assert (answer.choice, answer.beats) == ("EXACT", ("EXACT",))


def test_many_tables_without_one():
    sentence = answer_many_tables(scores([0, 0.0002, 0]), NAMES, "cross entropy").sentence
    assert sentence.startswith("Over 12 tables no loss beats cross entropy beyond chance (nearest ")
    assert "keep cross entropy. A true gain of 0." in sentence


def test_a_pair_is_judged_by_its_own_scores_alone():
    """Ranks among all methods, and with them Conover's test, move with methods that are not asked
    about."""
    table = scores([0, 0.0005, 0])
    alone = answer_many_tables(table[:, :2], NAMES[:2], "cross entropy")
    crowd = np.concatenate([table[:, :2], scores([0.05, -0.05, -0.1])], 1)
    names = ["cross entropy", "EXACT", "a", "b", "c"]
    one = wilcoxon_against(table[:, :2], 0).p_values[1]
    assert wilcoxon_against(crowd, 0).p_values[1] == one
    assert conover(crowd).p_values[0, 1] != conover(table).p_values[0, 1]
    assert ("EXACT" in alone.beats) or "EXACT" not in answer_many_tables(
        crowd, names, "cross entropy"
    ).beats


def test_many_tables_where_the_reference_wins():
    table = scores([0.01, 0.0, -0.01])
    answer = answer_many_tables(table, NAMES, "cross entropy")
    assert answer.sentence == (
        "Over 12 tables cross entropy beats all 2 other losses (nearest EXACT, it is better on 0 "
        "of 12, 1.0 points lower on average, Wilcoxon signed rank, p < 0.001): keep cross entropy."
    )
    answer = answer_many_tables(table[:, [0, 2]], ["cross entropy", "focal"], "cross entropy")
    assert "beats focal (it is better on 0 of 12, 2.0 points lower" in answer.sentence


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: ask(), "rivals must hold at least one method"),
        (lambda: ask(rival("EXACT", float("nan"), 0.5)), "accuracy of EXACT must lie in"),
        (lambda: ask(rival("EXACT", 95.2, 0.5)), r"must lie in \[0, 1\]; got 95.2"),
        (lambda: ask(rival("cross entropy", 0.9, 0.5)), "2 different names"),
        (lambda: p_text(float("nan")), "p_value must lie in"),
        (lambda: answer_many_tables(scores([0, 0, 0]), NAMES, "hinge"), "reference must be one of"),
    ],
)
def test_refusals_are_sentences(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.parametrize(
    ("accuracies", "rows", "far"),
    [((0.76, 0.75), 10_000, True), ((0.76, 0.13), 10_000, False), ((0.45, 0.6), 90, False)],
)
def test_runs_of_too_few_seeds_may_yet_be_far_above_one_class(accuracies, rows, far):
    def row(accuracy):
        predictions = SimpleNamespace(rows=range(rows))
        return SimpleNamespace(metrics={"accuracy": accuracy}, predictions=predictions)

    assert _is_far([row(one) for one in accuracies], [row(0.1)]) is far
