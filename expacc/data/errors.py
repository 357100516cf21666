"""What a table that cannot be read exactly gets: one sentence with file, line and column."""

from importlib import import_module
from types import ModuleType

from expacc.errors import UsageError
from expacc.plain import one_line

__all__ = ["TableError", "need"]


class TableError(UsageError):
    """A table that was refused; the message is one line for the user.

    Attributes:
        source: the file's name.
        line: the line (a workbook's row), counted from 1, or None.
        column: the character, or the field where cells are typed, counted from 1, or None.
    """

    def __init__(
        self, source: str, message: str, *, line: int | None = None, column: int | None = None
    ) -> None:
        where = source
        if line is not None:
            where += f", line {line}"
        if column is not None:
            where += f", column {column}"
        super().__init__(one_line(f"{where}: {message}"))
        self.source, self.line, self.column = source, line, column
        self.message = message

    def __reduce__(self) -> tuple[object, ...]:
        # An exception is pickled by its args; ours are not those of __init__.
        return _again, (self.source, self.message, self.line, self.column)


def _again(source: str, message: str, line: int | None, column: int | None) -> TableError:
    return TableError(source, message, line=line, column=column)


def need(module: str, purpose: str) -> ModuleType:
    """Import ``module`` now, or say which extra brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"{purpose} needs {package}, which is not installed. Use pip install 'expacc[tables]'."
        ) from error
