"""How the study was done, in words that can go into a paper."""

from collections.abc import Mapping
from typing import Any

from expacc.compare.record import StudyRecord, read_protocol
from expacc.compare.training_budget import PROTOCOL, pace_text
from expacc.plain import plain
from expacc.report.loss_names import OUTSIDE, REFERENCE, loss_name
from expacc.report.words import share_text, trials_text

__all__ = ["methods_text", "setting_text"]


def _listed(words: list[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


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
    rivals = [loss_name(str(loss)) for loss in settings.get("losses", ()) if loss != REFERENCE]
    tables = list(record.tables.values())
    sizes = sorted(table.rows for table in tables)
    if len(tables) == 1:
        one = tables[0]
        data = (
            f"the table {plain(one.name)} ({_counted(one.rows, 'row')}, "
            f"{_counted(one.features, 'feature')}, {len(one.classes)} classes)"
        )
    else:
        data = f"{len(tables)} tables of {sizes[0]} to {sizes[-1]} rows"
    compared = _listed([loss_name(REFERENCE), *rivals]) if rivals else loss_name(REFERENCE)
    sentences = [f"We compared classifiers trained with {compared} on {data}."]
    model = plain(setting_text(settings.get("model", "linear")))
    trials = settings.get("trials")
    searched = (
        f"; for every loss and every training set, its hyper-parameters were chosen in "
        f"{trials_text(trials)} by accuracy on validation rows taken from the training rows"
        if trials
        else ""
    )
    sentences.append(f"The model was the same for all losses ({model}){searched}.")
    if settings.get("protocol") == PROTOCOL:  # an older study trained otherwise
        sentences.append(pace_text())
    seeds = settings.get("seeds", 1)
    averaged = f", averaged over {seeds} random seeds" if seeds != 1 else ""
    shown = {
        "5x2": "five replications of stratified two-fold cross-validation (5×2 cv)",
        "folds": f"cross-validation ({protocol.text})"
        if protocol.text.endswith("given folds")
        else f"stratified cross-validation ({protocol.text})",
        "holdout": "a single stratified holdout",
    }[protocol.kind]
    sentences.append(
        f"Test accuracy was measured by {shown}{averaged}; test rows were used once, for the "
        f"retrained model, and took no part in any choice."
    )
    noise = [share for share in record.noise_levels if share > 0]
    if noise:
        sentences.append(
            f"The comparison was repeated with {_listed([share_text(share) for share in noise])} "
            f"of the training labels replaced by another class at random; test labels stayed as "
            f"given."
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
    if any(row.loss == OUTSIDE for row in record.rows):
        sentences.append("Scikit-learn’s LogisticRegression was run beside them and not tested.")
    used = [f"{name} {version}" for name, version in record.versions.items()]
    if used:
        sentences.append(f"Software: {plain(_listed(used))}.")
    if "seed" in settings:
        sentences.append(f"The study’s seed was {plain(setting_text(settings['seed']))}.")
    return " ".join(sentences)
