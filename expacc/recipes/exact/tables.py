"""The tabular EXACT recipes: a method on a table an item, with settings given or searched.

A search is clean: a fifth of the training rows judges its trials, test rows never. Every loss has
as many, with the same learning rates and penalties; numbers of its own come from the same
low-discrepancy sequence. Ranges are those of the paper's Table 8. Trials are trained to the end:
with a quarter of the steps cross entropy and hinge choose as well, EXACT does not.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from expacc.compare.serialize import pack_splits, pack_table
from expacc.data import Table, TrainRows, derive_seed, holdout, require_train_rows
from expacc.recipes.exact import METHODS, SEEDS, TABLE_8, TABLES, Settings
from expacc.recipes.exact.data import FOLDER, files_of, read_tables, split_of
from expacc.recipes.exact.protocol import (
    BATCH,
    EPOCHS,
    NOISE_METHODS,
    SAMPLED,
    STEPS,
    Ready,
    Regression,
    train_method,
)
from expacc.recipes.recipe import RecipeOptions, Work, missing_data, need_data, open_folds
from expacc.recipes.sweep import Ask, Data, Outcome, Place, Sweep
from expacc.runner.items import Shared, WorkItem
from expacc.runner.rows import Kind
from expacc.training import Trained

TRIALS, QUICK_TRIALS = 50, 6
NOISE_TRIALS, NOISE_SEEDS = 16, 3  # of the noise recipe's search
# What is searched there; logistic and Laplace noise take too long to be tuned.
TUNED = (
    *("cross_entropy", "exact: normal", "exact: gumbel", "exact: normal log"),
    "exact: gumbel log",
)
QUICK_SEEDS = 2
SPLITS, QUICK_SPLITS = 10, 2  # further ones, to see what is the paper's own
QUICK_TABLES = ("car", "wine", "balance-scale", "breast-cancer-wisconsin", "annealing")
QUICK_COUNT = 2
DECAY = 1e-4  # of Section 5.4, where Table 8 has 0
CONTROL_SEEDS = 2  # where there is no need for more
ABLATED = ("no margin", "no schedule", "no normaliser")
OTHERWISE = ("sigma 1", "sigma 0.1", "clip 1")  # other readings of those words
_LR = "logistic_regression"
# Seconds that a run takes, about, to begin with the long ones.
_LONG = {"dry-bean": 5.0, "mice-protein": 6.0, "annealing": 3.0, "adult": 1.5}

HELD = 0.2  # of the training rows
RATE, CLIP, MARGIN = (0.01, 5.0), (0.01, 10.0), (0.01, 10.0)
PENALTY, NO_PENALTY = (1e-5, 0.1), 1 / 3  # a third of the trials have none
NO_MARGIN = 0.1  # of the trials of EXACT
RATES = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0)  # those of the authors' script
REGULARIZATIONS = (0.0, 0.0001, 0.001, 0.01, 0.1, 1.0, 10.0)  # its, and Table 8's largest


# -------------------------------------------------------------------------------------- plans


@dataclass(frozen=True)
class _Plan:
    """The tables at hand, and items of them."""

    ask: RecipeOptions
    tables: dict[str, Table]
    missing: tuple[str, ...]
    splits: int

    @classmethod
    def of(cls, ask: RecipeOptions, splits: int = 1) -> "_Plan":
        """Read the tables; of a quick run the first that are there."""
        folder = need_data(ask.data, FOLDER)
        tables: dict[str, Table] = {}
        missing: list[str] = []
        if not ask.quick:
            tables, missing = read_tables(folder)
        for name in QUICK_TABLES if ask.quick else ():
            if len(tables) < QUICK_COUNT:
                tables |= read_tables(folder, [name])[0]
        if not tables:
            absent = missing_data(FOLDER, *files_of(QUICK_TABLES[0]))
            raise ValueError(missing[0] if missing else absent)
        return cls(ask, tables, tuple(missing), splits)

    @property
    def names(self) -> list[str]:
        return sorted(self.tables, key=lambda name: -_LONG.get(name, 1.0))

    @property
    def seeds(self) -> int:
        return self.ask.seeds or (QUICK_SEEDS if self.ask.quick else SEEDS)

    def folds(self, name: str) -> list[str]:
        states = range(1 if self.tables[name].given else self.splits)
        return [split_of(self.tables[name], state).name for state in states]

    def item(
        self, part: str, method: str, table: str, settings: Settings | Sequence[Settings],
        seeds: int, folds: Sequence[str] | None = None,
    ) -> WorkItem:  # fmt: skip
        """A method on a table; on the paper's split, if no folds are named."""
        own = [settings] if isinstance(settings, Settings) else settings
        return SWEEP.item(
            f"{part}|{method}|{table}",
            self.ask,
            table=table,
            folds=self.folds(table)[:1] if folds is None else folds,
            settings={method: [one.record() for one in own]},
            seeds=range(1 if method == _LR else seeds),
            search="retrain" if part == "search" else "none",
            labels={"part": part},
        )

    def work(self, items: Iterable[WorkItem], **facts: Any) -> Work:
        shared: dict[str, Any] = {}
        tables = {}
        for name in [one for one in TABLES if one in self.tables]:
            table = self.tables[name]
            splits = [split_of(table, s) for s in range(1 if table.given else self.splits)]
            shared |= pack_table(table) | pack_splits(name, splits)
            tables[name] = {
                "rows": table.rows,
                "columns": len(table.columns),
                "classes": len(table.target.classes),
                "train_rows": len(splits[0].train),
                "test_rows": len(splits[0].test),
                "given": bool(table.given),
            }
        how = {"quick": self.ask.quick, "epochs": EPOCHS, "steps": STEPS, "batch": BATCH}
        absent = [name for name in TABLES if name not in tables]
        facts = {"tables": tables, "absent": absent, **how, **facts}
        return SWEEP.work(items, shared=shared, missing=self.missing, facts=facts)


