"""A clean search for a method's numbers: a fifth of the training rows judges, test rows never.

Every loss has as many trials, with the same learning rates and penalties; numbers of its own come
from the same low-discrepancy sequence. Ranges are those of the paper's Table 8. Trials are trained
to the end: with a quarter of the steps cross entropy and hinge choose as well, EXACT does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from expacc.data import TrainRows, derive_seed, holdout, require_train_rows
from expacc.recipes.exact.methods import Regression, train_method
from expacc.recipes.exact.paper import Settings
from expacc.recipes.exact.protocol import Ready

__all__ = ["RATES", "TrialScore", "best_of", "search", "settings_of"]

HELD = 0.2  # of the training rows
RATE, CLIP, MARGIN = (0.01, 5.0), (0.01, 10.0), (0.01, 10.0)
PENALTY, NO_PENALTY = (1e-5, 0.1), 1 / 3  # a third of the trials have none
NO_MARGIN = 0.1  # of the trials of EXACT
RATES = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0)  # those of the authors' script
REGULARIZATIONS = (0.0, 0.0001, 0.001, 0.01, 0.1, 1.0, 10.0)  # its, and Table 8's largest


@dataclass(frozen=True)
class TrialScore:
    """A trial: its settings, and its accuracy on the rows held out and on those trained on."""

    settings: Settings
    validation: float = 0.0
    train: float = 0.0
    failure: str | None = None


def settings_of(method: str, count: int, seed: int, name: str) -> list[Settings]:
    """The trials of a method; ``seed`` and ``name`` (of the table) decide the draws."""
    if method == "logistic_regression":  # one number: its whole range
        return [Settings(regularization=penalty) for penalty in REGULARIZATIONS[:count]]
    from scipy.stats import qmc

    points = qmc.Halton(d=4, rng=derive_seed(seed, name, "search")).random(count)
    loss = method.partition(":")[0]
    found = []
    for rate, penalty, clip, margin in points.tolist():
        own = None
        if loss in ("hinge", "exact") and not (loss == "exact" and margin < NO_MARGIN):
            own = _between(margin if loss == "hinge" else _beyond(margin, NO_MARGIN), *MARGIN)
        found.append(
            Settings(
                _between(rate, *RATE),
                None if loss == "exact" else _between(clip, *CLIP),
                own,
                0.0 if penalty < NO_PENALTY else _between(_beyond(penalty, NO_PENALTY), *PENALTY),
            )
        )
    return found


def _between(share: float, low: float, high: float) -> float:
    """By equal ratios, to three digits."""
    return float(f"{low * (high / low) ** share:.3g}")


def _beyond(share: float, cut: float) -> float:
    return (share - cut) / (1 - cut)


def search(
    train: TrainRows,
    method: str,
    trials: Sequence[Settings],
    *,
    seed: int,
    name: str,
    device: str = "cpu",
) -> list[TrialScore]:
    """Train every trial on four fifths of the training rows, and judge it on the fifth.

    Args:
        train: training rows; nothing else is taken.
        method: what to train.
        trials: its settings.
        seed: of the cut, of weights and order.
        name: of the table.
        device: where to train.

    Raises:
        TypeError: test rows, or anything but training rows.
    """
    train = require_train_rows(train)
    cut = holdout(train.labels, HELD, seed=seed, name=f"{name}/validation").splits[0]
    ready = Ready.of(train, cut.test)
    if method == "logistic_regression":
        return [_fitted(ready, settings) for settings in trials]
    keyed = {f"trial {place}": (ready, settings) for place, settings in enumerate(trials)}
    results = train_method(method, keyed, seed, device=device)
    scores = []
    for settings, result in zip(trials, results, strict=True):
        if result.model is None or ready.held is None:
            reason = f"diverged at step {result.failed_step}"
            scores.append(TrialScore(settings, failure=reason))
            continue
        right, own = (ready.accuracy(result.model, places) for places in (ready.held, ready.own))
        scores.append(TrialScore(settings, right, own))
    return scores


def _fitted(ready: Ready, settings: Settings) -> TrialScore:
    model = Regression(ready, settings.regularization)
    held = ready.own if ready.held is None else ready.held
    return TrialScore(settings, model.accuracy(held), model.accuracy(ready.own))


def best_of(scores: Sequence[TrialScore]) -> Settings | None:
    """The best on the rows held out, of equals the best on those trained on, of those the first.

    None if every trial diverged.
    """
    good = [score for score in scores if score.failure is None]
    if not good:
        return None
    return max(good, key=lambda score: (score.validation, score.train)).settings
