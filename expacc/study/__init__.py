"""Where `runner`, `stats`, `report` and `compare` were once: old import paths, for one release."""

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType

_HOMES = {
    "runner.rows": "rows columns",
    "runner.store_tables": "digests store_opening",
    "runner.items": "items shared",
    "runner.store": "store",
    "runner.store_files": "store_files store_refusals lock",
    "runner.local": "local",
    "runner.cluster": "cluster",
    "runner.boot": "boot keeper",
    "runner.engine": "engine interrupt",
    "stats.p_values": "adjustment sign_flips sensitivity score_table",
    "stats.one_table": "one_table row_tests",
    "stats.rank_tests": "rank_tests",
    "stats.many_tables": "many_tables",
    "stats": "stats",
    "report.loss_names": "loss_names palette",
    "report.words": "plain_text",
    "report.figures": "figures figures_many",
    "report.html": "sheet",
    "compare.answer": "answer methods",
    "compare.record": "record record_checks protocol",
    "compare.leaderboard_table": "row_scores leaderboard_table",
    "compare.leaderboard": "leaderboard",
    "compare.suspects": "suspects",
    "compare.figures_scores": "figures_folds figures_tables",
    "compare.figures_runs": "figures_training figures_predictions",
    "compare.page": "report",
    "compare.leaderboard and expacc.compare.suspects": "report_files",
    "compare.page_tables": "report_tables terminal",
    "compare.serialize": "parcel",
    "compare.training_budget": "space cost pace",
    "compare.work": "selection",
    "compare.work and expacc.compare.serialize": "work",
    "compare.study": "compare forecast",
    "compare.deploy": "deploy predictions",
}
_MOVED = {old: new for new, names in _HOMES.items() for old in names.split()}


class _Moved(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module by its old name, and says the new one."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.removeprefix(f"{__name__}.") in _MOVED:
            return importlib.machinery.ModuleSpec(fullname, self)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        new = f"expacc.{_MOVED[module.__name__.removeprefix(f'{__name__}.')]}"
        warnings.warn(
            f"{module.__name__} is {new} now; the old name goes with the next release.",
            DeprecationWarning,
            stacklevel=2,
        )
        there = [importlib.import_module(name) for name in new.split(" and ")]
        module.__doc__ = there[0].__doc__
        names = [name for one in there for name in getattr(one, "__all__", vars(one))]
        module.__all__ = [name for name in names if name[0] != "_"]  # type: ignore[attr-defined]

        def find(name: str) -> object:
            for one in there:
                if hasattr(one, name):
                    return getattr(one, name)
            raise AttributeError(f"{new} has no {name!r}")

        module.__getattr__ = find  # type: ignore[method-assign]


sys.meta_path.append(_Moved())
