"""Launching a Triton kernel in a few microseconds.

Triton looks at every argument of every launch to choose among compiled variants, which costs more
than a kernel of a small batch does. Our callers know what a variant depends on and say so in a key;
the variant is found by Triton once per key and then launched directly.
"""

from typing import Any

import torch
from torch import Tensor

__all__ = ["is_aligned", "launch"]

_COMPILED: dict[tuple[Any, ...], Any] = {}


def is_aligned(tensor: Tensor) -> bool:
    """Does the tensor start where 16 bytes can be read at once?"""
    return tensor.data_ptr() % 16 == 0


def launch(
    kernel: Any,
    programs: int,
    device: torch.device,
    key: tuple[Any, ...],
    *arguments: Any,
    **options: int,
) -> None:
    """Launch ``kernel`` on the current stream of ``device``.

    Args:
        kernel: a Triton function.
        programs: how many.
        device: of the tensors.
        key: everything the compiled variant depends on: dtypes, alignments, strides, constants.
            Integers that Triton is told not to specialise on need not be in it.
        arguments: all of the kernel's, in order, constants too.
        options: ``num_warps`` and the like; part of the variant, so constants of the key.
    """
    index = device.index
    if index is not None and index != torch.cuda.current_device():
        with torch.cuda.device(index):
            launch(kernel, programs, device, key, *arguments, **options)
        return
    key = (kernel, index, key)
    known = _COMPILED.get(key)
    if known is None:
        compiled = kernel[(programs,)](*arguments, **options)
        if compiled is not None:  # Triton's interpreter compiles nothing
            run = compiled.run
            flags = run.launch_cooperative_grid, run.launch_pdl
            _COMPILED[key] = run.launch, compiled.function, flags, compiled.packed_metadata
            if run.global_scratch_size or run.profile_scratch_size:
                raise RuntimeError("kernels of expacc must not need scratch memory of Triton's.")
        return
    run, function, flags, metadata = known
    run(
        programs,
        1,
        1,
        torch._C._cuda_getCurrentRawStream(index),
        function,
        *flags,
        None,
        None,
        metadata,
        None,
        None,
        None,
        # As numbers: Triton would ask the driver about every tensor's pointer.
        *[item.data_ptr() if isinstance(item, Tensor) else item for item in arguments],
    )
