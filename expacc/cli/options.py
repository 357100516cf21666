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

_PICTURES = "Of pictures"

Losses = Annotated[
    list[str] | None,
    Option(
        "--losses",
        metavar="A,B|ours|robust|all",
        help="Names or families (see: expacc losses); default: a few of different kinds.",
    ),
]
CompareModel = Annotated[
    str | None,
    Option(
        "--model",
        metavar="MODEL",
        help="linear (default), mlp, lightgbm, xgboost or a classifier's module.Class; of pictures "
        "cnn, cnn-small (default on a CPU), resnet18 … or timm:NAME.",
    ),
]
Trials = Annotated[
    int | None,
    Option("--trials", metavar="N", help="Of the search; default: as many as are quick."),
]
Folds = Annotated[
    str | None,
    Option(
        "--folds",
        metavar="5x3|10|holdout",
        help="How accuracy is measured; default: 5x3, of pictures 3 or their test part.",
    ),
]
Repeats = Annotated[
    int | None, Option("--repeats", metavar="N", help="Final runs a fold; default: 2 to 5.")
]
LabelNoise = Annotated[
    str, Option("--inject-label-noise", metavar="A,B", help="Shares of labels made wrong.")
]
References = Annotated[
    str | None,
    Option(
        "--references",
        metavar="none|fast|all",
        help="scikit-learn's classifiers beside (fast: the linear one; default: all).",
    ),
]
CompareDevice = Annotated[
    str | None,
    Option(
        "--device",
        metavar="cpu|cuda",
        help="Where to train; default: cpu, of pictures a GPU if there is one.",
    ),
]
Size = Annotated[
    int | None,
    Option("--size", metavar="N", help="Pixels of a side; default: 32.", rich_help_panel=_PICTURES),
]
Epochs = Annotated[
    int | None,
    Option("--epochs", metavar="N", help="Of a run; default: 8 to 100.", rich_help_panel=_PICTURES),
]
Pretrained = Annotated[
    Path | None,
    Option(
        "--pretrained",
        metavar="FILE",
        help="Weights to start from, .safetensors.",
        rich_help_panel=_PICTURES,
    ),
]
Mirror = Annotated[
    bool,
    Option(
        "--mirror",
        help="Mirror pictures in training: for photos, not for letters.",
        rich_help_panel=_PICTURES,
    ),
]


def out_option(default: str, metavar: str = "DIR") -> Any:
    """``--out``, with what it is by default."""
    text = f"Default: {default}."
    return Annotated[Path | None, Option("--out", "-o", metavar=metavar, help=text)]
