"""Every curve, every kind of target and every layout by the kernels, in Triton's interpreter."""

import importlib.util
import itertools
import os
import subprocess
import sys
import warnings
from pathlib import Path

import kernel_cases
import pytest
from kernel_cases import check


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize(
    "group",
    [
        *("curves", "soft", "maps", "soft_maps", "exact_maps", "binaries", "some_soft_exact"),
        pytest.param("soft_exact", marks=pytest.mark.slow),
    ],
)
def test_interpreted(group):
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__)), group]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def as_if_on_a_gpu():
    from expacc import contract
    from expacc.functional import binary, normalized, softmax
    from expacc.ops import dispatch
    from expacc.ops.triton import node

    for module in (contract, binary, normalized, softmax, dispatch, node):
        module.is_plain_batch = lambda *_: True
    from expacc.ops.triton import binary as kernels

    dispatch.tried = kernels.tried = lambda plan, *_: plan  # an error is one


def curves():
    for case in kernel_cases.curve_cases():
        check(case)


def soft():
    for case in kernel_cases.soft_cases():
        check(case)


def maps():
    from expacc.functional import leaky_expected_error, normalized_cross_entropy

    for loss in (leaky_expected_error, normalized_cross_entropy):
        for case in kernel_cases.map_cases(loss):
            check(case)


def soft_maps():
    for case in kernel_cases.soft_map_cases():
        check(case)


def exact_maps():
    from expacc.functional import exact_error

    for case in kernel_cases.map_cases(exact_error, long=True):
        check(case)


def soft_exact():
    for case in kernel_cases.soft_exact_cases():
        check(case, tolerance=1e-5)


def some_soft_exact():
    for case in itertools.islice(kernel_cases.soft_exact_cases(), 3):
        check(case, tolerance=1e-5)


def binaries():
    for case in kernel_cases.binary_cases():
        check(case)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # NumPy's, about 0/0 and log 0 that are then masked
    from test_kernels_interpreted import mend_interpreter

    mend_interpreter()
    as_if_on_a_gpu()
    globals()[sys.argv[1]]()
