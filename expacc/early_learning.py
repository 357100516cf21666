"""Early-learning regularisation (ELR): hold on to what the network said before it memorised."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from expacc.contract import read_labels, values_readable
from expacc.errors import check_count, check_number, logits_error
from expacc.ops import all_log_probs, row_dtype
from expacc.registry.spec import MANY_CLASSES

__all__ = ["EarlyLearningRegularization"]

# The papers' momentum and strength for 10 and for 100 classes; the nearer by ratio is taken.
_FEW, _MANY = (0.7, 3.0), (0.9, 7.0)
# Predictions enter the memory within these bounds, as in the authors' code: a memory that is sure
# for ever would pull for ever.
_LEAST = 1e-4


class EarlyLearningRegularization(nn.Module):
    r"""Add to a loss the early-learning regulariser, which remembers each row's predictions.

    Networks fit right labels first and memorise wrong ones later. This keeps a running mean of the
    predictions for every training row, and pulls towards it; by the time that wrong labels could be
    memorised, it outweighs them. It needs to know which row is which: the data loader must give
    their indexes. One of the strongest answers to wrong labels that trains one network once.

    The memory changes whenever the Module is called in training mode, once per row and epoch, and
    is part of ``state_dict``. Under DistributedDataParallel keep it outside of the wrapped model
    (whose buffers are overwritten by those of the first rank), one per rank, with a sampler that
    gives a rank the same rows in every epoch: a rank remembers the rows that it has seen.

    Definition:
        L = loss(logits, target) + strength · mean over rows i of log(1 - ⟨t_i, p_i⟩), p = softmax,
        and t_i ← momentum · t_i + (1 - momentum) · p_i first, p_i there without gradient, kept in
        [1e-4, 1 - 1e-4] and divided by its sum; t_i starts at 0.

    Gradient:
        That of the loss, and strength · p_ij (⟨t_i, p_i⟩ - t_ij) / (1 - ⟨t_i, p_i⟩) per row.

    Args:
        num_rows: of the training data, which have the indexes 0 to num_rows - 1.
        num_classes: number of classes.
        momentum: β in [0, 1) in the paper; None is 0.7 up to 31 classes and 0.9 beyond, the paper's
            numbers for 10 and 100.
        strength: λ >= 0 in the paper; None is 3 up to 31 classes and 7 beyond.
        loss: of (logits, target), its mean over rows; None is cross entropy.
        ignore_index: a label whose rows are neither counted nor remembered.

    Returns:
        The Module; called with logits (N, C), target and the rows' indexes (N,) it gives a scalar.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU) an index that no row has.

    Example:
        Two equal classes: the memory becomes 0.3 · 1/2 each, so that ⟨t, p⟩ is 0.15, and
        log 2 + 3 log 0.85 = 0.2056:

        >>> loss = EarlyLearningRegularization(num_rows=4, num_classes=2)
        >>> loss(torch.zeros(1, 2), torch.tensor([0]), torch.tensor([3]))
        tensor(0.2056)

    Reference:
        Liu et al. 2020, "Early-Learning Regularization Prevents Memorization of Noisy Labels".
        The authors' code also clamps p inside the logarithm, where it stops the gradient;
        here 1 - ⟨t, p⟩ is Σ_j p_j (1 - t_j), which needs no clamp.
    """

    targets: Tensor

    def __init__(
        self,
        num_rows: int,
        num_classes: int,
        momentum: float | None = None,
        strength: float | None = None,
        loss: nn.Module | None = None,
        *,
        ignore_index: int = -100,
    ) -> None:
        super().__init__()
        check_count("num_rows", num_rows)
        check_count("num_classes", num_classes)
        if num_classes < 2:
            raise ValueError(f"num_classes must be >= 2; got {num_classes}.")
        usual = _MANY if num_classes > MANY_CLASSES else _FEW
        self.momentum = check_number(
            "momentum", usual[0] if momentum is None else momentum, low=0, high=1, open_high=True
        )
        self.strength = check_number("strength", usual[1] if strength is None else strength, low=0)
        if loss is not None and not isinstance(loss, nn.Module):
            raise TypeError(f"loss must be a Module; got {type(loss).__name__}.")
        if type(ignore_index) is not int:
            raise TypeError(f"ignore_index must be an int; got {ignore_index!r}.")
        self.loss = loss
        self.ignore_index = ignore_index
        self.register_buffer("targets", torch.zeros(num_rows, num_classes))

    def forward(self, logits: Tensor, target: Tensor, index: Tensor) -> Tensor:
        """Compute the regularised loss of rows ``index``; in training mode, remember them."""
        index, known = self._check(logits, target, index)
        labels, some, bad = read_labels(target, self.ignore_index, logits.shape[1], single=False)
        kept = torch.ones_like(known) if some is None else some
        known = known if bad is None else known & ~bad
        if self.loss is None:
            labels = torch.where(kept, labels, -1)
            value = F.cross_entropy(logits, labels, ignore_index=-1, reduction="sum")
            value = value / kept.sum().clamp(min=1)
        else:
            value = self.loss(logits, target)
        clean = torch.where(kept.unsqueeze(1), logits, 0).to(row_dtype(logits.device))
        log_probs = all_log_probs(clean)
        remembered = self.targets[index]
        if self.training:
            probs = log_probs.detach().exp().clamp(_LEAST, 1 - _LEAST)
            probs = (probs / probs.sum(1, keepdim=True)).to(remembered.dtype)
            mixed = remembered.lerp(probs, 1 - self.momentum)
            # Neither an ignored row nor one that does not exist is remembered; nor a NaN, which
            # would stay, though the step of an overflow may have been left out.
            sound = (kept & known).unsqueeze(1) & mixed.isfinite()
            remembered = torch.where(sound, mixed, remembered)
            self.targets[index] = remembered
        rest = (1 - remembered.to(log_probs.dtype)).log()
        regularizer = torch.logsumexp(log_probs + rest, 1)
        # A NaN for an index that does not exist, where its number may not be looked at.
        regularizer = torch.where(known, regularizer, torch.nan)
        regularizer = torch.where(kept, regularizer, 0).sum() / kept.sum().clamp(min=1)
        found: Tensor = value + self.strength * regularizer.to(value.dtype)
        return found

    def _check(self, logits: Tensor, target: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """The indexes in range, and which were."""
        rows, classes = self.targets.shape
        if not isinstance(logits, Tensor) or not logits.is_floating_point():
            raise logits_error(logits)
        if logits.ndim != 2 or logits.shape[1] != classes:
            raise ValueError(
                f"logits must have shape (N, {classes}); got {tuple(logits.shape)}. "
                "Rows are remembered one by one."
            )
        for name, tensor in (("target", target), ("index", index)):
            if not isinstance(tensor, Tensor) or tensor.is_floating_point():
                got = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
                raise TypeError(f"{name} must be a tensor of integers; got {got}.")
            if tensor.shape != logits.shape[:1]:
                raise ValueError(
                    f"{name} must have shape ({len(logits)},), as the logits have rows; "
                    f"got {tuple(tensor.shape)}."
                )
        index = index.to(self.targets.device, torch.int64)
        known = (index >= 0) & (index < rows)
        if values_readable(index) and not bool(known.all()):
            place = int((~known).nonzero()[0])
            raise ValueError(
                f"index must lie in [0, {rows}), the training rows; got {int(index[place])} at row "
                f"{place}."
            )
        return torch.where(known, index, 0), known

    def extra_repr(self) -> str:
        """Show the numbers."""
        rows, classes = self.targets.shape
        return (
            f"num_rows={rows}, num_classes={classes}, momentum={self.momentum}, "
            f"strength={self.strength}"
        )
