"""Bytes to text by the encoding that was named, or a sentence about the first byte that is not."""

from expacc.data.refusals import TableError
from expacc.data.source import Source

__all__ = ["decode"]


def decode(source: Source, encoding: str) -> str:
    """The text of a file; a byte-order mark is not part of it."""
    data, name = source.data, source.name
    if encoding.lower().replace("_", "-") in ("utf-8", "utf8", "utf-8-sig"):
        for mark, wide in (
            (b"\xff\xfe\0\0", "utf-32"),
            (b"\xff\xfe", "utf-16"),
            (b"\xfe\xff", "utf-16"),
        ):
            if data.startswith(mark):
                raise TableError(
                    name, f"the text is {wide.upper()}; give --encoding {wide}.", line=1, column=1
                )
    try:
        text = data.decode(encoding)
    except LookupError:
        raise ValueError(
            f"encoding must be one that Python knows, such as utf-8, latin-1, cp1252 or utf-16; "
            f"got {encoding!r}."
        ) from None
    except UnicodeDecodeError as error:
        good = data[: error.start].decode(encoding)
        line, column = _place(good, len(good))
        what = "ends within a character of" if error.start + 1 > len(data) else "is not"
        raise TableError(
            name,
            f"byte 0x{data[error.start]:02x} {what} {encoding} ({error.reason}). If the file has "
            "another encoding, give it, such as --encoding latin-1.",
            line=line,
            column=column,
        ) from None
    except UnicodeError as error:  # utf-16 without a mark, for one
        raise TableError(name, f"the text is not {encoding} ({error}).") from None
    text = text.removeprefix("\ufeff")
    place = text.find("\0")
    if place >= 0:
        line, column = _place(text, place)
        raise TableError(
            name,
            "a NUL character, which text does not hold; is it another encoding, such as "
            "--encoding utf-16-le?",
            line=line,
            column=column,
        )
    return text


def _place(text: str, end: int) -> tuple[int, int]:
    """Line and column, from 1, of the character at ``end``."""
    before = text[:end].removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return before.count("\n") + 1, len(before) - before.rfind("\n")
