"""The command that fetches data sets from their official addresses."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from expacc.cli.screen import Screen, shell, shown_path
from expacc.plain import UsageError


def get(name: str | None, to: Path, screen: Screen) -> None:
    """Fetch a data set, or list them all, and say what to do with it."""
    from expacc.data.download import get as fetch
    from expacc.data.official import OFFICIAL

    if name is None:
        for key, one in OFFICIAL.items():
            size = sum(file.bytes for file in one.files)
            screen.say(f"{key:14} {size / 1e6:4.0f} MB  {one.what}")
        screen.give({key: one.what for key, one in OFFICIAL.items()})
        return
    if name not in OFFICIAL:
        raise UsageError(f"NAME must be one of {', '.join(OFFICIAL)}; got {name!r:.60}.")
    screen.remark(OFFICIAL[name].what)
    with _bar(screen) as bar:
        folder, notes = fetch(OFFICIAL[name], to, _teller(bar))
    for note in notes:
        screen.remark(note, "dim")
    screen.say(f"Data: {shown_path(folder)}", "bold")
    if name == "uci121":
        screen.say(f"Next: {shell(['expacc', 'reproduce', 'mixing-uci', '--data', to])}")
    else:
        screen.say(f"Next: {shell(['expacc', 'compare', shown_path(folder)])}")
    screen.give({"folder": str(folder), "notes": notes})


def _bar(screen: Screen) -> Any:
    if not screen.progress:
        return nullcontext()
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    return Progress(*columns, console=screen.console(error=True))


def _teller(bar: Any) -> Any:
    """What the download tells of itself; a task of the bar for each file."""
    if bar is None:
        return None
    tasks: dict[str, Any] = {}

    def tell(name: str, have: int, whole: int) -> None:
        if name not in tasks:
            tasks[name] = bar.add_task(name, total=whole)
        bar.update(tasks[name], completed=have, total=whole)

    return tell
