"""How a kernel is launched: by Triton first, then short; always by Triton where it refuses that."""

import contextlib
import importlib.util
import types

import pytest
import torch

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)


class Kernel:
    """A kernel, and what its launch returns, with a launch of its own."""

    def __init__(self, refuses):
        self.launched = []
        self.refuses = refuses

    def __getitem__(self, grid):
        def launch(*arguments, **options):
            self.launched.append(("kernel", grid, arguments, options))
            return Handle(self)

        return launch


class Handle:
    asm = types.MappingProxyType(
        {"ptx": ".visible .entry f(\n .param .u64 .ptr f_0,\n .param .f64 f_1,\n .param .u64 f_2)"}
    )
    function = 77
    metadata = types.SimpleNamespace(
        num_ctas=1, global_scratch_size=0, profile_scratch_size=0, num_warps=4, shared=0
    )
    src = types.SimpleNamespace(signature={"x": "*fp32", "a": "fp64", "n": "constexpr"})

    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        def launch(*arguments, stream):
            if self.kernel.refuses:
                raise self.kernel.refuses
            self.kernel.launched.append(("short", grid, arguments, stream))

        return launch


@pytest.fixture
def make(monkeypatch):
    from expacc.ops.triton import launch

    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(launch, "stream_of", lambda _: 5)

    def make(refuses=None):
        kernel = Kernel(refuses)
        place = torch.device("cuda", 0)
        return kernel, launch.Launch(kernel, 3, place, (1,), ("c",), {"num_warps": 4})

    return make


def test_by_triton_once_then_short(make):
    kernel, launch = make()
    tensor = torch.zeros(2)
    for number in (0.5, 1.5, 2.5):
        launch((tensor,), (number,))
    options = {"num_warps": 4, "enable_fp_fusion": True}
    first, *rest = kernel.launched
    assert first == ("kernel", (3, 1, 1), (tensor, 0.5, 1, "c"), options)
    address = tensor.data_ptr()
    assert rest == [("short", (3, 1, 1), (address, x, 1, "c"), 5) for x in (1.5, 2.5)]


@pytest.mark.parametrize("refuses", [TypeError("addresses"), ValueError(), AttributeError()])
def test_what_is_refused_goes_by_triton(make, refuses):
    kernel, launch = make(refuses)
    for number in (0.5, 1.5, 2.5):
        launch((torch.zeros(2),), (number,))
    assert [how for how, *_ in kernel.launched] == ["kernel"] * 3
    assert launch.compiled() is None


def test_what_cpp_is_told_is_what_the_assembly_has(make, monkeypatch):
    kernel, launch = make()
    assert launch.compiled() is None
    launch((torch.zeros(2),), (0.5,))
    found = launch.compiled()
    assert (found.function, found.programs, found.threads, found.changing) == (77, 3, 128, 2)
    assert found.arguments == [("Q", 0), ("d", 0), ("Q", 0)]
    for broken in (".entry f(.param .u64 f_0, .param .f32 f_1)", ".entry f(.param .u64 f_0)"):
        monkeypatch.setattr(Handle, "asm", {"ptx": broken})
        assert launch.compiled() is None
    assert [how for how, *_ in kernel.launched] == ["kernel"]


def test_a_kernel_that_does_not_run_is_switched_off_with_a_remark():
    import warnings

    from expacc.ops import dispatch

    class Plan:
        def forward(self, *_):
            return torch.zeros(()), None

        def backward(self, *_):
            raise RuntimeError("no such GPU")

    plan = Plan()
    assert dispatch.tried(plan, False) is plan
    with pytest.warns(RuntimeWarning, match="no such GPU"):
        assert dispatch.tried(plan, True) is None
    with warnings.catch_warnings(action="error"):  # which is no reason to fail
        assert dispatch.tried(plan, True) is None
