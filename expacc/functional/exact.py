"""EXACT: the expected error of a classifier whose logits carry noise."""

import math
from typing import Literal, TypeGuard

import torch
from torch import Tensor

from expacc.contract import Batch, Reduction, legal_values, read_batch, reduce_rows, sound_batch
from expacc.errors import check_choice, check_count, check_number, sigma_error
from expacc.functional.standardize import standardize_logits
from expacc.ops import (
    CLASS_AXIS,
    IMPLEMENTATIONS,
    compute_dtype,
    contest,
    fused_exact,
    is_plain_eager,
    orthant_chance,
    orthant_logs,
    rival_cost,
    target_log_prob,
    triton_error,
)
from expacc.ops.dispatch import Implementation as Implementation
from expacc.ops.orthant.noise import NOISES, NoiseName
from expacc.probabilities import argmax_probabilities

__all__ = ["exact_error", "is_per_class", "read_sigma"]

Standardize = bool | Literal["sync"]
_FAR_BEHIND = -1e7  # a lead below this, in units of the noise, is taken as this


def exact_error(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    sigma: float | Tensor = 1.0,
    margin: float | None = None,
    standardize: Standardize = True,
    noise: NoiseName = "normal",
    topk: int = 1,
    log: bool = False,
    impl: Implementation = "auto",
) -> Tensor:
    r"""Compute EXACT, the error rate expected when the logits carry Gaussian noise.

    Where the expected error draws labels from the softmax, this draws noisy logits and takes the
    largest. Start with a large ``sigma`` and shrink it during training
    (``expacc.schedules.sigma_tabular``), with ``GradientNormalizer`` between backward and step: the
    paper's recipe, which on tables found more accurate linear models than cross entropy. Without
    them it is no easier to train than the expected error. Computed exactly: no sampling.

    Definition:
        L = 1 - P(y wins), P = ∫ φ(z) ∏_{i≠y} Φ(z + m_i) dz, m_i = min(s_y - s_i, margin) / sigma,
        with s the logits, standardised to mean 0 and standard deviation 1 over the batch.

    Gradient:
        dL/dm_i = -∫ φ(z) φ(z + m_i) ∏_{j≠i,y} Φ(z + m_j) dz: largest where the true class and its
        nearest rival are level; alive, in relative terms, for rows that are surely right or wrong.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities t of the logits'
            shape; the latter give Σ_j t_j (1 - P(j wins)), at the price of a label, but of C labels
            with margin, topk > 1, log or a sigma per class: then each class has its own integral.
        weight: one factor >= 0 per class; n / (C · count) makes this balanced accuracy.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        sigma: the noise's scale, > 0: a number, or a tensor (N), (C), (N, C) or any shape that
            broadcasts against the logits; with a gradient if it requires one.
        margin: leads beyond this count as this (Eq. 19); None for no limit.
        standardize: divide the logits by their standard deviation over the kept rows of this call,
            after subtracting their mean (§4.5.2), with the gradient through both. Under gradient
            accumulation each micro-batch, and under DDP each rank, uses its own; 'sync' shares them
            across the ranks of the default process group.
        noise: 'normal'; 'gumbel', which gives the softmax's expected error; 'logistic'; 'laplace'.
        topk: the row is right if the true class is among the k best.
        log: return -log P instead of 1 - P, also where P underflows.
        impl: 'auto', 'reference' (plain torch) or 'triton' (fused kernels, which need a CUDA
            tensor, and with probabilities no margin, no log); 'auto' takes them where they
            apply.

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0. Double
        backward is refused.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, an unknown noise, or (on CPU, eagerly)
            a bad label.

    Example:
        Two level classes, and one that leads by √2 sigma, which wins Φ(1) of the time:

        >>> logits = torch.tensor([[0.0, 0.0], [0.0, 2.0**0.5]])
        >>> exact_error(logits, torch.tensor([0, 1]), standardize=False, reduction="none")
        tensor([0.5000, 0.1587])

    Reference:
        Karpukhin, Dereka and Kolesnikov, "EXACT: How to Train Your Accuracy", Eq. 15 to 19.
    """
    if (
        noise == "normal"
        and type(topk) is int
        and topk == 1
        and type(standardize) is bool
        and type(log) is bool
        and (margin is None or (type(margin) in (float, int) and 0 < margin < math.inf))
        and (type(sigma) not in (float, int) or 0 < sigma < math.inf)
        and type(label_smoothing) in (float, int)
        and 0 <= label_smoothing <= 1
        and isinstance(target, Tensor)
    ):  # nothing here that the checks below would refuse
        shared = (logits, target, weight, ignore_index, reduction)
        flags = (sigma, margin, standardize, log, impl, exact_error, label_smoothing)
        fused = fused_exact(shared, *flags)
        if fused is not None:
            return fused
    check_choice("noise", noise, tuple(NOISES))
    check_choice("standardize", standardize, (True, False, "sync"))
    check_choice("log", log, (True, False))
    check_choice("impl", impl, IMPLEMENTATIONS)
    check_count("topk", topk)
    if margin is not None:
        check_number("margin", margin, low=0, open_low=True)
    batch = read_batch(logits, target, weight, ignore_index, reduction, label_smoothing)
    batch = sound_batch(batch)
    scores = batch.logits.to(compute_dtype(batch.logits.dtype)).movedim(CLASS_AXIS, -1)
    scales = read_sigma(sigma, batch, scores)
    if impl == "triton":
        needs = ", normal noise, topk 1, no sync, and one constant sigma for all or per row"
        raise triton_error(logits, needs)
    if standardize:
        scores = standardize_logits(scores, batch.kept, sync=standardize == "sync")
    values = _values(scores, scales, batch, margin, noise, topk, log)
    return reduce_rows(values, batch)


