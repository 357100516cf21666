"""Launching a Triton kernel without Triton's look at every argument.

At a launch by ``kernel[grid](...)`` Triton binds and inspects each argument to choose among
compiled variants: more than a kernel of a small batch costs. Our callers keep a ``Launch`` for each
kind of batch, with all but addresses and a few floats in place. What its first launch returns, a
compiled kernel, is from then on launched itself, ``compiled[grid](...)``, with addresses for
tensors. That is tried once: with a Triton that refuses it every launch is by the kernel, slower and
never wrong.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from expacc.ops.dispatch import CLASS_AXIS

DEFAULT_STREAM = 0
# Said for every kernel, since newer versions of Triton do not fuse unless asked. All digits hold
# either way: where a product must not be rounded the kernels say ``tl.fma``.
FUSED = {"enable_fp_fusion": True}


class Compiled(NamedTuple):
    """A kernel as CUDA's driver takes it, for C++."""

    function: int
    programs: int
    threads: int
    shared: int
    arguments: list[tuple[str, float]]  # letters of ``struct``, and values where they never change
    changing: int  # how many of the first ones do: addresses, then floats


class Launch:
    """A kernel of tensors, floats, fixed numbers and constants, in this order; one kind of batch.

    Args:
        kernel: a Triton function.
        programs: how many.
        device: of the tensors.
        fixed: the same for every launch, as are the tensors' dtypes and alignments.
        constants: of the compiled variant.
        options: ``num_warps`` and the like.
    """

    __slots__ = ("_again", "_changing", "_first", "_fixed", "_rest", "device", "grid", "triton")

    def __init__(
        self,
        kernel: Any,
        programs: int,
        device: torch.device,
        fixed: tuple[float, ...],
        constants: tuple[Any, ...],
        options: Mapping[str, int],
    ) -> None:
        self.triton = (kernel, {**options, **FUSED})
        self.grid = (programs, 1, 1)
        self.device = device.index
        self._fixed = fixed
        self._rest = (*fixed, *constants)
        self._changing = 0
        self._first: Any = None  # the compiled kernel
        self._again: Callable[..., None] | None = None  # the short way, once it was gone

    def __call__(self, tensors: tuple[Tensor, ...], floats: tuple[float, ...] = ()) -> None:
        """Launch on the current stream of the device."""
        again = self._again
        if again is not None:
            places = [tensor.data_ptr() for tensor in tensors]
            again(*places, *floats, *self._rest, stream=stream_of(self.device))
        elif self.device is None:  # the CPU, where Triton's interpreter is
            kernel, options = self.triton
            kernel[self.grid](*tensors, *floats, *self._rest, **options)
        else:
            with torch.cuda.device(self.device):
                self._find_way(tensors, floats)

    def _find_way(self, tensors: tuple[Tensor, ...], floats: tuple[float, ...]) -> None:
        """By Triton the first time, the short way the second: it stays, if it is not refused."""
        if self._changing and self._first is not None:
            places = [tensor.data_ptr() for tensor in tensors]
            try:
                # Arguments are looked at before anything is launched: refused is not launched.
                run = self._first[self.grid]
                run(*places, *floats, *self._rest, stream=stream_of(self.device))
            except (TypeError, ValueError, AttributeError):
                self._first = None
            else:
                single = torch.cuda.device_count() == 1
                self._again = run if single else _on_device(run, self.device)
                return
        kernel, options = self.triton
        compiled = kernel[self.grid](*tensors, *floats, *self._rest, **options)
        if self._changing == 0:
            self._first, self._changing = compiled, len(tensors) + len(floats)

    def compiled(self) -> Compiled | None:
        """What the driver must be told; None where that is not as the compiled code has it."""
        if self._first is None:  # not yet launched, or only Triton knows how
            return None
        try:
            return _described(self._first, self.grid[0], self._changing, self._fixed)
        except (AttributeError, KeyError, TypeError):
            return None


_LETTERS = {"i32": "i", "i64": "q", "fp32": "f", "fp64": "d"}
_BYTES = {"i": 4, "q": 8, "f": 4, "d": 8, "Q": 8}


