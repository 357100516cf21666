"""What is asked of a study."""

from dataclasses import dataclass
from typing import Any

from expacc.compare.record import check_folds
from expacc.compare.training_budget import MODELS, REFERENCES
from expacc.plain import check_choice, check_count
from expacc.registry import list_losses, spec_of
from expacc.report.words import DEFAULT_LOSSES, REFERENCE

NEVER_ALONE = "complement_entropy"  # it knows nothing of the true class's own score


def trains_on(model: str, loss: str) -> bool:
    """Can this model be trained on this loss alone?"""
    return loss != NEVER_ALONE and (model in MODELS or spec_of(loss).reweights)


@dataclass(frozen=True)
class Settings:
    """What a study does; two studies with equal settings and tables have equal rows.

    Args:
        losses: names of ``expacc.training.LOSS_NAMES``; cross entropy is always among them.
        model: 'linear', 'mlp', 'lightgbm', 'xgboost' or the path of a classifier, module.Class,
            which takes losses as row weights (see ``expacc.compare.models``).
        trials: of the search, per loss and fold; None for as many, 8 to 20, as a table of that
            size can have in about a minute.
        folds: '5x2', a number of folds, 'RxK' for repeats, or 'holdout'.
        seeds: final runs per fold, averaged.
        label_noise: shares of training labels to replace.
        seed: of everything random.
        references: what is run beside the losses, which changes nothing of theirs: 'all' (the
            most frequent class, logistic regression, a random forest and boosted trees, as far as
            they take at most a quarter of the time), 'fast' (the first two), 'none', or
            'networks' ('all', and on the first repetition networks that vote, whatever they take).
    """

    losses: tuple[str, ...] = DEFAULT_LOSSES
    model: str = "linear"
    trials: int | None = None
    folds: str = "5x3"
    seeds: int = 2
    label_noise: tuple[float, ...] = (0.0,)
    seed: int = 0
    references: str = "all"
    hidden: tuple[int, ...] | None = None
    dropout: float = 0.0

    def __post_init__(self) -> None:
        self._check_model()
        allowed = tuple(name for name in list_losses() if name != NEVER_ALONE)
        for loss in self.losses:
            check_choice("losses", spec_of(loss).base, allowed)
        if REFERENCE not in self.losses:
            object.__setattr__(self, "losses", (REFERENCE, *self.losses))
        object.__setattr__(self, "losses", tuple(dict.fromkeys(self.losses)))
        check_choice("references", self.references, tuple(REFERENCES))
        if self.trials is not None:
            check_count("trials", self.trials)
        check_count("seeds", self.seeds)
        for share in self.label_noise:
            if not 0 <= share < 1:
                raise ValueError(f"label_noise must lie in [0, 1); got {share}.")
        if self.seed < 0:
            raise ValueError(f"seed must be >= 0; got {self.seed}.")
        check_folds(self.folds)

    def _check_model(self) -> None:
        if self.model not in MODELS:
            from expacc.compare.models import BOOSTED, LOSSES, check_losses, check_model

            check_model(self.model)
            if self.losses is DEFAULT_LOSSES:
                object.__setattr__(self, "losses", LOSSES)
            check_losses(self.model, self.losses)
            if self.model in BOOSTED:  # whose runs do not differ
                object.__setattr__(self, "seeds", 1)
        if self.model != "mlp":
            for name in ("hidden", "dropout"):
                if getattr(self, name):
                    raise ValueError(f"{name} must come with model mlp; got model {self.model}.")
            return
        object.__setattr__(self, "hidden", tuple(self.hidden or MODELS["mlp"]))
        for width in self.hidden or ():
            check_count("hidden", width)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1); got {self.dropout}.")

    @property
    def network(self) -> dict[str, Any]:
        """What is asked for of 'mlp'; nothing of other models."""
        if self.model != "mlp":
            return {}
        return {"hidden": list(self.hidden or ()), "dropout": self.dropout}