def read_sigma(sigma: float | Tensor, batch: Batch, scores: Tensor) -> float | Tensor:
    """sigma as a number, per row (…, 1) or per row and class (…, C), classes last.

    Finite and > 0; where a tensor's values may not be read, NaN in place of any other.
    """
    if not isinstance(sigma, Tensor):
        return check_number("sigma", sigma, low=0, open_low=True)
    shape = batch.logits.shape  # (N, C, …)
    if not sigma.is_floating_point():
        raise sigma_error(sigma, shape)
    sigma = legal_values("sigma", sigma.to(scores.dtype), low=0, open_low=True)
    if sigma.ndim == 0:
        return sigma
    rows, classes = shape[0], shape[CLASS_AXIS]
    per_row, per_class = sigma.shape == (rows,), sigma.shape == (classes,)
    if per_row and per_class and rows > 1:
        raise sigma_error(sigma, shape, ambiguous=True)
    if per_class:
        return sigma
    if per_row:
        return sigma.view(-1, *[1] * (len(shape) - 1))
    if batch.single and sigma.shape == shape[1:]:
        sigma = sigma.unsqueeze(0)
    if sigma.ndim != len(shape) or any(
        have not in (1, need) for have, need in zip(sigma.shape, shape, strict=True)
    ):
        raise sigma_error(sigma, shape)
    return sigma.movedim(CLASS_AXIS, -1)


def is_per_class(scales: float | Tensor) -> TypeGuard[Tensor]:
    """Has every class a scale of its own?"""
    return isinstance(scales, Tensor) and scales.ndim > 0 and scales.shape[-1] > 1


def _values(
    scores: Tensor,
    scales: float | Tensor,
    batch: Batch,
    margin: float | None,
    noise: NoiseName,
    topk: int,
    log: bool,
) -> Tensor:
    """1 - P or -log P per row."""
    if batch.mass is None:
        return _of_labels(scores, scales, batch.labels, margin, noise, topk, log)
    mass = batch.mass.movedim(CLASS_AXIS, -1)
    if margin is None and topk == 1 and not log and not is_per_class(scales):
        return argmax_cost(scores, scales, _mass_of_others(mass), noise)
    # Every class takes its turn as the true one.
    classes = scores.shape[-1]
    everyone = torch.arange(classes, device=scores.device).expand(scores.shape)
    wide = scores.unsqueeze(-2).expand(*scores.shape, classes)
    if isinstance(scales, Tensor) and scales.ndim > 0:
        scales = scales.unsqueeze(-2)
    values = _of_labels(wide, scales, everyone, margin, noise, topk, log)
    # A class without mass contributes 0, not 0 · inf.
    return (mass * torch.where(mass == 0, 0, values)).sum(-1)


