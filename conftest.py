"""Names that every doctest may use, and files that cannot be collected everywhere."""

import importlib.util

import pytest
import torch

# The kernels import Triton, which a machine without a GPU need not have.
_KERNELS = ["expacc/ops/triton/*.py", "expacc/ops/native/launch.py"]
# These import frameworks, for seconds, in every worker: their tests run their examples.
_FRAMEWORKS = ["expacc/integrations/[!_]*.py"]
collect_ignore_glob = _FRAMEWORKS + ([] if importlib.util.find_spec("triton") else _KERNELS)


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace["torch"] = torch
