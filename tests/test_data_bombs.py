"""Files that ask for much: refused in a sentence, or read in 2 GB and 20 s.

Each is read by ``expacc read`` in a process of its own; what it used is what the system says.
"""

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("resource")  # not on Windows
from hostile.read_bombs import BOMBS

MEMORY = 2_000_000_000
HERE = Path(__file__).parent
FAST = [key for key, bomb in BOMBS.items() if not bomb.slow]
SLOW = [key for key, bomb in BOMBS.items() if bomb.slow]


@functools.cache
def outcomes(keys: tuple[str, ...], words: tuple[str, ...] = ("read",)) -> dict[str, dict]:
    """How reading each of them ended."""
    done = subprocess.run(
        [sys.executable, str(HERE / "hostile" / "read_bombs.py"), *words],
        input="\n".join(keys),
        env=os.environ | {"PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["key"] for one in found] == list(keys), done.stderr
    return {one["key"]: one for one in found}


def check(one: dict) -> None:
    assert one["made"] == 0, one
    assert one["code"] in (0, 2), one
    assert one["memory"] < MEMORY, one
    if one["code"] == 2:
        assert one["sentence"].startswith("expacc: ")
        assert len(one["sentence"]) > 20


@pytest.mark.parametrize("key", FAST)
def test_a_small_file_takes_little(key):
    check(outcomes(tuple(FAST))[key])


@pytest.mark.slow
@pytest.mark.parametrize("key", SLOW)
def test_a_small_file_takes_little_however_hard_it_tries(key):
    check(outcomes((key,))[key])


@pytest.mark.slow
@pytest.mark.parametrize(
    "key", [key for key in BOMBS if re.search("classes|levels|million rows|GB", key)]
)
def test_planning_a_study_takes_little(key):
    check(outcomes((key,), ("compare", "--dry-run"))[key])


def test_there_are_enough():
    formats = {bomb.file.removesuffix(".gz").rpartition(".")[2] for bomb in BOMBS.values()}
    assert formats >= {"csv", "data", "txt", "arff", "parquet", "xlsx", "xz", "zst"}
    assert len(BOMBS) >= 90
