"""What is said of a study of one's own network beside its answer, and what to do now."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from expacc.compare.record import Protocol, StudyRecord, TableFacts
from expacc.compare.standing import STOPPED_ACCURACY, against, by_fold
from expacc.plain import plain
from expacc.registry import list_losses
from expacc.report.words import (
    NULL,
    REFERENCE,
    STOPPED,
    listed,
    loss_name,
    p_text,
    percent,
    points,
    points_text,
    share_text,
)
from expacc.runner.rows import Row


def network_sentences(
    runs: Mapping[str, Sequence[Row]],
    losses: Sequence[str],
    facts: TableFacts,
    protocol: Protocol,
) -> list[str]:
    """What to know of the losses on a network: the reading at the best epoch, what was learnt by
    heart, what chance alone does.
    """
    beside = (REFERENCE, STOPPED, NULL)
    shown = [REFERENCE, *(loss for loss in losses if loss not in beside)][:4]
    found = []
    stopped = {one: by_fold(runs.get(one, ()), STOPPED_ACCURACY) for one in shown}
    means = [
        f"{loss_name(one)} {percent(float(np.mean(list(own.values()))))}"
        for one, own in stopped.items()
        if own
    ]
    if means:
        found.append(f"Stopped where the validation rows are best: {listed(means)}.")
    best = next((one for one in losses if one not in beside), None)
    if best is not None and runs.get(STOPPED):
        test, _ = against(runs[best], runs[STOPPED], facts, protocol)
        if test is not None:
            low, high = test.interval
            told = f"{points_text(test.difference)} (interval {points(low)} to {points(high)})"
            how = "above" if low > 0 else "below" if high < 0 else "not told apart from"
            apart = how.startswith("not")
            found.append(
                f"{loss_name(best)[0].upper()}{loss_name(best)[1:]} at its last epoch is "
                + (f"{how} cross entropy stopped early." if apart else
                   f"{told} {how} cross entropy stopped early.")
            )  # fmt: skip
    learnt = {one: by_fold(runs.get(one, ()), "wrong_label_accuracy") for one in shown}
    shares = [
        f"{loss_name(one)} {100 * float(np.mean(list(own.values()))):.0f} %"
        for one, own in learnt.items()
        if own
    ]
    if shares:
        found.append(f"Of the wrong training labels these were learnt by heart: {listed(shares)}.")
    if runs.get(NULL) and runs.get(REFERENCE):
        test, _ = against(runs[NULL], runs[REFERENCE], facts, protocol)
        if test is not None:
            surprise = test.p_value <= 0.05
            found.append(
                f"Cross entropy from other seeds differs by {points(test.difference)} points"
                + (
                    f" ({p_text(test.p_value)}), which chance alone does once in twenty studies: "
                    "run more seeds before you believe the others."
                    if surprise
                    else ", as chance would have it."
                )
            )
    return found


def network_steps(record: StudyRecord, choice: str) -> list[tuple[str, str]]:
    """How to train one's own network with what the study recommends: in words, and in Python."""
    if choice == loss_name(STOPPED):
        what = "Train with cross entropy, and keep the weights of the best validation epoch:"
        return [(what, 'expacc.training.fit(…, weights="best")')]
    names = [str(loss) for loss in record.settings["losses"] if loss_name(loss) == choice]
    name = next((one for one in names if one.split(":")[0] in list_losses()), REFERENCE)
    if name == REFERENCE:
        return []
    classes = len(next(iter(record.tables.values())).classes)
    what = f"Train your network with {choice}, as the study did:"
    made = "from expacc.compare.networks import make_loss; "
    return [(what, f"{made}loss, normalised = make_loss({name!r}, {classes})")]


def network_methods(settings: Mapping[str, Any]) -> str:
    """How a network of one's own was trained: the same for every loss, seed by seed."""
    names = ("network", "augment", "precision", "epochs", "batch_size")
    told = {name: plain(str(settings.get(name, ""))) for name in names}
    changed = "" if told["augment"] == "none" else f", pictures changed by {told['augment']}"
    share = float(settings.get("validation", 0.0))
    return (
        f"It was {told['network']}, trained for {told['epochs']} epochs of batches of "
        f"{told['batch_size']} in {told['precision']}{changed}. Of the training rows "
        f"{share_text(share)}, wrong labels among them, were held out. Every seed gave each loss "
        f"the same initial weights, order, changes, wrong labels and held-out rows. Scores are "
        f"those of the last epoch; cross entropy stopped early is the same runs at the epoch that "
        f"the held-out rows liked best, and the null row is cross entropy from other seeds."
    )
