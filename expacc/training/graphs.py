"""A network's kernels, recorded once on a GPU and played back: launching them costs the host less.

Forward and backward are recorded, the loss and the optimiser are not: their numbers may change from
step to step.
"""

from typing import Any

import torch
from torch import Tensor, nn


class _Half(nn.Module):
    """A network under autocast, whose recorded casts must not come from a cache."""

    def __init__(self, model: nn.Module, half: torch.dtype | None) -> None:
        super().__init__()
        self.model, self.dtype = model, half

    def forward(self, inputs: Tensor) -> Any:
        """Call the network."""
        with torch.autocast(
            "cuda", self.dtype, enabled=self.dtype is not None, cache_enabled=False
        ):
            return self.model(inputs)


class Recorded:
    """Forward and backward of a model in training mode, for batches like one.

    Args:
        model: its buffers are as before when the recording is done.
        inputs: a batch; a recording is made if it is a tensor.
        half: the precision of autocast; None for none.
    """

    def __init__(self, model: nn.Module, inputs: Any, half: torch.dtype | None) -> None:
        self._graphed: Any = None
        if not isinstance(inputs, Tensor):
            return
        self._shape, self._dtype = inputs.shape, inputs.dtype
        # Torch would warn that gradients come from the stream on which the recording was made.
        quiet = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
        if quiet is not None:
            quiet(False)
        kept = [(buffer, buffer.clone()) for buffer in model.buffers()]
        example = inputs.clone(memory_format=torch.preserve_format)
        self._graphed = torch.cuda.make_graphed_callables(
            _Half(model, half).train(), (example,), allow_unused_input=True
        )
        with torch.no_grad():
            for buffer, before in kept:  # the rounds of warming up were no training
                buffer.copy_(before)

    def fits(self, inputs: Any) -> bool:
        """Whether the recording is of batches of this shape."""
        return (
            self._graphed is not None
            and isinstance(inputs, Tensor)
            and (inputs.shape, inputs.dtype) == (self._shape, self._dtype)
        )

    def __call__(self, inputs: Tensor) -> Any:
        """Logits."""
        return self._graphed(inputs)
