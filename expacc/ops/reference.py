"""log p(target) in differentiable torch operations: every test's truth.

The target is compared with its rivals, never with a sum that contains itself. With
``top = max_{j≠y} z_j`` and ``total = Σ_{j≠y} e^{z_j - top}``,

    lead = (z_y - top) - log total = log p/(1-p),    u = log p = -log(1 + e^-lead).

This keeps every digit of 1 - p when p is within 1e-30 of 1, where ``z_y - logsumexp(z)`` returns 0
and the gradient dies. What is one number per row (lead, u, the loss) is computed in float64, since
it costs next to nothing; what is N×C stays in float32.

Used under torch.compile, torch.func transforms and forward-mode AD, and for double backward. The
same in one autograd node, for plain eager use, is next door in ``eager.py``.
"""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from expacc.ops.formula import Formula, apply_formula

CLASS_AXIS = 1


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of N×C arithmetic: float32, or float64 for float64 input."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def row_dtype(device: torch.device) -> torch.dtype:
    """The dtype of per-row arithmetic: float64 wherever the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def compose_target_log_prob(logits: Tensor, index: Tensor) -> Tensor:
    """log p(target) of ``logits`` (N, C, …) for ``index`` (N, 1, …), all labels in range."""
    logits = logits.to(compute_dtype(logits.dtype))
    classes = torch.arange(logits.shape[CLASS_AXIS], device=logits.device)
    classes = classes.view(-1, *[1] * (logits.ndim - 2))
    rivals = torch.where(classes == index, -torch.inf, logits)
    lowest = torch.finfo(logits.dtype).min  # so that -inf minus the top is -inf, not NaN
    top = rivals.detach().amax(CLASS_AXIS, keepdim=True).clamp(min=lowest)
    total = (rivals - top).exp().sum(CLASS_AXIS, keepdim=True)
    alone = total == 0  # no rival, or none that is not masked
    rows = row_dtype(logits.device)
    log_total = torch.where(alone, 1, total).to(rows).log()
    own = logits.gather(CLASS_AXIS, index).to(rows)
    own = own + torch.where(own == torch.inf, torch.nan, 0)  # a softmax of +inf is none
    # Alone is p = 1; but NaN times 0, and a masked target's -inf times 0, is NaN.
    lead = torch.where(alone, own * 0 + torch.inf, own - top - log_total)
    # softplus, not logsigmoid: the same number, and it has a batching rule for vmap; not logaddexp,
    # whose slope is NaN at -inf.
    return -softplus(-lead, threshold=700.0 if rows == torch.float64 else 80.0)


def compose_log_prob_loss(
    logits: Tensor, index: Tensor, kept: Tensor | None, formula: Formula
) -> Tensor:
    """``formula`` of log p(target), (N, 1, …); 0 with zero gradient where ``kept`` is False."""
    if kept is None:
        return apply_formula(compose_target_log_prob(logits, index), formula)
    values = apply_formula(compose_target_log_prob(torch.where(kept, logits, 0), index), formula)
    return torch.where(kept, values, 0)