def argmax_cost(scores: Tensor, scales: float | Tensor, costs: Tensor, noise: NoiseName) -> Tensor:
    """Σ_j costs_j P(argmax = j), for scores and costs (…, C) and scales per row.

    As the best class's cost and what its upsets add, so that nothing tiny is a difference.
    """
    best = scores.detach().argmax(-1)
    costs = costs.to(torch.float64)
    least = costs.gather(-1, best.unsqueeze(-1))
    more = (costs - least).to(scores.dtype)
    if noise == "normal":
        own, behind, rivals = _own_and_rivals(scores, best)
        leads = _leads(own, behind, scales, isinstance(scales, Tensor), None)
        upsets = rival_cost(leads, more.gather(-1, rivals))
    else:
        upsets = (more * argmax_probabilities(scores, scales, noise)).sum(-1)
    return least.squeeze(-1) + upsets


def _mass_of_others(mass: Tensor) -> Tensor:
    """What is lost if class j wins, Σ_{i≠j} mass_i: Σ_j mass_j (1 - P_j) = Σ_j P_j Σ_{i≠j} mass_i.

    In the largest class's place summed without it: a difference would have no digits left.
    """
    top = mass.detach().argmax(-1, keepdim=True)
    rest = mass.scatter(-1, top, 0).sum(-1, keepdim=True)
    return (mass.sum(-1, keepdim=True) - mass).scatter(-1, top, rest)


def _own_and_rivals(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The label's score, (…, 1), the others', and their classes, (…, C-1)."""
    index = labels.unsqueeze(-1)
    place = torch.arange(scores.shape[-1] - 1, device=scores.device)
    rivals = place + (place >= index)  # all classes but the label
    return scores.gather(-1, index), scores.gather(-1, rivals), rivals


def _leads(
    own: Tensor, behind: Tensor, scales: float | Tensor, finite: bool, margin: float | None
) -> Tensor:
    """(own - behind)/scales, at most margin; +inf over an absent rival, else finite if wanted."""
    absent = behind == -torch.inf
    lead = own - torch.where(absent, 0, behind)
    if margin is not None:
        lead = lead.clamp(max=margin)
    if finite:
        lead = lead.clamp(torch.finfo(lead.dtype).min, torch.finfo(lead.dtype).max)
    return torch.where(absent, torch.inf, lead / scales)


def _of_labels(
    scores: Tensor,
    scales: float | Tensor,
    labels: Tensor,
    margin: float | None,
    noise: NoiseName,
    topk: int,
    log: bool,
) -> Tensor:
    """1 - P or -log P of the label, for scores (…, C) and labels (…)."""
    classes = scores.shape[-1]
    own, behind, rivals = _own_and_rivals(scores, labels)
    wide = scales.expand(scores.shape) if is_per_class(scales) else None
    general = wide is not None or topk > 1 or noise in ("logistic", "laplace")
    theirs = scales if wide is None else wide.gather(-1, rivals)
    # Without end there is no slope, in sigma either.
    margins = _leads(own, behind, theirs, general or isinstance(scales, Tensor), margin)
    if general:
        ratio = torch.ones_like(margins, dtype=torch.float64)
        if wide is not None:
            ratio = (wide.gather(-1, labels.unsqueeze(-1)) / theirs).double()
        single = scores.dtype == torch.float32
        offset = margins.double().clamp(min=_FAR_BEHIND)
        chance = contest(offset, ratio, noise, topk, single=single, eager=is_plain_eager())
        log_prob, error = chance.log_prob, chance.error
    elif noise == "gumbel":  # softmax, with the leads for logits
        margins = margins.clamp(min=torch.finfo(margins.dtype).min)
        ladder = torch.cat([margins.new_zeros(*labels.shape, 1), -margins], -1)
        flat = ladder.reshape(-1, classes)
        first = torch.zeros(flat.shape[0], dtype=torch.int64, device=flat.device)
        log_prob = target_log_prob(flat, first).reshape(labels.shape)
        error = -torch.expm1(log_prob)
    elif log:
        log_prob = error = orthant_logs(margins, 0)[0]
        if not isinstance(scales, Tensor):  # else the masked were cut off above
            return -log_prob
    else:
        return orthant_chance(margins, 0, error=True, dtype=torch.float64)
    return torch.where(own.squeeze(-1) == -torch.inf, torch.inf, -log_prob) if log else error
