"""The Triton kernels compiled for a GPU that is not there, as far as assembly, without a warning.

A program may take warnings for errors: kernels that make Triton warn would be switched off.
"""

import importlib.util
import os
import subprocess
import sys
import types
import warnings
from pathlib import Path

import pytest
import torch

from expacc.ops.dispatch import CURVES, Spec


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize("group", ["softmax", "exact", "soft_exact", "binary"])
def test_compiled(group, tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "error", str(Path(__file__)), group]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class Hopper:
    """What Triton asks of a driver before it compiles."""

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


def compile_only():
    """Make every launch a compilation, of the variant for a GPU; returns the names of what was."""
    import triton

    from expacc.ops.triton.launch import Launch, _described

    triton.runtime.driver.set_active(Hopper())
    made = []

    def launch(self, tensors, floats=()):
        kernel, options = self.triton
        rest = list(self._rest)
        if kernel.arg_names[-1] == "FAST":
            rest[-1] = True
        compiled = kernel.warmup(*tensors, *floats, *rest, grid=self.grid, **options)
        parts = {name: getattr(compiled, name) for name in ("metadata", "src", "asm")}
        handle = types.SimpleNamespace(**parts, function=1)
        # What C++ is told is what the assembly has.
        assert _described(handle, 1, len(tensors) + len(floats), self._fixed) is not None
        made.append(kernel.fn.__name__)
        if os.environ.get("SHOW"):
            show(kernel.fn.__name__, compiled)

    Launch.__call__ = launch
    return made


def show(name, compiled):
    """Registers and spills, by ptxas."""
    from triton import knobs

    tool = knobs.nvidia.ptxas.path
    Path("/tmp/show.ptx").write_text(compiled.asm["ptx"])
    command = [tool, "-v", "-arch=sm_90a", "/tmp/show.ptx", "-o", "/tmp/show.cubin"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stderr.splitlines() if "registers" in line or "spill" in line]
    print(name, compiled.metadata.num_warps, " ".join(line.strip()[14:] for line in lines))


def batch(rows, classes, dtype):
    return torch.randn(rows, classes).to(dtype), torch.randint(0, classes, (rows,))


def step(plan, logits, target, weight, *numbers):
    values, saved = plan.forward(logits, target, weight, *numbers)
    plan.backward(logits, target, weight, *numbers, saved, torch.ones_like(values))


def softmax():
    from expacc.ops.triton.softmax import RowsPlan

    def curve(logits, target, reduction="mean", **settings):
        spec = Spec(**settings)
        plan = RowsPlan(logits, target, None, -100, reduction, torch.float32, spec)
        step(plan, logits, target, None, 0.5, 2.0)

    for classes, dtype in ((10, torch.float32), (1000, torch.float32), (40_000, torch.bfloat16)):
        logits, target = batch(4096, classes, dtype)
        curve(logits, target)
        curve(logits, target, smoothing=0.1)
    for name in CURVES:
        curve(*batch(64, 10, torch.float32), curve=name, shift=0.5)
    for settings in ({"share": 1.0}, {"smoothing": 0.1, "curve": "focal", "scale": 2.0}):
        curve(*batch(64, 100, torch.float32), **settings)
    many = batch(64, 100, torch.float32)[0]
    curve(many, many.softmax(1))
    maps = torch.randn(2, 21, 64, 64)
    labels = torch.randint(0, 21, (2, 64, 64))
    curve(maps, labels)
    curve(maps, labels, "none")
    curve(maps, maps.softmax(1))
    long = torch.randn(2, 40, 8, 8), torch.randint(0, 40, (2, 8, 8))
    for settings in ({"share": 1.0}, {"shift": 1.0}, {"smoothing": 0.1, "shift": 1.0}):
        curve(*long, **settings)
        curve(*batch(8, 5000, torch.float32), **settings)
    curve(*batch(8, 5000, torch.float16), share=1.0)


def exact():
    from expacc.ops.triton.exact_plan import ExactPlan

    maps = torch.randn(2, 21, 64, 64), torch.randint(0, 21, (2, 64, 64))
    for logits, target in (batch(64, 10, torch.float32), batch(64, 300, torch.bfloat16), maps):
        for reduction in ("mean", "none"):
            flags = (None, True, True, False, True)
            plan = ExactPlan(logits, target, None, -100, reduction, torch.float32, *flags)
            step(plan, logits, target, None, 1.0, 5.0)


def soft_exact():
    from expacc.ops.triton.exact_soft_plan import SoftExactPlan

    for logits, target in (batch(64, 10, torch.float32), batch(64, 300, torch.bfloat16)):
        for given, reduction in ((target, "mean"), (logits.float().softmax(1), "none")):
            more = (None, True, 0.1, True)
            plan = SoftExactPlan(logits, given, None, -100, reduction, torch.float32, *more)
            step(plan, logits, given, None, 1.0, 5.0)


def binary():
    from expacc.ops.triton.binary import _Plan

    tensors = (torch.randn(64, 100),) * 4
    for kind, summed in (("mixture", True), ("exact", False)):
        plan = _Plan(tensors, (True, True), kind, summed, 1.0, torch.float32)
        values, _ = plan.forward(tensors, (0.1, 1.0))
        plan.backward(tensors, (0.1, 1.0), None, torch.ones_like(values))


if __name__ == "__main__":
    warnings.simplefilter("error")
    made = compile_only()
    globals()[sys.argv[1]]()
    print(len(made), "kernels compiled:", ", ".join(sorted(set(made))))
