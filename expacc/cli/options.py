"""How the work of a command is done: where, by how many, and who is told."""

import shlex
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Option

from expacc.cli.screen import shown_path
from expacc.plain import Report, UsageError

ReportTo = Annotated[
    str | None,
    Option("--report-to", metavar="TRACKER", help="tensorboard, mlflow or wandb."),
]


GpusPerRun = Annotated[
    float | None,
    Option("--gpus-per-run", metavar="X", help="Of a Ray cluster, as 0.25; default: 1."),
]


class Interrupted(Exception):
    """Ctrl-C, with a line on what to do next; the parser would swallow a KeyboardInterrupt."""


@dataclass(frozen=True)
class RunOptions:
    """How the work is done, which does not change its results.

    Args:
        out: folder of the study; None for the default.
        engine: 'local' or 'ray'.
        workers: None for all cores.
        address: of a Ray cluster.
        device: of the training; a small table is too little work for a GPU.
        overwrite: delete the rows that are there.
        dry_run: only say what would run.
        no_run: write the pages of the rows that there are.
        command: as it was typed.
        report_to: the name of a tracker.
        gpus_per_run: of a Ray cluster; 1 if None.
    """

    out: Path | None = None
    engine: str = "local"
    workers: int | None = None
    address: str | None = None
    device: str = "cpu"
    overwrite: bool = False
    dry_run: bool = False
    no_run: bool = False
    command: tuple[str, ...] = ()
    report_to: str | None = None
    gpus_per_run: float | None = None

    @property
    def gpus(self) -> float:
        """The share of a GPU that a run takes on a Ray cluster; 0 for none."""
        share = self.gpus_per_run
        if self.engine != "ray" or self.device == "cpu":
            if share is not None:
                raise UsageError(
                    f"--gpus-per-run must stand beside --engine ray and --device cuda; got "
                    f"{self.engine} and {self.device}."
                )
            return 0.0
        share = 1.0 if share is None else share
        if not (0 < share <= 1 or (share > 1 and share.is_integer())):
            raise UsageError(
                f"--gpus-per-run must be a share in (0, 1] or a whole number; got {share:g}."
            )
        return share

    @property
    def at_once(self) -> int | None:
        """Processes at a time: by default as many as have a core, or their share of a GPU."""
        from expacc.runner.engine import workers_for

        return self.workers if self.gpus else workers_for(self.device, self.workers)

    @contextmanager
    def resumable(self, out: Path) -> Iterator[None]:
        """Within, Ctrl-C becomes a line on how to go on."""
        try:
            yield
        except KeyboardInterrupt:
            again = [word for word in self.command if word != "--overwrite"]
            raise Interrupted(
                f"Stopped; what was finished is saved in {shown_path(out)}. "
                f"To go on: {shlex.join(again) or 'run the same command again'}"
            ) from None

    def tracker(self, out: Path) -> AbstractContextManager[Report | None]:
        """What ``--report-to`` names."""
        if self.report_to is None:
            return nullcontext()
        from expacc.integrations import tracker

        made: AbstractContextManager[Report] = tracker(self.report_to, out / "tensorboard")
        return made
