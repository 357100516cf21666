"""The tabular EXACT recipes cut into work items, a method on a table each; quick parts first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from expacc.compare.serialize import pack_splits, pack_table
from expacc.data import Table
from expacc.recipes import sources
from expacc.recipes.exact.data import FOLDER, files_of, read_tables, split_of
from expacc.recipes.exact.methods import NOISE_METHODS, SAMPLED
from expacc.recipes.exact.paper import METHODS, SEEDS, TABLE_8, TABLES, Settings
from expacc.recipes.exact.protocol import BATCH, EPOCHS, STEPS
from expacc.recipes.exact.search import RATES, settings_of
from expacc.recipes.exact.work import failed_rows
from expacc.recipes.recipe import RecipeOptions, Work
from expacc.runner.items import WorkItem

__all__ = ["plan_ablation", "plan_noise", "plan_normalizer", "plan_uci"]

TRIALS, QUICK_TRIALS = 50, 6
NOISE_TRIALS, NOISE_SEEDS = 16, 3  # of the noise recipe's search
# What is searched there; logistic and Laplace noise take too long to be tuned.
TUNED = (
    "cross_entropy",
    "exact: normal",
    "exact: gumbel",
    "exact: normal log",
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


@dataclass(frozen=True)
class _Data:
    """The tables at hand, and what all items share."""

    ask: RecipeOptions
    tables: dict[str, Table]
    missing: tuple[str, ...]
    splits: int = 1

    @property
    def names(self) -> list[str]:
        return sorted(self.tables, key=lambda name: -_LONG.get(name, 1.0))

    def folds(self, name: str) -> list[str]:
        if self.tables[name].given:
            return [split_of(self.tables[name]).name]
        return [split_of(self.tables[name], state).name for state in range(self.splits)]

    def item(
        self,
        part: str,
        method: str,
        table: str,
        settings: Sequence[Settings],
        *,
        folds: Sequence[str],
        seeds: int,
    ) -> WorkItem:
        payload = {
            "part": part,
            "method": method,
            "table": table,
            "settings": [vars(one) for one in settings],
            "folds": list(folds),
            "seeds": seeds,
            "seed": self.ask.seed,
            "device": self.ask.device,
        }
        finals = len(folds) * seeds
        runs = finals + len(settings) if part == "search" else finals * len(settings)
        return WorkItem(f"{part}|{method}|{table}", payload, runs)

    def work(self, items: Iterable[WorkItem], **facts: Any) -> Work:
        shared: dict[str, Any] = {}
        tables = {}
        for name, table in self.tables.items():
            states = range(1 if table.given else self.splits)
            splits = [split_of(table, state) for state in states]
            shared |= pack_table(table) | pack_splits(name, splits)
            tables[name] = {
                "rows": table.rows,
                "columns": len(table.columns),
                "classes": len(table.target.classes),
                "train_rows": len(splits[0].train),
                "test_rows": len(splits[0].test),
                "given": bool(table.given),
            }
        return Work(
            items=tuple(items),
            executor="expacc.recipes.exact.work:execute",
            failed_rows=failed_rows,
            shared=shared,
            missing=self.missing,
            facts={
                "tables": {name: tables[name] for name in TABLES if name in tables},
                "absent": [name for name in TABLES if name not in tables],
                "quick": self.ask.quick,
                "epochs": EPOCHS,
                "steps": STEPS,
                "batch": BATCH,
                **facts,
            },
        )


def _data(ask: RecipeOptions, splits: int = 1) -> _Data:
    folder = sources.need(ask.data, FOLDER)
    tables: dict[str, Table] = {}
    missing: list[str] = []
    if not ask.quick:
        tables, missing = read_tables(folder)
    for name in QUICK_TABLES if ask.quick else ():
        if len(tables) < QUICK_COUNT:
            tables |= read_tables(folder, [name])[0]
    if not tables:
        raise ValueError(
            missing[0] if missing else sources.missing(FOLDER, *files_of(QUICK_TABLES[0]))
        )
    return _Data(ask, tables, tuple(missing), splits)


def _seeds(ask: RecipeOptions) -> int:
    return ask.seeds or (QUICK_SEEDS if ask.quick else SEEDS)


def plan_uci(ask: RecipeOptions) -> Work:
    """Table 8's numbers, then other splits and controls, then the clean search."""
    splits = QUICK_SPLITS if ask.quick else SPLITS
    data, seeds = _data(ask, 1 + splits), _seeds(ask)
    trials = QUICK_TRIALS if ask.quick else TRIALS
    first, others, controls, found = [], [], [], []
    for name in data.names:
        (fold, *more), classes = data.folds(name), len(data.tables[name].target.classes)
        for method in METHODS:
            printed, count = TABLE_8[method][name], 1 if method == _LR else seeds
            first.append(data.item("given", method, name, [printed], folds=[fold], seeds=count))
            tried = settings_of(method, trials, ask.seed, name)
            found.append(data.item("search", method, name, tried, folds=[fold], seeds=count))
            if more:
                others.append(data.item("splits", method, name, [printed], folds=more, seeds=1))
            if method != _LR:
                decayed = [replace(printed, regularization=DECAY)]
                controls.append(
                    data.item("decay", method, name, decayed, folds=[fold], seeds=seeds)
                )
        if classes > 2:  # with two there is nothing to sample
            printed, few = TABLE_8["exact"][name], min(seeds, CONTROL_SEEDS)
            controls.append(data.item("sampled", SAMPLED, name, [printed], folds=[fold], seeds=few))
    items = [*first, *others, *controls, *found]
    return data.work(items, seeds=seeds, trials=trials, splits=splits, decay=DECAY)


