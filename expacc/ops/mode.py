"""How we are being run."""

import torch
from torch.autograd import forward_ad


def is_plain_eager() -> bool:
    """True when nothing traces or transforms us: values may be read, one fused node may be used."""
    return (
        not torch.compiler.is_compiling()
        and torch._C._functorch.maybe_current_level() is None  # vmap, grad, jvp …
        and forward_ad._current_level < 0
    )
