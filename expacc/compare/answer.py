"""What a study says in sentences: the answer, which is also a choice, and the methods.

Pure functions: results in, words out. Accuracies are fractions; the words speak of points, which
are hundredths.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import ArrayLike

from expacc.compare.record import GIVEN, NETWORK, StudyRecord, read_protocol
from expacc.compare.standing import Standing
from expacc.compare.training_budget import PROTOCOL, pace_text
from expacc.plain import plain
from expacc.report.words import (
    NETWORKS,
    NULL,
    REFERENCE,
    SCIKIT_LEARN,
    STOPPED,
    counted,
    listed,
    loss_name,
    p_text,
    percent,
    points_text,
    share_text,
    trials_text,
)
from expacc.stats.many_tables import check_names, win_tie_loss
from expacc.stats.one_table import PairedTest
from expacc.stats.p_values import check_share, read_scores, visible_gain, visible_gain_over_tables
from expacc.stats.rank_tests import wilcoxon_against


@dataclass(frozen=True)
class Rival:
    """A method that was compared with the reference on one table.

    Attributes:
        name: as the sentence shall call it.
        accuracy: its mean accuracy, a fraction.
        test: of its differences to the reference.
        adjusted_p: the test's p-value, adjusted for the number of rivals.
    """

    name: str
    accuracy: float
    test: PairedTest
    adjusted_p: float


@dataclass(frozen=True)
class Answer:
    """What to do, and why.

    Attributes:
        sentence: for people.
        choice: the method to use; the reference unless another beats it beyond chance.
        beats: all methods that beat the reference beyond chance, best first.
        also: sentences to read after it: what is reached without any loss of ours.
        instead: what to use rather than any of the losses: a name of ``OUTSIDE``, or ''.
        one_class: whether no loss beats always saying the most frequent class.
    """

    sentence: str
    choice: str
    beats: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    instead: str = ""
    one_class: bool = False

    def beside(self, standing: Standing, where: str) -> "Answer":
        """The same with what the references reach, and led by what matters most.

        Args:
            standing: of the losses on one table.
            where: the table.
        """
        if not standing.headline:
            return replace(self, also=standing.sentences, instead=standing.instead)
        return replace(
            self,
            sentence=f"On {where} {standing.headline}.",
            also=(*standing.sentences, self.sentence),
            instead=standing.instead,
            one_class=True,
        )


def _check_accuracy(name: str, accuracy: float) -> None:
    if not 0 <= accuracy <= 1:  # NaN fails too
        raise ValueError(
            f"accuracy of {name} must lie in [0, 1]; got {accuracy}. "
            f"A failed run has no accuracy: leave the method out."
        )


def _could_see(gain: float) -> str:
    """What a study without a winner adds: silence about small gains is no evidence against them."""
    if gain > 1:
        return " It could not have seen any gain."
    if gain < 5e-5:
        return ""  # the methods never differ
    return f" A true gain of {points_text(gain)} would have been seen in four of five such studies."


def better(rival: Rival, significance: float) -> bool:
    """Say whether a rival beats the reference beyond chance.

    Its p-value is at most the level and its interval lies above 0; the second matters where a
    test rejects without a direction (see `combined_5x2_f`).
    """
    return rival.adjusted_p <= significance and rival.test.interval[0] > 0


def worse(rival: Rival, significance: float) -> bool:
    """Say whether the reference beats a rival beyond chance."""
    return rival.adjusted_p <= significance and rival.test.interval[1] < 0


def answer_one_table(
    table: str,
    reference: str,
    reference_accuracy: float,
    rivals: Sequence[Rival],
    *,
    protocol: str,
    significance: float = 0.05,
    families: int = 1,
    target: str = "",
    model: str = "",
) -> Answer:
    """Say in a sentence whether a rival should replace the reference on one table.

    Args:
        table: its name.
        reference: the name of the reference.
        reference_accuracy: its mean accuracy, a fraction.
        rivals: all others.
        protocol: how accuracies were measured, such as "5×2 cv".
        significance: the level for adjusted p-values.
        families: how many such sets of rivals the p-values are adjusted for, all together.
        target: the column that is predicted.
        model: what was trained, in words.
    """
    significance = check_share("significance", significance)
    if not rivals:
        raise ValueError("rivals must hold at least one method; got none.")
    check_names([reference, *(rival.name for rival in rivals)], len(rivals) + 1)
    _check_accuracy(reference, reference_accuracy)
    for rival in rivals:
        _check_accuracy(rival.name, rival.accuracy)
    ordered = sorted(rivals, key=lambda rival: -rival.accuracy)
    trained = f" with {model}" if model else ""
    where = f"On {table}, predicting {target!r}{trained}," if target else f"On {table}"

    def gain(rival: Rival) -> float:
        return round(rival.accuracy - reference_accuracy, 10)

    def p(rival: Rival) -> str:
        return p_text(rival.adjusted_p, significance)

    winners = [rival for rival in ordered if better(rival, significance) and gain(rival) > 0]
    if winners:
        best, *others = winners
        also = [
            f"{rival.name} (+{points_text(gain(rival)).removesuffix(' points')})"
            for rival in others
        ]
        return Answer(
            f"{where} {best.name} beats {reference} by {points_text(gain(best))} "
            f"({percent(best.accuracy)} vs {percent(reference_accuracy)}, {protocol}, {p(best)})"
            + (f"; so {'do' if len(also) > 1 else 'does'} {listed(also)}." if also else "."),
            best.name,
            tuple(rival.name for rival in winners),
        )
    best = ordered[0]
    keep = f"keep {reference}."
    data = f"at predicting {target!r}{trained}" if target else "on this data"
    visible = visible_gain(best.test.interval, families * len(rivals), significance=significance)
    if gain(best) > 0:
        unsure = best.adjusted_p <= significance
        doubt = ", but its splits disagree about the sign" if unsure else ""
        sentence = (
            f"No loss beats {reference} {data} beyond chance "
            f"(largest gain {points_text(gain(best))}, {p(best)}{doubt}): {keep}"
            f"{_could_see(visible)}"
        )
    elif all(worse(rival, significance) for rival in rivals):
        whom = best.name if len(rivals) == 1 else f"all {len(rivals)} other losses"
        nearest = "" if len(rivals) == 1 else f"nearest {best.name}, "
        sentence = (
            f"{where} {reference} beats {whom} ({nearest}{points_text(gain(best))} behind, "
            f"{percent(reference_accuracy)} vs {percent(best.accuracy)}, {protocol}, {p(best)}): "
            f"{keep}"
        )
    elif gain(best) == 0:
        sentence = (
            f"No loss beats {reference} {data} "
            f"({best.name} is level with it at {percent(best.accuracy)}, {p(best)}): {keep}"
            f"{_could_see(visible)}"
        )
    else:
        sentence = (
            f"No loss beats {reference} {data}, it is the best itself "
            f"(nearest {best.name}, {points_text(gain(best))} behind, {p(best)}): {keep}"
            f"{_could_see(visible)}"
        )
    return Answer(sentence, reference)


def answer_many_tables(
    scores: ArrayLike,
    names: Sequence[str],
    reference: str,
    *,
    significance: float = 0.05,
    model: str = "",
) -> Answer:
    """Say in a sentence whether a rival should replace the reference over several tables.

    A rival beats the reference if Wilcoxon's signed rank test says so, adjusted by Holm for the
    number of rivals (`wilcoxon_against`).

    Args:
        scores: tables × methods, larger is better.
        names: of the methods, in the order of the columns.
        reference: one of them.
        significance: the level for adjusted p-values.
        model: what was trained, in words.
    """
    table = read_scores(scores)
    names = check_names(names, table.shape[1])
    significance = check_share("significance", significance)
    if reference not in names:
        raise ValueError(f"reference must be one of {list(names)}; got {reference!r}.")
    column = names.index(reference)
    against = wilcoxon_against(table, column)
    counts = win_tie_loss(table, column)
    gaps = table - table[:, [column]]
    # Those that lean against the reference most surely come first, then the nearest behind it.
    rivals = sorted(
        (place for place in range(len(names)) if place != column),
        key=lambda place: -against.leaning[place] * (1 - against.p_values[place]),
    )

    def evidence(place: int, won: int) -> str:
        mean = float(gaps[:, place].mean())
        return (
            f"better on {won} of {len(table)}, {points_text(mean)} "
            f"{'higher' if mean >= 0 else 'lower'} on average, {against.test}, "
            f"{p_text(float(against.adjusted[place]), significance)}"
        )

    certain = [place for place in rivals if against.adjusted[place] <= significance]
    winners = [place for place in certain if against.leaning[place] > 0]
    over = f"Over {len(table)} tables{f' with {model}' if model else ''}"
    keep = f"keep {reference}."
    best = rivals[0]
    if winners:
        found = [names[place] for place in winners]
        others = found[1:]
        also = f"; so {'do' if len(others) > 1 else 'does'} {listed(others)}" if others else ""
        told = evidence(best, counts[best].wins)
        return Answer(
            f"{over} {found[0]} beats {reference} ({told}){also}.", found[0], tuple(found)
        )
    if len(certain) == len(rivals):
        whom = names[best] if len(rivals) == 1 else f"all {len(rivals)} other losses"
        nearest = "" if len(rivals) == 1 else f"nearest {names[best]}, "
        told = evidence(best, counts[best].wins)
        return Answer(f"{over} {reference} beats {whom} ({nearest}it is {told}): {keep}", reference)
    visible = visible_gain_over_tables(gaps[:, best], len(rivals), significance=significance)
    told = evidence(best, counts[best].wins)
    return Answer(
        f"{over} no loss beats {reference} beyond chance (nearest {names[best]}, {told}): {keep}"
        f"{_could_see(visible)}",
        reference,
    )


def setting_text(value: Any) -> str:
    """Write a setting on one line.

    >>> setting_text([0.0, 0.05]), setting_text(None), setting_text("5x2")
    ('0, 0.05', 'none', '5x2')
    """
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(setting_text(part) for part in value) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {setting_text(part)}" for name, part in value.items()) or "none"
    return str(value)


def methods_text(record: StudyRecord) -> str:
    """The methods paragraph: data, models, search, protocol, statistics, software."""
    settings = record.settings
    named = {table.folds for table in record.tables.values()}
    protocol = read_protocol(record.folds, named.pop() if len(named) == 1 else ())
    not_rivals = (REFERENCE, STOPPED, NULL)
    rivals = [loss_name(str(loss)) for loss in settings.get("losses", ()) if loss not in not_rivals]
    tables = list(record.tables.values())
    sizes = sorted(table.rows for table in tables)
    if len(tables) == 1:
        one = tables[0]
        data = (
            f"the table {plain(one.name)} ({counted(one.rows, 'row')}, "
            f"{counted(one.features, 'feature')}, {len(one.classes)} classes)"
        )
    else:
        data = f"{len(tables)} tables of {sizes[0]} to {sizes[-1]} rows"
    compared = listed([loss_name(REFERENCE), *rivals]) if rivals else loss_name(REFERENCE)
    sentences = [f"We compared classifiers trained with {compared} on {data}."]
    model = str(settings.get("model", "linear"))
    network = {name: settings[name] for name in ("hidden", "dropout") if settings.get(name)}
    trained = "your network" if model == NETWORK else model
    called = plain(listed([trained, *(f"{k} {setting_text(v)}" for k, v in network.items())]))
    trials = settings.get("trials")
    searched = (
        f"; for every loss and every training set, its hyper-parameters were chosen in "
        f"{trials_text(trials)} by accuracy on validation rows taken from the training rows"
        if trials
        else ""
    )
    sentences.append(f"The model was the same for all losses ({called}){searched}.")
    if model == NETWORK:
        from expacc.compare.networks_words import network_methods

        sentences.append(network_methods(settings))
    elif settings.get("protocol") == PROTOCOL:  # an older study trained otherwise
        sentences.append(pace_text(model))
    seeds = settings.get("seeds", 1)
    averaged = f", averaged over {seeds} random seeds" if seeds != 1 else ""
    shown = {
        "5x2": "by five replications of stratified two-fold cross-validation (5×2 cv)",
        "folds": f"by cross-validation ({protocol.text})"
        if protocol.text.endswith("given folds")
        else f"by stratified cross-validation ({protocol.text})",
        "holdout": "by a single stratified holdout",
        "test": "on the test rows that were given",
    }[protocol.kind]
    sentences.append(
        f"Test accuracy was measured {shown}{averaged}; test rows were used once, for the "
        f"retrained model, and took no part in any choice."
    )
    noise = [share for share in record.noise_levels if share > 0]
    if noise:
        how = "replaced by another class at random"
        if settings.get("noise") == GIVEN:
            how = "wrong, as they were given"
        once = len(record.noise_levels) == 1
        sentences.append(
            f"The comparison was {'made' if once else 'repeated'} with "
            f"{listed([share_text(share) for share in noise])} of the training labels {how}; test "
            f"labels stayed as given."
        )
    if len(tables) == 1:
        many = len(record.noise_levels)
        levels = f" and the {many} shares of wrong labels" if many > 1 else ""
        sentences.append(
            f"Each loss was compared with cross entropy by {protocol.test}; p-values were adjusted "
            f"for the number of losses by Holm’s method{levels}, and 95 % intervals are for single "
            f"comparisons."
        )
    else:
        sentences.append(
            "Over the tables, each loss was compared with cross entropy by Wilcoxon’s signed rank "
            "test, adjusted for the number of losses by Holm’s method. Within a table, each loss "
            f"was compared with cross entropy by {protocol.test}; these p-values were adjusted for "
            "the number of losses, tables and shares of wrong labels."
        )
    beside = [name for name in SCIKIT_LEARN if any(row.loss == name for row in record.rows)]
    if beside:
        sentences.append(
            f"On the same folds and the same features (numbers standardised, missing ones filled "
            f"with the mean, categories one-hot), scikit-learn’s "
            f"{listed([SCIKIT_LEARN[name] for name in beside])} "
            f"{'were' if len(beside) > 1 else 'was'} run once a fold with default settings, "
            f"untuned; they are not among the losses that p-values are adjusted for."
        )
    if any(row.loss == NETWORKS for row in record.rows):
        sentences.append("So were small networks that vote (expacc’s AccuracyClassifier).")
    used = [f"{name} {version}" for name, version in record.versions.items()]
    if used:
        sentences.append(f"Software: {plain(listed(used))}.")
    if "seed" in settings:
        sentences.append(f"The study’s seed was {plain(setting_text(settings['seed']))}.")
    return " ".join(sentences)
