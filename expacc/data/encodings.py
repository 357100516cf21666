"""Bytes to text by the encoding that was named, or a sentence about the first byte that is not."""

import codecs
import io
from collections.abc import Iterable, Iterator

from expacc.data.errors import TableError
from expacc.data.source import Source
from expacc.plain import UsageError

__all__ = ["decode", "decode_parts"]

_PART = 1 << 20


def decode(source: Source, encoding: str) -> str:
    """The text of a file; a byte-order mark is not part of it."""
    return "".join(decode_parts(source, encoding))


def decode_parts(source: Source, encoding: str) -> Iterator[str]:
    """The text part by part: in a whole one a single wide character would make all others wide."""
    data, name = source.data, source.name
    _check(source, encoding)
    done = 0
    try:
        for part in _parts(data, encoding):
            place = part.find("\0")
            if place >= 0:
                line, column = _place(_cut(_parts(data, encoding), done + place))
                raise TableError(
                    name,
                    "a NUL character, which text does not hold; is it another encoding, such as "
                    "--encoding utf-16-le?",
                    line=line,
                    column=column,
                )
            done += len(part)
            yield part
    except UnicodeDecodeError as error:
        # Of what it was given last, and this ends with the part it was given.
        start = error.start
        line, column = _place(_parts(data[:start], encoding, final=False))
        what = "ends within a character of" if start + 1 > len(data) else "is not"
        raise TableError(
            name,
            f"byte 0x{data[start]:02x} {what} {encoding} ({error.reason}). If the file has "
            "another encoding, give it, such as --encoding latin-1.",
            line=line,
            column=column,
        ) from None
    except UnicodeError as error:  # utf-16 without a mark, for one
        raise TableError(name, f"the text is not {encoding} ({error}).") from None


def _check(source: Source, encoding: str) -> None:
    try:
        b"\0\0\0\0".decode(encoding)  # none of nothing: that asks no encoding
    except LookupError:
        raise UsageError(
            f"encoding must be one that Python knows, such as utf-8, latin-1, cp1252 or utf-16; "
            f"got {encoding!r}."
        ) from None
    except UnicodeError:
        pass
    if encoding.lower().replace("_", "-") not in ("utf-8", "utf8", "utf-8-sig"):
        return
    for mark, wide in (
        (b"\xff\xfe\0\0", "utf-32"),
        (b"\xff\xfe", "utf-16"),
        (b"\xfe\xff", "utf-16"),
    ):
        if source.data.startswith(mark):
            raise TableError(
                source.name,
                f"the text is {wide.upper()}; give --encoding {wide}.",
                line=1,
                column=1,
            )


def _parts(data: bytes, encoding: str, *, final: bool = True) -> Iterator[str]:
    """Decode in parts; an error's ``start`` counts from the first byte of all."""
    decoder = codecs.getincrementaldecoder(encoding)()
    begun = False
    for start in range(0, len(data), _PART):
        end = min(start + _PART, len(data))
        try:
            part = decoder.decode(data[start:end], final and end == len(data))
        except UnicodeDecodeError as error:
            error.start += end - len(error.object)  # it was given what was left over, and this
            raise
        if part and not begun:
            begun, part = True, part.removeprefix("\ufeff")
        if part:
            yield part


def _cut(parts: Iterable[str], characters: int) -> Iterator[str]:
    for part in parts:
        yield part[:characters]
        characters -= len(part)
        if characters <= 0:
            return


def _place(parts: Iterable[str]) -> tuple[int, int]:
    """Line and column, from 1, of the character behind these parts."""
    line, column = 1, 1
    ends = io.IncrementalNewlineDecoder(None, translate=True)
    for part in (*parts, None):
        text = ends.decode(part or "", part is None)
        line += text.count("\n")
        last = text.rfind("\n")
        column = len(text) - last if last >= 0 else column + len(text)
    return line, column