def _described(
    compiled: Any, programs: int, changing: int, fixed: tuple[float, ...]
) -> Compiled | None:
    """The arguments as the signature has them, if those are what the assembly has."""
    metadata = compiled.metadata
    if metadata.num_ctas != 1 or metadata.global_scratch_size or metadata.profile_scratch_size:
        return None  # our kernels need none of these; Triton would know what to do
    kinds = list(compiled.src.signature.values())[: changing + len(fixed)]
    if "constexpr" in kinds[:changing]:
        return None
    used = [
        ("Q" if kind[0] == "*" else _LETTERS[kind], value)
        for kind, value in zip(kinds, [0] * changing + list(fixed), strict=True)
        if kind != "constexpr"
    ]
    entry = compiled.asm["ptx"].partition(".entry")[2].partition(")")[0]
    sizes = [int(bits) // 8 for bits in re.findall(r"\.param \.[a-z](\d+)", entry)]
    extra = len(sizes) - len(used)  # addresses of scratch, which there is none of
    used += [("Q", 0)] * extra
    if extra < 0 or sizes != [_BYTES[letter] for letter, _ in used]:
        return None
    threads = 32 * metadata.num_warps
    return Compiled(compiled.function, programs, threads, metadata.shared, used, changing)


def _on_device(run: Callable[..., None], device: int) -> Callable[..., None]:
    """The same where there are several."""

    def run_there(*arguments: Any, stream: int) -> None:
        if torch._C._cuda_getDevice() == device:
            run(*arguments, stream=stream)
        else:
            with torch.cuda.device(device):
                run(*arguments, stream=stream)

    return run_there


def driver_addresses() -> tuple[int, int, int, int] | None:
    """For C++: cuLaunchKernel, cuCtxGetCurrent, cuCtxSetCurrent, and this thread's context."""
    import ctypes

    try:
        driver = ctypes.PyDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        code = driver.cuCtxGetCurrent(ctypes.byref(context))
        functions = (driver.cuLaunchKernel, driver.cuCtxGetCurrent, driver.cuCtxSetCurrent)
    except (OSError, AttributeError):
        return None
    if code != 0 or context.value is None:
        return None
    launch, get, put = (ctypes.cast(each, ctypes.c_void_p).value or 0 for each in functions)
    return launch, get, put, context.value


def power_of_two(number: int) -> int:
    """The next one; Triton's own function for it takes microseconds."""
    return 1 << (number - 1).bit_length()


def no_stream(device: int | None) -> int:
    """Where there is no GPU."""
    return 0


# The current stream of a device, as the driver knows it.
stream_of: Callable[..., int] = getattr(torch._C, "_cuda_getCurrentRawStream", no_stream)


# ------------------------------------------------------------------- memory around the launches

_LARGEST_LIKE = 2**16  # elements
_LARGEST_SPARE, _MOST_SPARE = 2**17, 4
_COUNTERS: dict[tuple[int, int], Tensor] = {}


def like(size: int | None, dtype: torch.dtype, device: torch.device) -> Tensor:
    """For ``torch.empty_like``, the cheapest way to a new vector, or to a number if None."""
    if size is None or size <= _LARGEST_LIKE:
        return torch.empty(() if size is None else size, dtype=dtype, device=device)
    return torch.empty((), dtype=dtype, device=device).expand(size)  # takes no memory


def new_gradient(logits: Tensor) -> Tensor:
    """Uninitialised: rows one after the other for (N, C), else as the logits if they are dense."""
    if logits.ndim == 2:
        return torch.empty_like(logits, memory_format=torch.contiguous_format)
    return torch.empty_like(logits)


def gradient_strides(logits: Tensor) -> tuple[int, ...]:
    """Those of ``new_gradient``."""
    if logits.ndim == 2:
        return (logits.shape[CLASS_AXIS], 1)
    return tuple(torch.empty_like(logits, device="meta").stride())


def as_rows(upstream: Tensor) -> Tensor:
    """An upstream (N, d1, …) as one of numbered rows: a view, unless its layout is unusual."""
    if not any(upstream.stride()):  # one number, as of a sum
        return upstream.as_strided((upstream.numel(),), (0,))
    return upstream.reshape(-1)


class Scratch:
    """The float64 numbers that a step of one kind of batch needs, its next step may have.

    On the default stream, where launches follow each other.
    """

    __slots__ = ("_example", "_spare", "size")

    def __init__(self, size: int, device: torch.device) -> None:
        self.size = size
        self._example = like(size, torch.float64, device)
        self._spare: list[Tensor] = []

    def take(self, stream: int) -> Tensor:
        """Of undefined content."""
        if stream == DEFAULT_STREAM:
            try:
                return self._spare.pop()
            except IndexError:  # asked for, not looked for: another thread may have been quicker
                pass
        return torch.empty_like(self._example)

    def give_back(self, numbers: Tensor, stream: int) -> None:
        """When all launches that need it are under way."""
        few = len(self._spare) < _MOST_SPARE
        if stream == DEFAULT_STREAM and self.size <= _LARGEST_SPARE and few:
            self._spare.append(numbers)


def counter_of(device: torch.device, stream: int) -> Tensor:
    """A zero for the programs of one launch to count themselves; the last one makes it 0 again.

    One per stream, whose launches follow each other. A graph being captured gets its own, since it
    may be replayed beside anything.
    """
    index = device.index
    # The default stream cannot be captured.
    if stream != DEFAULT_STREAM or index is None:  # noqa: SIM102
        if index is None or torch._C._cuda_isCurrentStreamCapturing():
            return torch.zeros(1, dtype=torch.int32, device=device)
    found = _COUNTERS.get((index, stream))
    if found is None:
        found = _COUNTERS[index, stream] = torch.zeros(1, dtype=torch.int32, device=device)
    return found