def plan_ablation(ask: RecipeOptions) -> Work:
    """EXACT whole, without each of its parts, and by other readings of 'without'."""
    data, seeds = _data(ask), _seeds(ask)
    whole = [f"exact: {part}" for part in ABLATED]
    items = []
    for method in ("exact", *whole, *(f"exact: {part}" for part in OTHERWISE)):
        for name in data.names:
            printed, folds = TABLE_8["exact"][name], data.folds(name)
            items.append(data.item("given", method, name, [printed], folds=folds, seeds=seeds))
    for method in ("exact", *whole):
        for name in data.names:
            decayed = [replace(TABLE_8["exact"][name], regularization=DECAY)]
            folds = data.folds(name)
            items.append(data.item("decay", method, name, decayed, folds=folds, seeds=seeds))
    return data.work(items, seeds=seeds, decay=DECAY)


def plan_normalizer(ask: RecipeOptions) -> Work:
    """Cross entropy and hinge with clipping and with the normaliser; then its rate chosen."""
    data, seeds = _data(ask), _seeds(ask)
    items, chosen, swept = [], [], []
    for loss in ("cross_entropy", "hinge"):
        for name in data.names:
            printed, folds = TABLE_8[loss][name], data.folds(name)
            for method in (loss, f"{loss}: normaliser"):
                items.append(data.item("given", method, name, [printed], folds=folds, seeds=seeds))
            rates = RATES[1::2] if ask.quick else RATES
            tried = [replace(printed, learning_rate=rate, clip=None) for rate in rates]
            method = f"{loss}: normaliser"
            chosen.append(data.item("search", method, name, tried, folds=folds, seeds=seeds))
            few = min(seeds, CONTROL_SEEDS)
            swept.append(data.item("rates", method, name, tried, folds=folds, seeds=few))
    return data.work([*items, *chosen, *swept], seeds=seeds, rates=list(RATES))


def plan_noise(ask: RecipeOptions) -> Work:
    """Every noise with Table 8's numbers on several splits; then with numbers of its own."""
    splits = _seeds(ask)
    data = _data(ask, splits)
    methods = ["cross_entropy", *NOISE_METHODS]
    trials = QUICK_TRIALS if ask.quick else NOISE_TRIALS
    finals = min(splits, QUICK_SEEDS if ask.quick else NOISE_SEEDS)
    items, found = [], []
    for name in data.names:
        folds = data.folds(name)
        for method in methods:
            printed = TABLE_8[method.partition(":")[0]][name]
            seeds = splits if len(folds) == 1 else 1
            items.append(data.item("given", method, name, [printed], folds=folds, seeds=seeds))
            if method in TUNED:
                own = settings_of(method, trials, ask.seed, name)
                found.append(data.item("search", method, name, own, folds=folds[:1], seeds=finals))
    return data.work([*items, *found], splits=splits, seeds=finals, trials=trials)
