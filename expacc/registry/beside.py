"""What changes a loss and is none: no choice of ``compare``, but listed with them."""

from typing import NamedTuple

__all__ = ["BESIDE", "Beside", "find_beside"]


class Beside(NamedTuple):
    """Something that is used with any loss.

    Attributes:
        name: as a loss's would be.
        module: its public name.
        kind: what it is, in a few words.
        formula: what it does to a row or to its logits.
        numbers: with their ranges and where they start.
        source: the paper.
        when: to use it.
        use: the lines of a training loop.
    """

    name: str
    module: str
    kind: str
    formula: str
    numbers: str
    source: str
    when: str
    use: str

    def refusal(self) -> str:
        """Why it is none of the losses that one asks for by name, and what to do."""
        return (
            f"is {self.kind}. Use expacc.{self.module} in a training loop of your own: {self.use}."
        )


BESIDE = {
    one.name: one
    for one in (
        Beside(
            name="early_learning_regularization",
            module="EarlyLearningRegularization",
            kind="a Module with a memory of each row, not a loss of logits and labels alone",
            formula="any loss + strength·log(1 − Σ_j t_j·p_j), t ← momentum·t + (1 − momentum)·p",
            numbers="momentum in [0, 1): 0.7 (0.9 beyond 31 classes); strength ≥ 0: 3 (7)",
            source="Liu et al. 2020 (ELR)",
            when="many wrong labels, many epochs; the data loader must give the rows' indexes",
            use="elr = EarlyLearningRegularization(num_rows, num_classes, loss=…); "
            "elr(logits, target, index)",
        ),
        Beside(
            name="logit_clip",
            module="LogitClip",
            kind="a transform of logits, not a loss",
            formula="z·min(1, norm/‖z‖), before any loss",
            numbers="norm > 0: 1 (0.5 beyond 31 classes)",
            source="Wei et al. 2023",
            when="wrong labels: any loss becomes bounded; classify with the logits as they were",
            use="clip = LogitClip(norm); loss(clip(logits), target)",
        ),
    )
}
_OTHER_WORDS = {
    "elr": "early_learning_regularization",
    "earlylearning": "early_learning_regularization",
    "cliplogits": "logit_clip",
} | {name.replace("_", ""): name for name in BESIDE}


def find_beside(word: str) -> Beside | None:
    """What is meant by a word such as 'elr' or 'LogitClip', if it is one of these."""
    plain = word.split(":")[0].replace("-", "").replace("_", "").lower()
    return BESIDE.get(_OTHER_WORDS.get(plain, ""))
