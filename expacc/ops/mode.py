"""How we are being run."""

import torch
from torch import Tensor
from torch.autograd import forward_ad


def is_plain_eager() -> bool:
    """True when nothing traces or transforms us: values may be read, one fused node may be used."""
    return (
        not torch.compiler.is_compiling()
        and torch._C._functorch.maybe_current_level() is None  # vmap, grad, jvp …
        and forward_ad._current_level < 0
    )


def wants_composed(upstream: Tensor) -> bool:
    """In backward: is a graph of the gradient wanted, or are these many upstreams as one?

    ``is_grads_batched`` has a vmap of its own, older than torch.func's.
    """
    return (
        torch.is_grad_enabled()
        or torch._C._functorch.is_legacy_batchedtensor(upstream)
        or not is_plain_eager()
    )
