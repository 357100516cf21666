"""What commands print: results on standard output, remarks on standard error."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Screen", "shell", "shown_path"]

WIDTH = 120  # of text that goes to a file or a pipe


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

        from expacc.plain import one_line

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
