"""Options and arguments that several commands have."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

Data = Annotated[
    list[str],
    Argument(metavar="DATA…", help="CSV, TSV, Parquet, ARFF or XLSX files, folders, or names."),
]
OneData = Annotated[str, Argument(metavar="DATA", help="A table's file, or a built-in name.")]
Folder = Annotated[Path, Argument(metavar="DIR", help="The folder of a study.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No remarks, no progress.")]
Json = Annotated[bool, Option("--json", help="Print the result as JSON.")]
Debug = Annotated[bool, Option("--debug", help="Show tracebacks.")]
Seed = Annotated[int, Option("--seed", metavar="N", help="Of everything random.")]
Engine = Annotated[str, Option("--engine", metavar="local|ray", help="Where to compute.")]
Workers = Annotated[
    int | None,
    Option("--workers", metavar="N", help="Processes; default: one a core, or one for a GPU."),
]
Address = Annotated[str | None, Option("--address", metavar="HOST:PORT", help="Of a Ray cluster.")]
Device = Annotated[str, Option("--device", metavar="cpu|cuda", help="Where to train.")]
Hidden = Annotated[
    str | None, Option("--hidden", metavar="A,B", help="Of mlp: units of its layers; default: 64.")
]
Dropout = Annotated[float, Option("--dropout", metavar="X", help="Of mlp: share dropped.")]
Overwrite = Annotated[bool, Option("--overwrite", help="Start anew; delete what is there.")]
DryRun = Annotated[bool, Option("--dry-run", help="Say what would run, how long.")]


def out_option(default: str, metavar: str = "DIR") -> Any:
    """``--out``, with what it is by default."""
    text = f"Default: {default}."
    return Annotated[Path | None, Option("--out", "-o", metavar=metavar, help=text)]
