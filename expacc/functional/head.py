"""The mixture of a linear classifier's logits, without the logits."""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from expacc.contract import Reduction, read_batch, read_labels
from expacc.errors import check_choice, check_count, reduction_error, tensor_error
from expacc.functional.softmax import mixed_expected_error, mixture_weights
from expacc.ops import (
    IMPLEMENTATIONS,
    Implementation,
    compute_dtype,
    is_plain_eager,
    supports_triton,
    triton_error,
)

__all__ = ["linear_mixed_expected_error"]

# A chunk's logits are about this many elements: large enough for fast products, small beside the
# gradient of the weight.
_CHUNK_ELEMENTS = 2**27


def linear_mixed_expected_error(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    *,
    class_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    focus: float = 0.0,
    ce_weight: float | None = None,
    error_weight: float | None = None,
    chunk_rows: int | None = None,
    impl: Implementation = "auto",
) -> Tensor:
    r"""Compute the mixture of cross entropy and expected error of ``features @ weight.T + bias``.

    For vocabularies: the N×C logits, often the largest tensor of a training step, are made in
    chunks of rows and never kept. Ask for it where memory ends; with few classes the plain loss is
    as good.

    Definition:
        L = -ce_weight · log p(target) + error_weight · (1 - p(target)), with
        p = softmax(features @ weight.T + bias). (0, 1) is the expected error, (leak, 1) the leaky
        one; ``focus`` as in ``mixed_expected_error``.

    Gradient:
        dL/dlogits_j = -(error_weight · p_y + ce_weight)(1[j=y] - p_j), carried on to features,
        weight and bias chunk by chunk; largest at p_y = 0.5 (1 - ce_weight / error_weight).

    Args:
        features: (N, D).
        weight: (C, D), as that of ``torch.nn.Linear``.
        bias: (C,) or None.
        target: integer labels, (N,).
        class_weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        focus: the p(target) in [0, 0.5] at which the gradient peaks.
        ce_weight: weight >= 0 of the cross entropy, in place of ``focus``.
        error_weight: weight >= 0 of the expected error, in place of ``focus``.
        chunk_rows: rows whose logits exist at a time; by default about 2²⁷ logits.
        impl: 'auto', 'reference' (plain torch) or 'triton' (fused kernels, which need CUDA tensors
            of one dtype without autocast); as in ``mixed_expected_error``.

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        Two classes whose scores are level, p(target) = 1/2: log 2 + 1/2:

        >>> linear_mixed_expected_error(
        ...     torch.ones(1, 3), torch.zeros(2, 3), None, torch.tensor([1])
        ... )
        tensor(1.1931)

    Reference:
        Battash, Hazan and Wolf, "Mixing between the Cross Entropy and the Expectation Loss Terms",
        Eq. 12 to 14.
    """
    weights = mixture_weights(focus, ce_weight, error_weight)
    _check(features, weight, bias, target, reduction)
    rows, classes = features.shape[0], weight.shape[0]
    if chunk_rows is None:
        chunk_rows = max(1, _CHUNK_ELEMENTS // classes)
        if chunk_rows > 256:
            chunk_rows -= chunk_rows % 256  # products like whole tiles
    check_count("chunk_rows", chunk_rows)
    chunk = max(1, min(rows, chunk_rows))
    # Logits of no rows, for the questions that are asked about logits.
    like = features.new_empty(1, classes).expand(rows, classes)
    check_choice("impl", impl, IMPLEMENTATIONS)
    if (
        supports_triton(like, target, class_weight, ignore_index, reduction, impl, "mixture")
        and not torch.is_autocast_enabled("cuda")
        and weight.dtype == features.dtype
    ):
        from expacc.ops.triton.head import HeadSettings, fused_head

        batch = read_batch(
            like,
            target,
            weight=class_weight,
            ignore_index=ignore_index,
            reduction=reduction,
            label_smoothing=0.0,
        )
        scale = torch.as_tensor(batch.scale, dtype=torch.float64, device=like.device).expand(rows)
        settings = HeadSettings(weights, scale, ignore_index, batch.summed, features.dtype, chunk)
        return fused_head(features.contiguous(), weight, bias, target, settings)
    if impl == "triton":
        raise triton_error(like, ", features and weight of one dtype, no autocast")

    read_labels(target, ignore_index, classes, single=False)  # refuses by the row of the batch
    shortened = torch.is_autocast_enabled(features.device.type)
    dtype = torch.float32 if shortened else features.dtype

    def loss_of(some: Tensor, labels: Tensor) -> Tensor:
        logits = torch.nn.functional.linear(some, weight, bias)
        return mixed_expected_error(
            logits.to(compute_dtype(logits.dtype)),  # so that sums over chunks are not in half
            labels,
            weight=class_weight,
            ignore_index=ignore_index,
            reduction="none" if reduction == "none" else "sum",
            ce_weight=weights[0],
            error_weight=weights[1],
        )

    if rows == 0:
        return loss_of(features, target).to(dtype)
    # torch.func has no checkpoints: there the logits are kept.
    transformed = not (torch.compiler.is_compiling() or is_plain_eager())
    parts = [
        loss_of(some, labels)
        if transformed
        else checkpoint(loss_of, some, labels, use_reentrant=False)
        for some, labels in zip(
            torch.split(features, chunk), torch.split(target, chunk), strict=True
        )
    ]
    if reduction == "none":
        return torch.cat(parts).to(dtype)
    total = torch.stack(parts).sum()
    if reduction == "sum":
        return total.to(dtype)
    kept = target != ignore_index
    mass = kept.double()
    if class_weight is not None:
        in_range = kept & (target >= 0) & (target < classes)
        mass = torch.where(kept, class_weight.double()[torch.where(in_range, target, 0)], 0)
    mass = mass.sum()
    return (total / torch.where(mass == 0, 1, mass).to(total.dtype)).to(dtype)


def _check(
    features: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, reduction: str
) -> None:
    named = {"features": features, "weight": weight, "target": target}
    if bias is not None:
        named["bias"] = bias
    for name, value in named.items():
        if not isinstance(value, Tensor):
            raise tensor_error(name, value)
    if reduction not in ("none", "mean", "sum"):
        raise reduction_error(reduction)
    if features.ndim != 2:
        raise ValueError(
            f"features must have shape (N, D); got {tuple(features.shape)}. Use flatten(0, -2)."
        )
    if weight.ndim != 2 or weight.shape[1] != features.shape[1] or weight.shape[0] == 0:
        raise ValueError(
            f"weight must have shape (C, {features.shape[1]}), C >= 1; got {tuple(weight.shape)}."
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must have shape ({weight.shape[0]},); got {tuple(bias.shape)}.")
    if target.shape != features.shape[:1]:
        raise ValueError(
            f"target must have shape ({features.shape[0]},); got {tuple(target.shape)}."
        )
    if target.is_floating_point():
        raise TypeError(f"target must hold integer labels; got {target.dtype}.")