def plan_uci(ask: RecipeOptions) -> Work:
    """Table 8's numbers, then other splits and controls, then the clean search."""
    splits = QUICK_SPLITS if ask.quick else SPLITS
    trials = QUICK_TRIALS if ask.quick else TRIALS
    plan = _Plan.of(ask, 1 + splits)
    first, others, controls, found = [], [], [], []
    for name in plan.names:
        for method in METHODS:
            printed, more = TABLE_8[method][name], plan.folds(name)[1:]
            first.append(plan.item("given", method, name, printed, plan.seeds))
            tried = settings_of(method, trials, ask.seed, name)
            found.append(plan.item("search", method, name, tried, plan.seeds))
            if more:
                others.append(plan.item("splits", method, name, printed, 1, more))
            if method != _LR:
                decayed = replace(printed, regularization=DECAY)
                controls.append(plan.item("decay", method, name, decayed, plan.seeds))
        if len(plan.tables[name].target.classes) > 2:  # with two there is nothing to sample
            few = min(plan.seeds, CONTROL_SEEDS)
            controls.append(plan.item("sampled", SAMPLED, name, TABLE_8["exact"][name], few))
    items = [*first, *others, *controls, *found]
    return plan.work(items, seeds=plan.seeds, trials=trials, splits=splits, decay=DECAY)


def plan_ablation(ask: RecipeOptions) -> Work:
    """EXACT whole, without each of its parts, and by other readings of 'without'."""
    plan = _Plan.of(ask)
    parts = ["exact", *(f"exact: {part}" for part in (*ABLATED, *OTHERWISE))]
    items = [
        plan.item("given", method, name, TABLE_8["exact"][name], plan.seeds)
        for method in parts
        for name in plan.names
    ]
    for method in parts[: 1 + len(ABLATED)]:
        for name in plan.names:
            decayed = replace(TABLE_8["exact"][name], regularization=DECAY)
            items.append(plan.item("decay", method, name, decayed, plan.seeds))
    return plan.work(items, seeds=plan.seeds, decay=DECAY)


def plan_normalizer(ask: RecipeOptions) -> Work:
    """Cross entropy and hinge with clipping and with the normaliser; then its rate chosen."""
    plan = _Plan.of(ask)
    items, chosen, swept = [], [], []
    for loss in ("cross_entropy", "hinge"):
        method = f"{loss}: normaliser"
        for name in plan.names:
            printed = TABLE_8[loss][name]
            items += [plan.item("given", one, name, printed, plan.seeds) for one in (loss, method)]
            rates = RATES[1::2] if ask.quick else RATES
            tried = [replace(printed, learning_rate=rate, clip=None) for rate in rates]
            chosen.append(plan.item("search", method, name, tried, plan.seeds))
            few = min(plan.seeds, CONTROL_SEEDS)
            swept.append(plan.item("rates", method, name, tried, few))
    return plan.work([*items, *chosen, *swept], seeds=plan.seeds, rates=list(RATES))


def plan_noise(ask: RecipeOptions) -> Work:
    """Every noise with Table 8's numbers on several splits; then with numbers of its own."""
    splits = _Plan(ask, {}, (), 1).seeds
    plan = _Plan.of(ask, splits)
    trials = QUICK_TRIALS if ask.quick else NOISE_TRIALS
    finals = min(splits, QUICK_SEEDS if ask.quick else NOISE_SEEDS)
    items, found = [], []
    for name in plan.names:
        folds = plan.folds(name)
        seeds = splits if len(folds) == 1 else 1
        for method in ("cross_entropy", *NOISE_METHODS):
            printed = TABLE_8[method.partition(":")[0]][name]
            items.append(plan.item("given", method, name, printed, seeds, folds))
            if method in TUNED:
                own = settings_of(method, trials, ask.seed, name)
                found.append(plan.item("search", method, name, own, finals))
    return plan.work([*items, *found], splits=splits, seeds=finals, trials=trials)


