"""The command line: parses and calls, holds no logic; heavy libraries are imported when needed."""

import sys
from collections.abc import Sequence

__all__ = ["main"]

try:
    from expacc.cli.app import main
except ModuleNotFoundError as missing:
    if missing.name not in ("typer", "rich"):
        raise
    _name = missing.name

    def main(arguments: Sequence[str] | None = None) -> int:
        """Say what is missing."""
        sys.stderr.write(
            f"expacc: the command line needs the package {_name}, which is not installed. "
            f"Use pip install 'expacc[compare]'.\n"
        )
        return 2
