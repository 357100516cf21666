"""What commands share: what they print, results on standard output and remarks on standard error;
and how their work is done.

Either may go away, as in `expacc compare … | head -1`. Who reads along has no say in the work: what
nobody takes is dropped, and the study goes on, its rows and its report are written. Only a result
that could not be written is an error, at the end.
"""

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from expacc.plain import Report, UsageError, one_line, plain

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 120  # of text that goes to a file or a pipe


@contextlib.contextmanager
def user_input() -> Iterator[None]:
    """Within, a value that must not be is one that the user typed: one line, and no traceback."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error


class Screen:
    """Where a command prints.

    Args:
        quiet: leave remarks out.
        as_json: results are one JSON object; lines for people are left out.
    """

    def __init__(self, *, quiet: bool = False, as_json: bool = False) -> None:
        self.quiet, self.as_json = quiet, as_json

    @property
    def progress(self) -> bool:
        """Whether to show a bar."""
        return not self.quiet

    @property
    def can_ask(self) -> bool:
        """Whether somebody sits before it who can answer."""
        return not self.quiet and not self.as_json and sys.stdin.isatty() and sys.stderr.isatty()

    def ask(self, question: str) -> str:
        """What is typed; nothing at the end of the input."""
        sys.stderr.write(plain(question))
        sys.stderr.flush()
        return sys.stdin.readline().strip()

    def console(self, *, error: bool = False) -> "Console":
        """A Rich console; not a terminal: plain text."""
        from rich.console import Console

        stream = sys.stderr if error else sys.stdout
        width = None if stream.isatty() else WIDTH
        return Console(file=stream, width=width, highlight=False, soft_wrap=False)

    def remark(self, text: str, style: str = "") -> None:
        """A line on what goes on; left out if quiet."""
        if not self.quiet:
            self._line(text, style, error=True)

    def begins(self, text: str) -> None:
        """A line on what may take a while, for somebody who waits: none in a log or a pipe."""
        if sys.stderr.isatty():
            self.remark(text, "dim")

    def warn(self, text: str) -> None:
        """A line that is not left out."""
        self._line(text, "yellow", error=True)

    def say(self, text: str, style: str = "") -> None:
        """A line of the result, for people."""
        if not self.as_json:
            self._line(text, style, error=False)

    def give(self, content: Any) -> None:
        """The result, for programs."""
        if self.as_json:
            text = content if isinstance(content, str) else json.dumps(content, indent=1)
            sys.stdout.write(text.rstrip("\n") + "\n")

    def _line(self, text: str, style: str, *, error: bool) -> None:
        from rich.text import Text

        # Text, not markup: a column may be called [red]. Soft wrap: a path is copied whole.
        console = self.console(error=error)
        console.print(Text(one_line(text), style=style), soft_wrap=True)


def shown_path(path: Path) -> str:
    """Relative where that is shorter."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def shell(words: Sequence[str | Path]) -> str:
    """A command as it would be typed."""
    return shlex.join(map(str, words))


class Stream:
    """A text stream whose writes do not fail.

    Args:
        stream: the one to write to.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.lost = ""  # why something was not written, though somebody was there to take it

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or drop, a text."""
        try:
            self._stream.write(text)
        except OSError as error:
            self._leave(error)
        return len(text)

    def flush(self) -> None:
        """Hand over what is in the buffer, or drop it."""
        try:
            self._stream.flush()
        except OSError as error:
            self._leave(error)

    def _leave(self, error: OSError) -> None:
        """Write to nowhere from now on, and what is in the buffer, which Python flushes at exit."""
        if not isinstance(error, BrokenPipeError):
            self.lost = error.strerror or str(error)
        with contextlib.suppress(OSError):
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())
            self._stream.flush()


@contextlib.contextmanager
def lasting_streams() -> Iterator[Stream]:
    """Both streams in this form while the block runs; the one of the results."""
    _take_places()
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # for one that is closed
        result: Any = Stream(sys.stdout or nowhere)
        remarks: Any = Stream(sys.stderr or nowhere)
        with contextlib.redirect_stdout(result), contextlib.redirect_stderr(remarks):
            yield result
            remarks.flush()


def _take_places() -> None:
    """Open the three descriptors that a shell may have closed, or a file of ours would get one.

    What a library then prints to standard error would go into that file.
    """
    while True:
        place = os.open(os.devnull, os.O_RDWR)
        if place > 2:
            os.close(place)
            return
        os.set_inheritable(place, True)


# ----------------------------------------------------------------- how the work is done

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

    @contextlib.contextmanager
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

    def tracker(self, out: Path) -> contextlib.AbstractContextManager[Report | None]:
        """What ``--report-to`` names."""
        if self.report_to is None:
            return contextlib.nullcontext()
        from expacc.integrations import tracker

        made: contextlib.AbstractContextManager[Report] = tracker(
            self.report_to, out / "tensorboard"
        )
        return made