# ------------------------------------------------------------------------------------- trials


def settings_of(method: str, count: int, seed: int, name: str) -> list[Settings]:
    """The trials of a method; ``seed`` and ``name`` (of the table) decide the draws."""
    if method == _LR:  # one number: its whole range
        return [Settings(regularization=penalty) for penalty in REGULARIZATIONS[:count]]
    from scipy.stats import qmc

    points = qmc.Halton(d=4, rng=derive_seed(seed, name, "search")).random(count)
    loss = method.partition(":")[0]
    found = []
    for rate, penalty, clip, margin in points.tolist():
        own = None
        if loss in ("hinge", "exact") and not (loss == "exact" and margin < NO_MARGIN):
            own = _between(margin if loss == "hinge" else _beyond(margin, NO_MARGIN), *MARGIN)
        found.append(
            Settings(
                _between(rate, *RATE),
                None if loss == "exact" else _between(clip, *CLIP),
                own,
                0.0 if penalty < NO_PENALTY else _between(_beyond(penalty, NO_PENALTY), *PENALTY),
            )
        )
    return found


def _between(share: float, low: float, high: float) -> float:
    """By equal ratios, to three digits."""
    return float(f"{low * (high / low) ** share:.3g}")


def _beyond(share: float, cut: float) -> float:
    return (share - cut) / (1 - cut)


# -------------------------------------------------------------------------------------- items


def _open(ask: Ask, shared: Shared, names: Sequence[str]) -> list[Data]:
    found = []
    for folds in open_folds(ask, shared, names, "float64"):
        stacked = Ready.stacked([Ready.of(train) for train, _ in folds.values()])
        ready = dict(zip(folds, stacked, strict=True))
        tests = {fold: test for fold, (_, test) in folds.items()}
        trains = {fold: train for fold, (train, _) in folds.items()}
        own = {fold: one.own for fold, one in ready.items()}
        found.append(Data(stacked[0].rows, own, tests, more=(ready, trains)))
    return found


def _train(ask: Ask, data: Data, places: Sequence[Place], trials: bool) -> list[Outcome]:
    """Train on all training rows of a fold; trials on four fifths of them, judged by the fifth."""
    if not places:
        return []
    start = time.process_time()
    ready, trains = data.more
    if trials:
        ready = {place.fold: _without_fifth(ask, trains[place.fold]) for place in places[:1]}
    method, settings = places[0].method, [Settings(**place.setting) for place in places]
    models: list[Trained | Regression | None]
    failures: list[int | None] = [None] * len(places)
    if method == _LR:
        both = zip(places, settings, strict=True)
        models = [Regression(ready[place.fold], one.regularization) for place, one in both]
    else:
        # The same for every method: the same weights at the start, the same order of rows.
        many = ask["search"] == "none" and len(ask["settings"][method]) > 1
        keys = [
            f"trial {p.number}" if trials
            else f"{p.fold}|{p.number}|{p.seed}" if many
            else f"{p.fold}|{p.seed}"
            for p in places
        ]  # fmt: skip
        runs = {
            key: (ready[place.fold], own)
            for key, place, own in zip(keys, places, settings, strict=True)
        }
        results = train_method(method, runs, ask["seed"], device=ask["device"])
        models = [result.model for result in results]
        failures = [result.failed_step for result in results]
    each = (time.process_time() - start) / len(places)
    found = []
    for place, model, step in zip(places, models, failures, strict=True):
        if model is None:
            found.append(Outcome(failure=f"diverged at step {step}"))
            continue
        rows = ready[place.fold]
        metrics = {"train_accuracy": rows.accuracy(model, rows.own), "cpu_seconds": each}
        if trials:
            metrics["validation_accuracy"] = rows.accuracy(model, rows.held)
        kind: Kind = "outside" if method == _LR else "final"
        found.append(Outcome(metrics, predict=(rows.predict(model),), kind=kind))
    return found


def _without_fifth(ask: Ask, train: TrainRows) -> Ready:
    """Training rows for trials, which nothing else is taken for."""
    train = require_train_rows(train)
    cut = holdout(train.labels, HELD, seed=ask["seed"], name=f"{ask['table']}/validation")
    return Ready.of(train, cut.splits[0].test)


def _judged(outcome: Outcome) -> tuple[float, float]:
    """On the rows held out; of equals on those trained on, of those the first."""
    return outcome.metrics["validation_accuracy"], outcome.metrics["train_accuracy"]


SWEEP = Sweep("expacc.recipes.exact.tables:SWEEP", _open, train=_train, best=_judged)
