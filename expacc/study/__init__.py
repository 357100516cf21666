"""Where `runner`, `stats`, `report` and `compare` were once: old import paths, for one release."""

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType

_MOVED = {
    "rows": "runner.rows",
    "columns": "runner.rows",
    "digests": "runner.store_tables",
    "items": "runner.items",
    "shared": "runner.items",
    "store": "runner.store",
    "store_files": "runner.store_files",
    "store_opening": "runner.store_tables",
    "store_refusals": "runner.store_files",
    "lock": "runner.store_files",
    "local": "runner.local",
    "cluster": "runner.cluster",
    "boot": "runner.boot",
    "keeper": "runner.boot",
    "engine": "runner.engine",
    "interrupt": "runner.engine",
    "adjustment": "stats.p_values",
    "one_table": "stats.one_table",
    "row_tests": "stats.one_table",
    "sign_flips": "stats.p_values",
    "rank_tests": "stats.rank_tests",
    "many_tables": "stats.many_tables",
    "sensitivity": "stats.p_values",
    "score_table": "stats.p_values",
    "stats": "stats",
    "loss_names": "report.loss_names",
    "palette": "report.palette",
    "plain_text": "report.words",
    "figures": "report.figures",
    "figures_many": "report.figures",
    "sheet": "report.html",
    "answer": "compare.answer",
    "record": "compare.record",
    "record_checks": "compare.record",
    "protocol": "compare.record",
    "row_scores": "compare.leaderboard_table",
    "leaderboard": "compare.leaderboard",
    "leaderboard_table": "compare.leaderboard_table",
    "methods": "compare.answer",
    "suspects": "compare.suspects",
    "figures_folds": "compare.figures_scores",
    "figures_tables": "compare.figures_scores",
    "figures_training": "compare.figures_runs",
    "figures_predictions": "compare.figures_runs",
    "report": "compare.page",
    "report_files": "compare.leaderboard and expacc.compare.suspects",
    "report_tables": "compare.page_tables",
    "terminal": "compare.page_tables",
    "parcel": "compare.serialize",
    "space": "compare.training_budget",
    "selection": "compare.work",
    "work": "compare.work and expacc.compare.serialize",
    "cost": "compare.training_budget",
    "pace": "compare.training_budget",
    "compare": "compare.study",
    "forecast": "compare.study",
    "deploy": "compare.deploy",
    "predictions": "compare.deploy",
}


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
        module.__all__ = [name for one in there for name in getattr(one, "__all__", ())]  # type: ignore[attr-defined]

        def find(name: str) -> object:
            for one in there:
                if hasattr(one, name):
                    return getattr(one, name)
            raise AttributeError(f"{new} has no {name!r}")

        module.__getattr__ = find  # type: ignore[method-assign]


sys.meta_path.append(_Moved())
