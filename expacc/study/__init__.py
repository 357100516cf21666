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
    "columns": "runner.columns",
    "digests": "runner.digests",
    "items": "runner.items",
    "shared": "runner.shared",
    "store": "runner.store",
    "store_files": "runner.store_files",
    "store_opening": "runner.store_opening",
    "store_refusals": "runner.store_errors",
    "lock": "runner.lock",
    "local": "runner.local",
    "cluster": "runner.cluster",
    "boot": "runner.boot",
    "keeper": "runner.keeper",
    "engine": "runner.engine",
    "interrupt": "runner.interrupt",
    "adjustment": "stats.adjustment",
    "one_table": "stats.one_table",
    "row_tests": "stats.row_tests",
    "sign_flips": "stats.sign_flips",
    "rank_tests": "stats.rank_tests",
    "many_tables": "stats.many_tables",
    "sensitivity": "stats.sensitivity",
    "score_table": "stats.score_table",
    "stats": "stats",
    "loss_names": "report.loss_names",
    "palette": "report.palette",
    "plain_text": "report.words",
    "figures": "report.figures",
    "figures_many": "report.figures_many",
    "sheet": "report.html",
    "answer": "compare.answer",
    "record": "compare.record",
    "record_checks": "compare.record_checks",
    "protocol": "compare.protocol",
    "row_scores": "compare.row_scores",
    "leaderboard": "compare.leaderboard",
    "leaderboard_table": "compare.leaderboard_table",
    "methods": "compare.methods",
    "suspects": "compare.suspects",
    "figures_folds": "compare.figures_folds",
    "figures_tables": "compare.figures_tables",
    "figures_training": "compare.figures_training",
    "figures_predictions": "compare.figures_predictions",
    "report": "compare.page",
    "report_files": "compare.page_files",
    "report_tables": "compare.page_tables",
    "terminal": "compare.terminal",
    "parcel": "compare.serialize",
    "space": "compare.search_space",
    "selection": "compare.selection",
    "work": "compare.work",
    "cost": "compare.runtime_model",
    "pace": "compare.training_budget",
    "compare": "compare.study",
    "forecast": "compare.forecast",
    "deploy": "compare.deploy",
    "predictions": "compare.predictions",
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
        there = importlib.import_module(new)
        module.__doc__ = there.__doc__
        module.__all__ = getattr(there, "__all__", [])  # type: ignore[attr-defined]
        module.__getattr__ = lambda name: getattr(there, name)  # type: ignore[method-assign]


sys.meta_path.append(_Moved())
