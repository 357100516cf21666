"""Launching a Triton kernel in a microsecond or two beside the driver's own.

Triton looks at every argument of every launch to choose among compiled variants, and its launcher
takes them one by one: more than a kernel of a small batch costs. Our callers keep a ``Launch`` for
each kind of batch, with everything but addresses in place; after a first launch by Triton,
``Launch.fire`` asks CUDA's driver directly, and ``Launch.compiled`` is what C++ needs for the same.
"""

import ctypes
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

# How a compiled kernel takes its arguments is not public: the short way is for versions where it
# was tried.
_KNOWS_TRITON = triton.__version__.startswith("3.6.")
_NO_CONTEXT = 201  # of the driver, in this thread
DEFAULT_STREAM = 0

_FORMATS = {"i32": "i", "i64": "q", "fp32": "f", "fp64": "d"}
# CUlaunchConfig: grid, block, shared memory; then stream, attributes (none) and their number. The
# arguments follow it in the same buffer, so that one call writes all that changes.
_CONFIG = struct.Struct("@7I4x")
_STREAM = "Q16x"


def _driver_launch() -> Any:
    """CUDA's cuLaunchKernelEx, or None where its library has another name, or is too old."""
    try:
        return ctypes.PyDLL("libcuda.so.1").cuLaunchKernelEx
    except (OSError, AttributeError):
        return None


_DRIVER_LAUNCH: Any = _driver_launch() if _KNOWS_TRITON else None


def driver_addresses() -> tuple[int, int, int, int] | None:
    """For C++: cuLaunchKernel, cuCtxGetCurrent, cuCtxSetCurrent, and this thread's context."""
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


class Compiled(NamedTuple):
    """A kernel as the driver takes it."""

    function: int
    programs: int
    threads: int
    shared: int
    arguments: list[tuple[str, int]]  # letters of ``struct``, and values where they never change
    changing: int  # how many of the first ones do: addresses, then floats


class Launch:
    """A kernel of tensors, floats, ints and constants, in this order, for one kind of batch.

    ``fire(stream, *addresses, *floats)`` is the short way, None before the first launch and where
    there is none.

    Args:
        kernel: a Triton function.
        programs: how many.
        device: of the tensors.
        ints: the same for every launch, as are the tensors' dtypes and alignments.
        constants: of the compiled variant.
        options: ``num_warps`` and the like.
    """

    __slots__ = ("compiled", "device", "fire", "programs", "triton")

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
        self.compiled: Compiled | None = None
        self.fire: Callable[..., None] | None = None

    def __call__(self, tensors: tuple[Tensor, ...], floats: tuple[float, ...] = ()) -> None:
        """Launch on the current stream of the device."""
        kernel, ints, constants, options = self.triton
        if self.device is None:  # the CPU, where Triton's interpreter is
            kernel[(self.programs,)](*tensors, *floats, *ints, *constants, **options)
            return
        if self.fire is not None:
            self.fire(stream_of(self.device), *[each.data_ptr() for each in tensors], *floats)
            return
        with torch.cuda.device(self.device):
            compiled = kernel[(self.programs,)](*tensors, *floats, *ints, *constants, **options)
        if _DRIVER_LAUNCH is not None:
            self.compiled = _described(compiled, self, len(tensors), len(floats))
            if self.compiled is not None:
                self.fire = _short_way(self.compiled, self.device)


def _described(compiled: Any, launch: Launch, tensors: int, floats: int) -> Compiled | None:
    """What the driver must be told; None where only Triton knows."""
    run, metadata = compiled.run, compiled.metadata
    if run.global_scratch_size or run.profile_scratch_size or metadata.num_ctas != 1:
        return None  # our kernels need none of these; Triton would know what to do
    ints = launch.triton[1]
    changing = tensors + floats
    kinds = list(compiled.src.signature.values())[: changing + len(ints)]
    if "constexpr" in kinds[:changing]:
        return None
    if not all(kind[0] == "*" or kind == "constexpr" or kind in _FORMATS for kind in kinds):
        return None
    used = [
        (_FORMATS.get(kind, "Q"), value)
        for kind, value in zip(kinds, [0] * changing + list(ints), strict=True)
        if kind != "constexpr"
    ]
    used += [("Q", 0), ("Q", 0)]  # scratch of Triton's
    threads = 32 * metadata.num_warps
    function = compiled.function
    return Compiled(function, launch.programs, threads, metadata.shared, used, changing)


def _short_way(compiled: Compiled, device: int) -> Callable[..., None]:
    """A function that writes addresses and floats into a buffer and calls the driver."""
    used = compiled.arguments
    changing = compiled.changing
    formats = "@" + _STREAM + "".join(letter for letter, _ in used[:changing])
    everything = "@" + _STREAM + "".join(letter for letter, _ in used)
    first = _CONFIG.size
    size = first + struct.calcsize(everything)
    places = [
        first + struct.calcsize("@" + _STREAM + "".join(letter for letter, _ in used[: n + 1]))
        - struct.calcsize("@" + used[n][0])
        for n in range(len(used))
    ]  # fmt: skip
    grid = (compiled.programs, 1, 1, compiled.threads, 1, 1, compiled.shared)
    pack = struct.Struct(formats).pack_into
    driver, function, nothing = _DRIVER_LAUNCH, ctypes.c_void_p(compiled.function), None

    def make_cells() -> tuple[Any, ...]:
        buffer = ctypes.create_string_buffer(size)
        _CONFIG.pack_into(buffer, 0, *grid)
        struct.pack_into(everything, buffer, first, 0, *[value for _, value in used])
        start = ctypes.addressof(buffer)
        params = (ctypes.c_void_p * len(places))(*[start + place for place in places])
        return buffer, ctypes.c_void_p(start), params

    spare = [make_cells()]  # two threads never write into the same

    def fire(stream: int, *changing: float) -> None:
        try:
            cells = spare.pop()
        except IndexError:
            cells = make_cells()
        buffer, config, params = cells
        pack(buffer, first, stream, *changing)
        code = driver(config, function, params, nothing)
        if code == _NO_CONTEXT:
            torch.cuda.set_device(device)
            code = driver(config, function, params, nothing)
        spare.append(cells)
        if code != 0:
            raise RuntimeError(f"CUDA refused to launch a kernel of expacc; got error {code}.")

    if torch.cuda.device_count() == 1:
        return fire

    def fire_there(stream: int, *changing: float) -> None:
        if torch._C._cuda_getDevice() == device:
            fire(stream, *changing)
        else:
            with torch.cuda.device(device):
                fire(stream, *changing)

    return fire_there


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
