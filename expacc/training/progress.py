"""How far a job is: a bar on a terminal, lines in a log, nothing for a job of a moment.

Everything goes to stderr, so that stdout holds results only.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

PATIENCE = 2.0  # seconds before anything appears
REFRESH = 0.2  # seconds between two pictures of the bar
LINE_SHARE, LINE_SECONDS = 0.1, 30.0  # a log gets a line at each tenth, and at least this often


class Bar:
    """Where a job reports to; this one keeps the account and shows nothing.

    Attributes:
        done: units of work that are done.
        total: units of work in all.
        title: what the job does at the moment.
        table: lines of text that a terminal shows under the bar.
    """

    def __init__(
        self, total: int, title: str, done: float = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.total, self.title, self.done = total, title, done
        self.fields: dict[str, float | str] = {}
        self.table: Sequence[Sequence[str]] = ()
        self._clock = clock
        self._start = clock()
        self._before = done  # done when this process began: says nothing about its speed

    def due(self, done: float) -> bool:
        """Whether a report of ``done`` units would be shown now: ask before costly readings."""
        return False

    def update(self, done: float, title: str | None = None, **fields: float | str) -> None:
        """Report ``done`` units of work and what is known so far, as accuracy=0.93.

        Without a title or fields the last ones stay.
        """
        self.done = done
        self.title = title or self.title
        self.fields = fields or self.fields

    def close(self) -> None:
        """End the display."""

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._start

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the end at the speed so far; None before the first unit is done."""
        new = self.done - self._before
        return self.elapsed / new * max(0, self.total - self.done) if new > 0 else None

    def words(self) -> str:
        """The fields as text: ``accuracy 93.0 %, loss 0.1234``."""
        return ", ".join(
            f"{name.replace('_', ' ')} {_number(name, value)}"
            for name, value in self.fields.items()
        )


def _number(name: str, value: float | str) -> str:
    if isinstance(value, str):
        return value
    return percent(value, 1) if name.endswith("accuracy") else f"{value:.4g}"


def percent(share: float, digits: int = 0) -> str:
    """A share as text.

    >>> percent(0.925, 1)
    '92.5 %'
    """
    return f"{share * 100:.{digits}f} %"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"


class _Lines(Bar):
    """A line of text at each tenth of the work, and every half minute."""

    def __init__(self, stream: TextIO, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stream = stream
        self._line_at, self._line_done = self._start, self.done

    def due(self, done: float) -> bool:
        if self.elapsed < PATIENCE or done >= self.total:  # the last line comes at the close
            return False
        tenth = done - self._line_done >= LINE_SHARE * self.total
        return (
            self._line_at == self._start or tenth or self._clock() - self._line_at >= LINE_SECONDS
        )

    def update(self, done: float, title: str | None = None, **fields: float | str) -> None:
        super().update(done, title, **fields)
        if self.due(done):
            self._print(f"{_duration(self.seconds_left)} left")

    def close(self) -> None:
        if self.elapsed >= PATIENCE:
            self._print(f"after {_duration(self.elapsed)}")

    def _print(self, timing: str) -> None:
        self._line_at, self._line_done = self._clock(), self.done
        parts = [
            percent(self.done / max(1, self.total)),
            *([self.words()] if self.fields else []),
            timing,
        ]
        print(f"{self.title}: {', '.join(parts)}", file=self._stream, flush=True)


class _Live(Bar):
    """A bar that redraws itself, and a table under it, by Rich."""

    def __init__(self, console: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
        from rich.table import Column, Table
        from rich.text import Text

        bar = self

        class BarAndTable(Progress):
            def get_renderables(self) -> Iterable[Any]:
                """The bar, then its table, as much of it as the terminal has lines for."""
                yield self.make_tasks_table(self.tasks)
                table = Table.grid(padding=(0, 2))
                for line in bar.table[: max(0, console.height - 2)]:
                    table.add_row(*(Text(words) for words in line))
                if bar.table:
                    yield table

        self._progress = BarAndTable(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            BarColumn(bar_width=16),
            TaskProgressColumn(),
            TextColumn("{task.fields[left]} left", table_column=Column(no_wrap=True)),
            # Last, because a narrow terminal cuts here.
            TextColumn(
                "{task.fields[words]}",
                markup=False,
                table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1),
            ),
            console=console,
            auto_refresh=False,  # no thread beside the training
            transient=True,
            expand=True,
        )
        self._task: Any = None
        self._shown_at = self._start

    def due(self, done: float) -> bool:
        return self.elapsed >= PATIENCE and self._clock() - self._shown_at >= REFRESH

    def update(self, done: float, title: str | None = None, **fields: float | str) -> None:
        super().update(done, title, **fields)
        if self.due(done):
            self._show()

    def _show(self) -> None:
        self._shown_at = self._clock()
        new = self._task is None
        if new:
            self._task = self._progress.add_task("", total=self.total, words="", left="")
        self._progress.update(
            self._task,
            completed=self.done,
            description=self.title,
            words=self.words(),
            left=_duration(self.seconds_left),
        )
        if new:
            self._progress.start()
        self._progress.refresh()

    def close(self) -> None:
        if self._task is not None:
            self._progress.stop()


def _make(total: int, title: str, done: int, enabled: bool, clock: Callable[[], float]) -> Bar:
    stream = sys.stderr  # looked up now: it may have been redirected, or closed
    if not enabled or stream is None:
        return Bar(total, title, done, clock)
    if stream.isatty():
        try:
            from rich.console import Console
        except ImportError:
            pass
        else:
            return _Live(Console(file=stream), total, title, done, clock)
    return _Lines(stream, total, title, done, clock)


@contextmanager
def progress_bar(
    *,
    total: int,
    title: str,
    enabled: bool = True,
    done: int = 0,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Bar]:
    """Show progress on stderr while the block runs, from the third second on.

    A terminal gets a bar (with the package rich), a log file a line at each tenth of the work and
    at least every half minute. Reports cost next to nothing; where the numbers in them must be read
    from a device, ask ``bar.due(done)`` first.

    Args:
        total: units of work, such as steps.
        title: what is going on; ``update`` may change it.
        enabled: False shows nothing.
        done: units that an earlier process did.
        clock: seconds, for tests.

    Example:
        >>> with progress_bar(total=3, title="training") as bar:
        ...     for step in range(3):
        ...         bar.update(step + 1, accuracy=0.93, loss=0.25)
        >>> bar.words()
        'accuracy 93.0 %, loss 0.25'
    """
    bar = _make(total, title, done, enabled, clock)
    try:
        yield bar
    finally:
        bar.close()
