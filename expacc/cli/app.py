"""The command line: it parses and calls, and holds no logic.

Nothing heavy is imported before a command runs, so that help appears at once.
"""

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from expacc.cli import compare as studies
from expacc.cli import screen as shared
from expacc.cli import tables
from expacc.cli.screen import RunOptions, Screen, lasting_streams, user_input
from expacc.plain import UsageError, one_line

app = typer.Typer(
    name="expacc",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog="Example: expacc compare iris",
)

_typed: list[str] = []  # the command, for the record and for the line that resumes it

# What was typed before, for one release.
RENAMED = {
    "--seeds": "--repeats",
    "--fresh": "--overwrite",
    "--label-noise": "--inject-label-noise",
    "read": "inspect",
}


def _version(asked: bool) -> None:
    if asked:
        from expacc import __version__

        typer.echo(f"expacc {__version__}")
        raise typer.Exit


@app.callback()
def _all(
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Train classifiers for their accuracy, and find out which loss does it best."""


@app.command(
    epilog="""\b
Examples:
  expacc compare iris
  expacc compare cars.csv --target class --inject-label-noise 0,0.05,0.2
  expacc compare photos/
A folder with a folder of pictures for each class is a set of pictures; for it
are --size, --epochs, --pretrained, --mirror (docs/pictures.md).
The same command again goes on where it stopped. All options on how tables are
read (--delimiter, --missing, --drop …): expacc inspect --help."""
)
@tables.reads_tables("target", "header")
def compare(
    data: tables.Data,
    losses: tables.Losses = None,
    model: tables.CompareModel = None,
    hidden: tables.Hidden = None,
    dropout: tables.Dropout = 0.0,
    trials: tables.Trials = None,
    folds: tables.Folds = None,
    repeats: tables.Repeats = None,
    label_noise: tables.LabelNoise = "0",
    references: tables.References = None,
    size: tables.Size = None,
    epochs: tables.Epochs = None,
    pretrained: tables.Pretrained = None,
    mirror: tables.Mirror = False,
    out: tables.out_option("expacc-NAME") = None,  # type: ignore[valid-type]
    engine: tables.Engine = "local",
    workers: tables.Workers = None,
    address: tables.Address = None,
    device: tables.CompareDevice = None,
    seed: tables.Seed = 0,
    overwrite: tables.Overwrite = False,
    dry_run: tables.DryRun = False,
    report_to: shared.ReportTo = None,
    gpus_per_run: shared.GpusPerRun = None,
    as_json: tables.Json = False,
    quiet: tables.Quiet = False,
    debug: tables.Debug = False,
    *,
    reading: Any,
) -> None:
    """Compare losses on tables or pictures: an answer, a leaderboard, a report."""
    from expacc.data.collections import holds_pictures

    how = RunOptions(
        *(out, engine, workers, address, device or "cpu", overwrite, dry_run, False),
        *(tuple(_typed), report_to, gpus_per_run),
    )
    screen = Screen(quiet=quiet, as_json=as_json)
    tables.no_study(data)
    if holds_pictures(data):
        given: dict[str, Any] = {
            flag: True for flag in tables.flags_of(reading) if flag.startswith("--")
        }
        given |= {"--hidden": hidden, "--dropout": dropout or None, "--address": address}
        given |= {"--references": references, "--engine": engine if engine != "local" else None}
        tables.refuse(given, "tables")
        from expacc.cli import pictures

        asked = pictures.options_of(
            *(model, pretrained, losses, epochs, repeats, trials, folds),
            *(label_noise, mirror, seed, device),
        )
        pictures.compare(data[0], size, asked, how, screen)
        return
    network = {"--size": size, "--epochs": epochs, "--pretrained": pretrained, "--mirror": mirror}
    tables.refuse(network, "pictures")
    from expacc.compare.study import Settings

    with user_input():
        settings = Settings(
            losses=studies.read_losses(losses, model or "linear"),
            model=model or "linear",
            hidden=studies.read_widths(hidden),
            dropout=dropout,
            trials=trials,
            folds=folds or "5x3",
            seeds=2 if repeats is None else repeats,
            label_noise=studies.read_shares(label_noise),
            seed=seed,
            references=references or "all",
        )
    studies.compare(data, settings, how, reading=reading, screen=screen)


@app.command(epilog="Example: expacc show expacc-iris")
def show(folder: tables.Folder, as_json: tables.Json = False, debug: tables.Debug = False) -> None:
    """Print the leaderboard of a study, running or finished."""
    studies.show(folder, Screen(as_json=as_json))


@app.command(epilog="Example: expacc report expacc-iris")
def report(
    folder: tables.Folder, as_json: tables.Json = False, debug: tables.Debug = False
) -> None:
    """Write the report of a study anew, from its rows."""
    studies.report(folder, Screen(as_json=as_json))


@app.command(
    epilog="""\b
Examples:
  expacc fit cars.csv --target class --from expacc-cars
  expacc fit iris --loss exact -o iris-model
--from and --loss search as a study does, on all rows; without them or --model
small networks vote. All options on reading: expacc inspect --help."""
)
@tables.reads_tables("target", "header")
def fit(
    data: tables.OneData,
    loss: Annotated[str | None, Option("--loss", metavar="NAME", help="Train this one.")] = None,
    study: Annotated[
        Path | None, Option("--from", metavar="DIR", help="The winner of this study.")
    ] = None,
    model: Annotated[
        str | None,
        Option(
            "--model",
            metavar="MODEL",
            help="linear, mlp, lightgbm or xgboost; default: linear, or the study's.",
        ),
    ] = None,
    hidden: tables.Hidden = None,
    dropout: tables.Dropout = 0.0,
    trials: Annotated[
        int | None, Option("--trials", metavar="N", help="Default: 8 to 20, or the study's.")
    ] = None,
    out: tables.out_option("expacc-NAME-model") = None,  # type: ignore[valid-type]
    seed: Annotated[
        int | None, Option("--seed", metavar="N", help="Default: 0, or the study's.")
    ] = None,
    device: tables.Device = "cpu",
    as_json: tables.Json = False,
    quiet: tables.Quiet = False,
    debug: tables.Debug = False,
    *,
    reading: Any,
) -> None:
    """Train the winner, or a named loss, on all rows, and save it."""
    screen = Screen(quiet=quiet, as_json=as_json)
    network = studies.read_widths(hidden), dropout
    options = studies.FitOptions(loss, study, model, trials, seed, device, *network)
    studies.fit(data, options, out, reading=reading, screen=screen)


@app.command(
    epilog="""\b
Example:
  expacc predict expacc-iris-model new.csv -o predicted.csv
Columns are found by name. One that the model needs must be there, others are
kept and ignored. A category it has not seen counts as none of those it knows."""
)
@tables.reads_tables("header", "delimiter", "missing")
def predict(
    folder: Annotated[Path, Argument(metavar="FOLDER", help="What expacc fit saved.")],
    data: Annotated[str, Argument(metavar="NEW", help="A table with the same columns.")],
    out: tables.out_option("standard output", "FILE") = None,  # type: ignore[valid-type]
    quiet: tables.Quiet = False,
    debug: tables.Debug = False,
    *,
    reading: Any,
) -> None:
    """Add predictions and calibrated probabilities to a table."""
    studies.predict(folder, data, out, reading=reading, screen=Screen(quiet=quiet))


@app.command(
    epilog="""\b
Examples:
  expacc reproduce
  expacc reproduce exact-uci --data ~/data --quick
The same command again goes on where it stopped. What is looked for under
--data, and where that comes from: docs/reproduce.md."""
)
def reproduce(
    name: Annotated[
        str | None, Argument(metavar="NAME", help="A recipe; without it, all are listed.")
    ] = None,
    everything: Annotated[bool, Option("--all", help="Run all, and make an index.")] = False,
    data: Annotated[
        Path | None,
        Option(
            "--data",
            metavar="DIR",
            envvar="EXPACC_DATA",
            show_envvar=False,
            help="Folder of data; or set EXPACC_DATA.",
        ),
    ] = None,
    repeats: Annotated[
        int | None, Option("--repeats", metavar="N", help="Default: as many as the paper.")
    ] = None,
    quick: Annotated[bool, Option("--quick", help="A part of it, in about a minute.")] = False,
    short: Annotated[bool, Option("--short", help="Less than the paper, for a GPU.")] = False,
    out: tables.out_option("expacc-reproduce") = None,  # type: ignore[valid-type]
    engine: tables.Engine = "local",
    workers: tables.Workers = None,
    address: tables.Address = None,
    device: tables.Device = "cpu",
    gpus_per_run: shared.GpusPerRun = None,
    seed: tables.Seed = 0,
    overwrite: tables.Overwrite = False,
    no_run: Annotated[bool, Option("--no-run", help="Pages of the rows that there are.")] = False,
    dry_run: tables.DryRun = False,
    as_json: tables.Json = False,
    quiet: tables.Quiet = False,
    debug: tables.Debug = False,
) -> None:
    """Do the papers' tables and figures again: ours beside theirs."""
    from expacc.cli import reproduce as command

    screen = Screen(quiet=quiet, as_json=as_json)
    options = command.recipe_options(data, repeats, quick, seed, device, short)
    how = RunOptions(
        *(out, engine, workers, address, device, overwrite, dry_run, no_run),
        *(tuple(_typed), None, gpus_per_run),
    )
    command.reproduce(name, options, how, screen, everything=everything)


@app.command(
    epilog="""\b
Examples:
  expacc losses
  expacc losses ours focal"""
)
def losses(
    names: Annotated[
        list[str] | None,
        Argument(metavar="NAME|FAMILY…", help="ours, robust, classic, or names; default: all."),
    ] = None,
    as_json: tables.Json = False,
    debug: tables.Debug = False,
) -> None:
    """Print every loss: formula, numbers and what is searched, when to use it."""
    from expacc.cli.losses import losses as print_losses

    print_losses(names or (), Screen(as_json=as_json))


@app.command(epilog="Example: expacc inspect cars.data --no-header --drop id")
@tables.reads_tables()
def inspect(
    data: tables.Data, as_json: tables.Json = False, debug: tables.Debug = False, *, reading: Any
) -> None:
    """Show how tables are read: target, columns, doubts. Nothing is trained."""
    tables.inspect(data, reading=reading, screen=Screen(as_json=as_json))


@app.command(
    epilog="""\b
Examples:
  expacc get cifar10 --to data
  expacc compare data/cifar-10-batches-bin
The same command again goes on where it broke off. A proxy is taken from
HTTPS_PROXY and HTTP_PROXY."""
)
def get(
    name: Annotated[
        str | None, Argument(metavar="NAME", help="A data set; without it, all are listed.")
    ] = None,
    to: Annotated[Path, Option("--to", metavar="FOLDER", help="Default: data.")] = Path("data"),
    as_json: tables.Json = False,
    quiet: tables.Quiet = False,
    debug: tables.Debug = False,
) -> None:
    """Fetch cifar10, mnist … from the official address, checked by a digest."""
    from expacc.cli.get import get as fetch

    fetch(name, to, Screen(quiet=quiet, as_json=as_json))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; an error of the user is one line and 2, Ctrl-C 130, a bug 1.

    Args:
        arguments: the words after ``expacc``; None for those of this process.

    Returns:
        The exit status.

    Example:
        >>> main(["--version"])  # doctest: +ELLIPSIS
        expacc ...
        0
    """
    with lasting_streams() as output:
        code = _run(arguments)
        output.flush()
        if output.lost:
            code = _end(f"standard output must take the result; got: {output.lost}.", code or 2)
        return code


def _run(arguments: Sequence[str] | None) -> int:
    words = _renamed(sys.argv[1:] if arguments is None else arguments)
    _typed[:] = ["expacc", *words]
    try:
        code = typer.main.get_command(app).main(
            args=words or ["--help"], prog_name="expacc", standalone_mode=False
        )
        return code if isinstance(code, int) else 0
    except shared.Interrupted as stop:
        return _end(str(stop), 130)
    except (KeyboardInterrupt, typer.Abort):
        return _end("Stopped.", 130)
    except Exception as error:
        if "--debug" in words:
            raise
        if (sentence := _of_the_user(error)) is not None:
            return _end(sentence, 2)
        traceback.print_exception(error)
        return _end("This is a bug of expacc. Please report it, with the lines above.", 1)


def _renamed(words: Sequence[str]) -> list[str]:
    """The words with today's names, and a line for each that had another."""
    found, options = [], True
    for place, word in enumerate(words):
        options = options and word != "--"
        old, equals, value = word.partition("=")
        if old in RENAMED and options and (place == 0 or old.startswith("--")):
            _end(f"{old} is {RENAMED[old]} now; the old name goes with the next release.", 0)
            word = RENAMED[old] + equals + value
        found.append(word)
    return found


def _of_the_user(error: Exception) -> str | None:
    """The sentence of an error that the user, or whoever keeps the machine, can mend."""
    if hasattr(error, "format_message"):  # of the parser, whichever version of it
        return str(error.format_message())
    ours = isinstance(error, ImportError) and str(error.name or "").startswith("expacc")
    if isinstance(error, UsageError | OSError | ImportError) and not ours:
        return str(error)
    return None


def _end(sentence: str, code: int) -> int:
    sys.stderr.write(f"expacc: {one_line(sentence)}\n")
    return code
