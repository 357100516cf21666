"""Launching a Triton kernel in a few microseconds.

Triton looks at every argument of every launch to choose among compiled variants, and its launcher
takes them one by one: more than a kernel of a small batch costs. Our callers keep a ``Launch`` for
each kind of batch, with everything but the tensors in place; after a first launch by Triton it asks
CUDA's driver directly.
"""

import ctypes
import threading
from collections.abc import Mapping
from typing import Any

import torch
import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
from torch import Tensor

__all__ = ["Launch", "counter_of", "like", "power_of_two"]

# How a compiled kernel takes its arguments is not public: the short way is for versions where it
# was tried.
_KNOWS_TRITON = triton.__version__.startswith("3.6.")
_NO_CONTEXT = 201  # of the driver, in this thread
_LARGEST_LIKE = 2**16  # elements

_CELLS: dict[str, Any] = {
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "fp32": ctypes.c_float,
    "fp64": ctypes.c_double,
}
_COUNTERS: dict[tuple[int, int], Tensor] = {}


def _driver_launch() -> Any:
    """CUDA's cuLaunchKernel, or None where its library has another name."""
    try:
        found = ctypes.PyDLL("libcuda.so.1").cuLaunchKernel
    except (OSError, AttributeError):
        return None
    found.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]
    return found


_DRIVER_LAUNCH: Any = _driver_launch() if _KNOWS_TRITON else None


class Launch:
    """A kernel of tensors, floats, ints and constants, in this order, for one kind of batch.

    Args:
        kernel: a Triton function.
        programs: how many.
        device: of the tensors.
        ints: the same for every launch, as are the tensors' dtypes and alignments.
        constants: of the compiled variant.
        options: ``num_warps`` and the like.
    """

    __slots__ = (
        "_address",
        "_cells",
        "_driver",
        "_floats",
        "_lock",
        "_params",
        "device",
        "programs",
        "triton",
    )

    def __init__(
        self,
        kernel: Any,
        programs: int,
        device: torch.device,
        ints: tuple[int, ...],
        constants: tuple[Any, ...],
        options: Mapping[str, int],
    ) -> None:
        self.triton = (kernel, ints, constants, options)
        self.programs = programs
        self.device = device.index
        self._driver: tuple[int, ...] | None = None
        self._lock = threading.Lock()  # of the cells

    def __call__(self, tensors: tuple[Tensor, ...], floats: tuple[float, ...] = ()) -> None:
        """Launch on the current stream of the device."""
        device = self.device
        if device is None:  # the CPU, where Triton's interpreter is
            self._by_triton(tensors, floats)
            return
        if device != torch._C._cuda_getDevice():
            with torch.cuda.device(device):
                self(tensors, floats)
            return
        if self._driver is None:
            compiled = self._by_triton(tensors, floats)
            if _DRIVER_LAUNCH is not None:
                self._prepare(compiled, len(tensors), len(floats))
            return
        stream = torch._C._cuda_getCurrentRawStream(device)
        with self._lock:
            for cell, tensor in zip(self._cells, tensors, strict=False):
                cell.value = tensor.data_ptr()
            for cell, number in zip(self._floats, floats, strict=True):
                cell.value = number
            params = self._address
            code = _DRIVER_LAUNCH(*self._driver, stream, params, None)
            if code == _NO_CONTEXT:
                torch.cuda.set_device(device)
                code = _DRIVER_LAUNCH(*self._driver, stream, params, None)
        if code != 0:
            raise RuntimeError(f"CUDA refused to launch a kernel of expacc; got error {code}.")

    def _by_triton(self, tensors: tuple[Tensor, ...], floats: tuple[float, ...]) -> Any:
        kernel, ints, constants, options = self.triton
        return kernel[(self.programs,)](*tensors, *floats, *ints, *constants, **options)

    def _prepare(self, compiled: Any, tensors: int, floats: int) -> None:
        """Make a cell for every argument; those of tensors and floats are set at every launch."""
        run, metadata = compiled.run, compiled.metadata
        if run.global_scratch_size or run.profile_scratch_size or metadata.num_ctas != 1:
            return  # our kernels need none of these; Triton would know what to do
        _, ints, _, _ = self.triton
        changing = tensors + floats
        values = [None] * changing + list(ints)
        kinds = list(compiled.src.signature.values())[: len(values)]
        known = all(kind[0] == "*" or kind == "constexpr" or kind in _CELLS for kind in kinds)
        if not known or "constexpr" in kinds[:changing]:
            return
        cells = [
            ctypes.c_uint64() if kind[0] == "*" else _CELLS[kind](value or 0)
            for kind, value in zip(kinds, values, strict=True)
            if kind != "constexpr"
        ]
        cells += [ctypes.c_uint64(0), ctypes.c_uint64(0)]  # scratch of Triton's
        self._cells = cells
        self._floats = cells[tensors:changing]
        self._params = (ctypes.c_void_p * len(cells))(*map(ctypes.addressof, cells))
        self._address = ctypes.addressof(self._params)
        threads = 32 * metadata.num_warps
        self._driver = (compiled.function, self.programs, 1, 1, threads, 1, 1, metadata.shared)


def power_of_two(number: int) -> int:
    """The next one; Triton's own function for it takes microseconds."""
    return 1 << (number - 1).bit_length()


def like(size: int | None, dtype: torch.dtype, device: torch.device) -> Tensor:
    """For ``torch.empty_like``, the cheapest way to a new vector, or to a number if None."""
    if size is None or size <= _LARGEST_LIKE:
        return torch.empty(() if size is None else size, dtype=dtype, device=device)
    return torch.empty((), dtype=dtype, device=device).expand(size)  # takes no memory


def counter_of(device: torch.device) -> Tensor:
    """A zero for the programs of one launch to count themselves; the last one makes it 0 again.

    One per stream, whose launches follow each other. A graph being captured gets its own, since it
    may be replayed beside anything.
    """
    index = device.index
    if index is None or torch._C._cuda_isCurrentStreamCapturing():
        return torch.zeros(1, dtype=torch.int32, device=device)
    place = index, torch._C._cuda_getCurrentRawStream(index)
    found = _COUNTERS.get(place)
    if found is None:
        found = _COUNTERS[place] = torch.zeros(1, dtype=torch.int32, device=device)
    return found
