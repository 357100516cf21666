"""The fused primitives: choose an implementation, call it.

Everything here takes logits with the classes on axis 1, (N, C, …), and labels that are in range;
``expacc.contract`` brings a user's input into that form.
"""

import torch
from torch import Tensor

from expacc.ops.binary import (
    BinaryCurve,
    BinaryPlan,
    compose_binary_loss,
    eager_binary_loss,
    exact_curve,
    mixture_curve,
)
from expacc.ops.class_sums import row_loss
from expacc.ops.dispatch import (
    CLASS_AXIS,
    IMPLEMENTATIONS,
    PLAIN,
    Implementation,
    Spec,
    is_plain_batch,
    is_plain_eager,
    supports_triton,
    triton_error,
)
from expacc.ops.log_prob import (
    IDENTITY,
    Formula,
    Plan,
    all_leads,
    apply_formula,
    compose_log_prob_loss,
    eager_log_prob_loss,
    error_of,
)
from expacc.ops.native.build import build_native
from expacc.ops.orthant.all_classes import win_chances
from expacc.ops.orthant.any_noise import contest
from expacc.ops.orthant.node import orthant_chance, orthant_logs
from expacc.ops.orthant.rival_cost import rival_cost
from expacc.ops.rivals import compute_dtype, row_dtype
from expacc.ops.row_loss import RowLoss, RowPlan, Share, compose_all
from expacc.ops.tempered import Tempered, tempered_loss
from expacc.ops.triton.library import row_log_prob, takes_operation
from expacc.ops.triton.node import fused_curve, fused_exact

__all__ = [
    "CLASS_AXIS",
    "IDENTITY",
    "IMPLEMENTATIONS",
    "PLAIN",
    "BinaryCurve",
    "BinaryPlan",
    "Formula",
    "Implementation",
    "RowLoss",
    "RowPlan",
    "Share",
    "Spec",
    "Tempered",
    "all_leads",
    "all_log_probs",
    "apply_formula",
    "build_native",
    "compose_all",
    "compose_binary_loss",
    "compute_dtype",
    "contest",
    "eager_binary_loss",
    "error_of",
    "exact_curve",
    "fused_curve",
    "fused_exact",
    "is_plain_batch",
    "is_plain_eager",
    "log_prob_loss",
    "mixture_curve",
    "orthant_chance",
    "orthant_logs",
    "rival_cost",
    "row_dtype",
    "row_loss",
    "supports_triton",
    "target_log_prob",
    "tempered_loss",
    "triton_error",
    "win_chances",
]


def log_prob_loss(
    logits: Tensor,
    target: Tensor,
    formula: Formula,
    kept: Tensor | None,
    scale: Tensor | float,
    summed: bool,
    dtype: torch.dtype,
) -> Tensor:
    """``scale · formula(log p(target))``, per row or summed; rows not ``kept`` are 0.

    Args:
        logits: (N, C, …), any floating dtype.
        target: (N, …), int64, every label in [0, C).
        formula: the loss as a curve over log p.
        kept: (N, …) bool or None; a row that is not kept contributes nothing, whatever its logits.
        scale: a number, or one per row.
        summed: return the sum over rows instead of the rows.
        dtype: of the result.
    """
    if takes_operation(logits) and not formula.moves():
        labels = target if kept is None else torch.where(kept, target, -1)
        values = scale * apply_formula(row_log_prob(logits, labels)[0], formula)
        values = values if kept is None else torch.where(kept, values, 0)
        return (values.sum() if summed else values).to(dtype)
    index = target.unsqueeze(CLASS_AXIS)
    if kept is not None:
        kept = kept.unsqueeze(CLASS_AXIS)
    if isinstance(scale, Tensor) and scale.ndim > 0:
        scale = scale.unsqueeze(CLASS_AXIS)
    if is_plain_eager():
        result = eager_log_prob_loss(logits, index, Plan(formula, kept, scale, summed, dtype))
    else:
        values = scale * compose_log_prob_loss(logits, index, kept, formula)
        result = (values.sum() if summed else values).to(dtype)
    return result if summed else result.squeeze(CLASS_AXIS)


def target_log_prob(logits: Tensor, target: Tensor) -> Tensor:
    """log softmax(logits) at ``target``, accurate to the last digit even as p approaches 1."""
    dtype = compute_dtype(logits.dtype)
    return log_prob_loss(logits, target, IDENTITY, None, 1.0, summed=False, dtype=dtype)


def all_log_probs(logits: Tensor) -> Tensor:
    """log softmax over the class axis, accurate to the last digit even as one p approaches 1.

    ``torch.log_softmax`` is fine for every class but the largest: only there can p exceed 1/2.
    """
    logits = logits.to(compute_dtype(logits.dtype))
    best = logits.detach().argmax(CLASS_AXIS)
    exact = target_log_prob(logits, best).unsqueeze(CLASS_AXIS)
    return logits.log_softmax(CLASS_AXIS).scatter(CLASS_AXIS, best.unsqueeze(CLASS_AXIS), exact)
