"""Complement objective training: a second step an iteration, against whichever rival stands out."""

from torch import Tensor
from torch.optim import Optimizer

from expacc.functional import complement_entropy


class ComplementObjective:
    """The second step of complement objective training; for ``fit(complement=…)``.

    After every step on the loss it takes another forward and backward pass on the same batch, and a
    step that raises the entropy of the rivals' probabilities. An iteration costs twice as much.

    Args:
        optimizer: of the second step, made for the same parameters as the first: it has a momentum
            of its own, and takes over the first one's learning rates.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 3)
        >>> second = ComplementObjective(torch.optim.SGD(model.parameters(), lr=0.1))
        >>> second.loss(torch.zeros(1, 3), torch.tensor([0]))  # -log(2) / 3
        tensor(-0.2310)

    Reference:
        Chen et al. 2019, "Complement Objective Training"; the entropy is divided by the number of
        classes, as in the authors' code.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(
                f"optimizer must be an optimizer, made already; got {type(optimizer).__name__}. "
                f"Use torch.optim.SGD(model.parameters(), lr=0.1)."
            )
        self.optimizer = optimizer

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        """The negated entropy of the rivals, mean over rows, divided by the number of classes."""
        return complement_entropy(logits, target) / logits.shape[1]

    def follow(self, first: Optimizer) -> None:
        """Take over the learning rates of the first step's optimiser, group by group."""
        groups = zip(self.optimizer.param_groups, first.param_groups, strict=True)
        for own, other in groups:
            own["lr"] = other["lr"]
