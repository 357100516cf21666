"""The command that fetches data sets from their official addresses."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from expacc.cli.options import Debug, Json, Quiet
from expacc.cli.screen import Screen, shell, shown_path
from expacc.plain import UsageError

EPILOG = """\b
Examples:
  expacc get cifar10 --to data
  expacc compare data/cifar-10-batches-bin
The same command again goes on where it broke off. A proxy is taken from
HTTPS_PROXY and HTTP_PROXY."""


def get(
    name: Annotated[
        str | None, Argument(metavar="NAME", help="A data set; without it, all are listed.")
    ] = None,
    to: Annotated[Path, Option("--to", metavar="FOLDER", help="Default: data.")] = Path("data"),
    quiet: Quiet = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Fetch cifar10, mnist … from the official address, checked by a digest."""
    from expacc.data.download import get as fetch
    from expacc.data.official import OFFICIAL

    screen = Screen(quiet=quiet, as_json=as_json)
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
