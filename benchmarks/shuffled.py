"""How often does `expacc compare` claim something where the labels say nothing?

    python benchmarks/shuffled.py --studies 200

Real features, labels in another order: no model can do better than always saying one class, and no
loss is better than another. Each study is a small one that goes all the way, from the file to the
answer, with the default losses, folds, repeats and references. Every "beats" is false, and so is
everything that is said to be above the most frequent class. The same command goes on where it
stopped; the results are written after every study.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
from machine import RESULTS, facts
from scipy.stats import binomtest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

from expacc.compare.leaderboard import leaderboard
from expacc.compare.study import Settings, plan_study, run_study
from expacc.data import read_table

MAKERS = (load_iris, load_wine, load_breast_cancer, load_digits)
ROWS, FEATURES = (40, 96), (2, 8)
CLAIMS = {
    "beats": "a loss is said to beat cross entropy",
    "above": "no line says that the losses reach no more than the most frequent class",
    "instead": "a scikit-learn classifier is said to be the better choice",
}


def table(number: int, folder: Path) -> Path:
    """Some rows and columns of a real table, its labels shuffled, as a file."""
    random = np.random.default_rng(number)
    data = MAKERS[number % len(MAKERS)]()
    rows = random.choice(len(data.target), int(random.integers(*ROWS)), replace=False)
    varied = np.flatnonzero(data.data[rows].std(0) > 0)
    columns = random.choice(varied, min(len(varied), int(random.integers(*FEATURES))), False)
    labels = random.permutation(data.target[rows])
    path = folder / f"shuffled-{number}.csv"
    lines = [",".join([*(f"x{place}" for place in columns), "class"])]
    lines += [
        ",".join([*map(repr, map(float, features)), f"c{label}"])
        for features, label in zip(data.data[rows][:, columns], labels, strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def study(number: int, trials: int) -> dict[str, object]:
    """What is claimed of one table."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        read = read_table(table(number, Path(name)))
        plan = plan_study([read], Settings(trials=trials, seed=number))
        record, _ = run_study(plan, Path(name) / "study", workers=0, progress=False)
    answer = leaderboard(record).answer
    return {
        "study": number,
        "rows": read.rows,
        "classes": len(read.target.classes),
        "beats": list(answer.beats),
        "above": not answer.one_class,
        "instead": answer.instead if answer.instead != "majority_class" else "",
        "seconds": round(time.perf_counter() - start, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--trials", type=int, default=8, help="of the search, a loss and fold")
    parser.add_argument("--out", type=Path, default=RESULTS / "error-rates-shuffled.json")
    asked = parser.parse_args()
    found: list[dict[str, object]] = []
    if asked.out.exists():
        before = json.loads(asked.out.read_text())
        found = before["studies"] if before["facts"]["trials"] == asked.trials else []
    known = {one["study"] for one in found}
    about = facts(trials=asked.trials, losses=list(Settings().losses), folds=Settings().folds)
    for number in range(asked.studies):
        if number in known:
            continue
        found.append(study(number, asked.trials))
        rates = {}
        for name, what in CLAIMS.items():
            wrong = sum(bool(one[name]) for one in found)
            high = binomtest(wrong, len(found)).proportion_ci(method="exact").high
            rates[name] = {"what": what, "wrong": wrong, "of": len(found)}
            rates[name] |= {"percent": round(100 * wrong / len(found), 2)}
            rates[name] |= {"at most, 95 %": round(100 * float(high), 2)}
        asked.out.write_text(
            json.dumps({"facts": about, "false": rates, "studies": found}, indent=1)
        )
        print(number, {name: f"{one['wrong']}/{one['of']}" for name, one in rates.items()})


if __name__ == "__main__":
    main()
