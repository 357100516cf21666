"""Every kernel once under NVIDIA's memory checker: no access out of bounds."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

CHECKER = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"


def run_every_kernel():
    from expacc.functional import (
        exact_error,
        linear_mixed_expected_error,
        mixed_expected_error,
    )
    from expacc.ops.dispatch import BY_DEFAULT
    from expacc.ops.triton.exact_plan import orthant_forward

    for family in BY_DEFAULT:
        BY_DEFAULT[family] = True

    for rows, classes in ((5, 3), (7, 100), (3, 2500)):
        logits = torch.randn(rows, classes, device="cuda").requires_grad_()
        target = torch.randint(0, classes, (rows,), device="cuda")
        target[0], target[1] = -100, classes + 3
        for loss in (mixed_expected_error, exact_error):
            for reduction in ("none", "mean"):
                loss(logits, target, reduction=reduction).sum().backward()
        orthant_forward(logits.detach() * 40)  # rows that fold, and rows that do not
    features = torch.randn(7, 6, device="cuda").requires_grad_()
    weight = torch.randn(11, 6, device="cuda").requires_grad_()
    target = torch.randint(0, 11, (7,), device="cuda")
    linear_mixed_expected_error(features, weight, None, target, chunk_rows=4).backward()
    torch.cuda.synchronize()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.skipif(not os.path.exists(CHECKER), reason="needs compute-sanitizer")
def test_memcheck():
    pytest.importorskip("triton")
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYTHONPATH": str(root)}
    checker = [CHECKER, "--tool", "memcheck", "--error-exitcode", "9", sys.executable]
    command = [*checker, str(Path(__file__))]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "ERROR SUMMARY: 0 errors" in done.stdout


if __name__ == "__main__":
    run_every_kernel()
