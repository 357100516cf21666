"""How often a study of networks makes a false claim: ``expacc.stats.paired_runs`` and Holm.

Losses that are equally good by construction are compared with cross entropy; a study is wrong if it
says of any that it beats cross entropy or is beaten. In the simulation a row is right if
``base + row + seed + chance > 0``, with a deviation for what a loss does to a row in every run, for
what a seed does to every row, and for chance in a single run and row. With ``--search`` each loss
first chooses one of three learning rates, two of which are worse, on held-out rows of one run, as
``compare_networks`` does. ``--real`` trains small networks on digits instead: cross entropy against
itself from other seeds, with new training and test rows in every study.

    python benchmarks/error_rates_runs.py                 the table of docs/statistics.md
    python benchmarks/error_rates_runs.py --real 500      real networks, all cores
"""

import argparse
import functools
import itertools
import json
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from numpy.typing import NDArray

from expacc.compare.networks_work import CLEARLY
from expacc.stats import adjust, paired_runs

LEVEL = 0.05
BASE = 1.0  # about 84 % are right
RATES = np.array([0.0, -0.05, -0.15])  # what the learning rates do to every row


def study(
    random: np.random.Generator,
    *,
    seeds: int,
    rows: int,
    losses: int,
    row: float,
    seed: float,
    chance: float = 0.5,
    search: bool = False,
    gain: float = 0.0,
) -> NDArray[np.float64]:
    """Adjusted p-values of losses that differ from cross entropy by ``gain`` and chance alone."""

    def right(base: NDArray, extra: NDArray, runs: int) -> NDArray:
        """(losses + 1, runs, rows)"""
        shape = losses + 1, runs, len(base)
        noise = random.normal(0, row, (losses + 1, 1, len(base)))
        noise = noise + random.normal(0, seed, (losses + 1, runs, 1))
        return base + extra[:, None, None] + noise + random.normal(0, chance, shape) > 0

    extra = np.zeros(losses + 1)
    extra[1:] += gain
    chosen = [0] * (losses + 1)
    if search:
        held = BASE + random.normal(0, 1, rows)
        tried = [right(held, extra + rate, 1)[:, 0] for rate in RATES]
        chosen = [_chosen([one[k] for one in tried]) for k in range(losses + 1)]
        extra = extra + RATES[chosen]
    found = right(BASE + random.normal(0, 1, rows), extra, seeds).astype(np.float64)
    tests = [
        paired_runs(found[k] - found[0], chosen_apart=chosen[k] != chosen[0])
        for k in range(1, losses + 1)
    ]
    return adjust([test.p_value for test in tests])


def _chosen(tried: list[NDArray]) -> int:
    """The rule of ``expacc.compare.trials.best_trial``: the default, unless another is clearly
    better."""
    best = int(np.argmax([one.mean() for one in tried]))
    gained = int((tried[best] & ~tried[0]).sum())
    lost = int((tried[0] & ~tried[best]).sum())
    return best if gained - lost > CLEARLY * (gained + lost) ** 0.5 + 0.5 else 0


def share_of_claims(studies: int, first: int = 0, **how: float) -> float:
    """The share of studies that claim anything."""
    wrong = sum(
        bool((study(np.random.default_rng(first + k), **how) <= LEVEL).any())  # type: ignore[arg-type]
        for k in range(studies)
    )
    return wrong / studies


@functools.cache
def _digits() -> tuple[NDArray, NDArray]:
    from sklearn.datasets import load_digits

    pictures, labels = load_digits(return_X_y=True)
    return pictures.astype(np.float32) / 16, labels


def real(number: int, seeds: int = 5, noise: float = 0.3) -> float:
    """The p-value of cross entropy against itself, on new rows of digits."""
    import torch

    from expacc.data import flip_labels
    from expacc.training import ResidentData, fit

    torch.set_num_threads(1)
    pictures, labels = _digits()
    order = np.random.default_rng(number).permutation(len(labels))
    train, test = order[:300], order[300:]
    taught, _ = flip_labels(labels[train], noise, classes=10, seed=number)
    x, y = torch.from_numpy(pictures[train]), torch.from_numpy(taught)

    def run(seed: int) -> NDArray:
        torch.manual_seed(seed)
        model = torch.nn.Sequential(
            torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
        )
        data = ResidentData(x, y, batch_size=30, shuffle=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        fit(
            model, data, torch.nn.functional.cross_entropy, epochs=10, optimizer=optimizer,
            device="cpu", seed=seed, progress=False,
        )  # fmt: skip
        with torch.no_grad():
            said = model(torch.from_numpy(pictures[test])).argmax(1).numpy()
        return np.asarray(said == labels[test], np.float64)

    gains = [run(2 * k) - run(2 * k + 1) for k in range(seeds)]
    return paired_runs(np.array(gains)).p_value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--studies", type=int, default=2000)
    parser.add_argument("--real", type=int, default=0, help="so many studies of real networks")
    parser.add_argument("--seeds", type=int, default=5, help="of real networks")
    parser.add_argument("--workers", type=int, default=None)
    asked = parser.parse_args()
    with ProcessPoolExecutor(asked.workers) as pool:
        if asked.real:
            p_values = list(pool.map(functools.partial(real, seeds=asked.seeds), range(asked.real)))
            shares = {str(at): float(np.mean(np.array(p_values) <= at)) for at in (0.05, 0.2, 0.5)}
            print(json.dumps({"real": asked.real, "seeds": asked.seeds, "p at most": shares}))
            return
        cases = [
            {"seeds": seeds, "rows": rows, "losses": losses, "row": row, "seed": seed, "search": s}
            for seeds, rows, losses in itertools.product((3, 5, 10), (1000,), (1, 5))
            for row, seed in ((0.0, 0.0), (0.3, 0.0), (0.0, 0.05), (0.0, 0.3), (0.3, 0.1))
            for s in (False, True)
        ]
        jobs = [pool.submit(share_of_claims, asked.studies, **case) for case in cases]  # type: ignore[arg-type]
        for case, job in zip(cases, jobs, strict=True):
            print(json.dumps({**case, "claims": job.result()}), flush=True)


if __name__ == "__main__":
    main()
