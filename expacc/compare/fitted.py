"""A model that was trained in rounds, on some rows: boosted trees, or refits of a classifier."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from expacc.boosting.boosted import BoostedClassifier
from expacc.boosting.reweighted import ReweightedClassifier
from expacc.compare.kept import Entry
from expacc.compare.models import BOOSTED, REFITS, ROUNDS, new_classifier
from expacc.compare.references import LEAST, NEVER
from expacc.compare.training_budget import Trial

Array = NDArray[np.float64]
Places = NDArray[np.int64]
PATIENCE = 30  # rounds of boosting without a better one that end a trial


@dataclass(frozen=True)
class Fitted:
    """A model after all its rounds.

    Args:
        model: of either kind; None for refits of which only ``past`` was kept.
        rounds: how many there were.
        classes: of the table.
        past: logits of held-out rows after each round, in place of the model.
    """

    model: BoostedClassifier | ReweightedClassifier | None
    rounds: int
    classes: int
    past: tuple[Array, ...] = ()

    def logits(self, features: Any, rounds: int) -> Array:
        """(n, C) after so many rounds, or all if there are fewer."""
        found = np.full((len(features), self.classes), NEVER)
        rounds = min(rounds, self.rounds)
        if self.model is None:
            return self.past[rounds - 1]
        if isinstance(self.model, BoostedClassifier):
            found[:, self.model.classes_] = self.model.logits(features, rounds)
        else:
            one = self.model.estimators_[rounds - 1]
            chance = one.predict_proba(np.asarray(features, np.float64))
            found[:, one.classes_] = np.log(np.maximum(chance, LEAST))
        return found

    def curves(self, held: Any) -> tuple[Array, Array]:
        """Accuracy and cross entropy on held-out rows after each round."""
        if isinstance(self.model, BoostedClassifier):
            return self.model.validation_accuracy_, self.model.validation_loss_
        features, labels = held
        rows = np.arange(len(labels))
        right, nats = [], []
        for place in range(self.rounds):
            logits = self.logits(features, place + 1)
            right.append(float((logits.argmax(1) == labels).mean()))
            nats.append(float(-log_softmax(logits, axis=1)[rows, labels].mean()))
        return np.array(right), np.array(nats)


def fit_rounds(
    model: str,
    loss: str,
    trial: Trial,
    rows: tuple[Array, Places],
    classes: int,
    seed: int,
    held: tuple[Array, Places] | None = None,
) -> Fitted:
    """Train all rounds; boosted trees with held-out rows to look at stop when they get no better.

    Args:
        model: 'lightgbm', 'xgboost' or the path of a classifier.
        loss: its name.
        trial: its numbers.
        rows: features and labels to train on.
        classes: of the table.
        seed: of everything random.
        held: features and labels to look at after each round.
    """
    if len(np.unique(rows[1])) < 2:
        raise ValueError("one class in training rows")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a library's own remarks, as on limits of steps
        if model in BOOSTED:
            boosted = BoostedClassifier(
                model,
                loss,
                loss_params=dict(trial.loss_params),
                n_estimators=ROUNDS,
                max_leaves=round(trial.found["max_leaves"]),
                validation_fraction=None,
                n_iter_no_change=PATIENCE,
                random_state=seed,
                n_jobs=1,
            ).fit(*rows, eval_set=held)
            return Fitted(boosted, boosted.rounds_, classes)
        refitted = ReweightedClassifier(
            new_classifier(model, seed), loss, loss_params=dict(trial.loss_params), max_iter=REFITS
        ).fit(*rows)
    return Fitted(refitted, refitted.n_iter_, classes)


def entry_of_fit(fit: Fitted, held: Any, seconds: float) -> Entry:
    """A fit of a trial: of trees their text, of refits what they say of the held-out rows."""
    facts: dict[str, Any] = {"rounds": fit.rounds, "seconds": seconds}
    if not isinstance(fit.model, BoostedClassifier):
        return Entry(facts, [fit.logits(held, number + 1) for number in range(fit.rounds)])
    from expacc.boosting.saving import trees_of

    text = np.frombuffer(trees_of(fit.model, fit.rounds), np.uint8)
    facts |= {"classes": fit.model.classes_.tolist(), "features": fit.model.n_features_in_}
    curves = fit.model.validation_accuracy_, fit.model.validation_loss_
    return Entry(facts, [text, *curves, fit.model.prior_])


def fit_of(entry: Entry, model: str, loss: str, classes: int) -> tuple[Fitted, float]:
    """The fit of an entry, and its seconds."""
    rounds, seconds = entry.facts["rounds"], entry.facts["seconds"]
    if model not in BOOSTED:
        return Fitted(None, rounds, classes, tuple(entry.arrays)), seconds
    from expacc.boosting.saving import read_trees

    text, accuracy, nats, prior = entry.arrays
    found = BoostedClassifier(model, loss)
    found.booster_ = read_trees(model, text.tobytes(), Path("trees"))
    found.validation_accuracy_, found.validation_loss_, found.prior_ = accuracy, nats, prior
    found.classes_, found.n_features_in_ = np.array(entry.facts["classes"]), entry.facts["features"]
    found.n_iter_ = found.rounds_ = rounds
    return Fitted(found, rounds, classes), seconds
