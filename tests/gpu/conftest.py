"""A share of the tests: compiling kernels is the processor's work, and it has many cores.

``EXPACC_SHARE=2/8`` is the second of eight shares; ``make test-gpu`` runs all of them side by side.
Each notes what became of every test in the folder ``EXPACC_NOTES``, of which ``python conftest.py
FOLDER`` makes one line a file.
"""

import collections
import os
import sys
from pathlib import Path


def pytest_collection_modifyitems(config, items):
    share = os.environ.get("EXPACC_SHARE")
    if share:
        place, shares = map(int, share.split("/"))
        mine = items[place - 1 :: shares]
        config.hook.pytest_deselected(items=[item for item in items if item not in mine])
        items[:] = mine


def pytest_runtest_logreport(report):
    folder = os.environ.get("EXPACC_NOTES")
    if folder and (report.when == "call" or not report.passed):
        file, _, name = report.nodeid.partition("::")
        share = os.environ.get("EXPACC_SHARE", "1").partition("/")[0]
        line = f"{file}\t{report.outcome}\t{report.duration:.2f}\t{name}\n"
        with Path(folder, f"share-{share}").open("a") as notes:
            notes.write(line)


def summarize(folder):
    """Print one line a file, and the names of what failed; returns whether anything did."""
    files = collections.defaultdict(collections.Counter)
    failed = []
    for share in sorted(Path(folder).iterdir()):
        for line in share.read_text().splitlines():
            file, outcome, seconds, name = line.split("\t", 3)
            files[file][outcome] += 1
            files[file]["seconds"] += float(seconds)
            if outcome == "failed":
                failed.append(f"{file}::{name}")
    for file, counts in sorted(files.items()):
        listed = ", ".join(f"{counts[name]} {name}" for name in ("passed", "failed", "skipped"))
        print(f"{file}: {listed}; {counts['seconds']:.0f} s in all processes")
    print(*failed, sep="\n", end="\n" if failed else "")
    return bool(failed) or not files


if __name__ == "__main__":
    sys.exit(summarize(sys.argv[1]))
