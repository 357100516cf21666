"""Files in a folder that others may have filled: written whole or not at all, never through a link.

A name in such a folder can be a link to someone's only copy, or a pipe that waits for ever. So what
is written gets a name that nobody can guess and is moved into place; what is read is looked at
before it is opened, and its values are checked: JSON within bounds, of the shape that was written.

A shape is a type, or a description made of them: ``float`` is any finite number, ``[str]`` a list
of texts, ``[str, int]`` a pair, ``{str: float}`` an object of numbers, ``{"rows": int, "folds?":
[str]}`` an object with these names (the last may be missing), ``(str, None)`` one of several,
``{"a", "b"}`` one of these texts.
"""

import contextlib
import hashlib
import json
import math
import os
import secrets
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expacc.plain import UsageError

STALE = 3600.0  # seconds since the last byte: whoever wrote this part is dead
_WORDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}
_CLOSED = getattr(os, "O_CLOEXEC", 0)
_ASIDE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | _CLOSED


def not_plain_error(path: Path, mode: int) -> UsageError:
    """For what lies where a plain file should."""
    return UsageError(
        f"{path} must be a plain file; got {_WORDS.get(stat.S_IFMT(mode), 'a device')}. "
        f"Move it away, or use another folder."
    )


def check_plain(path: Path, *, alone: bool = False) -> os.stat_result | None:
    """The size and more of a plain file; None if there is nothing.

    Args:
        path: looked at, not opened.
        alone: also refuse a file with a second name, which is to be written in place.

    Raises:
        ValueError: a link, a pipe, a folder …
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise not_plain_error(path, found.st_mode)
    if alone and found.st_nlink > 1:
        raise UsageError(
            f"{path} must have one name, because it is written in place; got a file with "
            f"{found.st_nlink} (hard links). Copy the folder, or use another."
        )
    return found


def read_whole(path: Path, largest: int) -> bytes:
    """The bytes of a plain file, or of the one that a link leads to.

    Raises:
        ValueError: a pipe, a device, or more than ``largest`` bytes.
        OSError: there is no such file, or it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _CLOSED)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise not_plain_error(path, found.st_mode)
        if found.st_size > largest:
            raise UsageError(f"{path} must be at most {largest:,} bytes; it has {found.st_size:,}.")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that it appears whole or not at all, whenever the power fails."""
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content

    def fill(part: Path) -> None:
        with os.fdopen(os.open(part, os.O_WRONLY | _ASIDE), "wb") as file:
            file.write(data)

    replace_file(path, fill)


def replace_file(path: Path, fill: Callable[[Path], object]) -> None:
    """Let ``fill`` write a new file beside ``path``, then put it in place of ``path`` durably.

    The file at ``path`` is the old one or the new one at every moment, also if the process is
    killed or the power fails.

    Raises:
        ValueError: something lies there that is no plain file.
        OSError: the disk is full, the folder read-only or the like.
    """
    check_plain(path)
    _sweep(path)
    part = path.with_name(f"{_prefix(path)}{secrets.token_hex(8)}.part")
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _ASIDE, 0o666))
    try:
        fill(part)
        descriptor = os.open(part, os.O_RDWR | _ASIDE)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    if hasattr(os, "O_DIRECTORY"):  # elsewhere a folder cannot be opened, and need not be
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)  # the new name itself
        finally:
            os.close(folder)


def _prefix(path: Path) -> str:
    return f".{path.name[:40]}."


def _sweep(path: Path) -> None:
    """Delete what killed processes left of earlier attempts."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(path.parent):
            if entry.name.startswith(_prefix(path)) and ".part" in entry.name:
                found = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(found.st_mode) and time.time() - found.st_mtime > STALE:
                    os.unlink(entry.path)


LARGEST = 1 << 53  # of whole numbers: beyond, floats no longer tell neighbours apart
SEAL = "seal"


@dataclass(frozen=True)
class Between:
    """A number from ``low`` to ``high``; a whole one where both are."""

    low: float
    high: float = LARGEST


@dataclass(frozen=True)
class Numbers:
    """A list of them, which may be long. ``nan``: floats that need not be finite."""

    low: float = -math.inf
    high: float = math.inf
    whole: bool = False
    nan: bool = False


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is none, or nested too deeply, or not UTF-8.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"text must be JSON; got: {str(error)[:80]}") from None


def check_shape(value: Any, shape: Any, name: str) -> None:
    """Raise a ValueError that begins with ``name`` unless the value has the shape."""
    if isinstance(shape, Mapping):
        _check_object(value, shape, name)
    elif isinstance(shape, list):
        several = len(shape) > 1
        if not isinstance(value, list) or (several and len(value) != len(shape)):
            raise _misfit(name, f"a list of {len(shape)}" if several else "a list", value)
        for place, part in enumerate(value):
            check_shape(part, shape[place if several else 0], f"{name}[{place}]")
    elif not _fits(value, shape):
        raise _misfit(name, _words(shape), value)


def _check_object(value: Any, shape: Mapping[Any, Any], name: str) -> None:
    if not isinstance(value, dict):
        raise _misfit(name, "an object", value)
    if str in shape:
        for key, part in value.items():
            check_shape(part, shape[str], f"{name}.{_printed(key)}")
        return
    needed = {key.rstrip("?"): part for key, part in shape.items()}
    optional = {key.rstrip("?") for key in shape if key.endswith("?")}
    for key in sorted(set(value) ^ set(needed)):
        if key not in optional:
            got = "it as well" if key in value else "none"
            raise ValueError(f"{name} must hold {', '.join(needed)}; got {got}: {key!r:.60}.")
    for key, part in value.items():
        check_shape(part, needed[key], f"{name}.{key}")


def _fits(value: Any, shape: Any) -> bool:
    if isinstance(shape, tuple):
        return any(_holds(value, part) for part in shape)
    if isinstance(shape, set):
        return isinstance(value, str) and value in shape
    if isinstance(shape, Between):
        whole = type(shape.low) is int and type(shape.high) is int
        return _is_number(value, whole=whole) and shape.low <= value <= shape.high
    if isinstance(shape, Numbers):
        return _fit(value, shape)
    if shape is float or shape is int:
        return _is_number(value, whole=shape is int)
    return value is None if shape is None else type(value) is shape


def _holds(value: Any, shape: Any) -> bool:
    try:
        check_shape(value, shape, "")
    except ValueError:
        return False
    return True


def _is_number(value: Any, *, whole: bool) -> bool:
    if type(value) is int:
        return -LARGEST <= value <= LARGEST
    return type(value) is float and not whole and math.isfinite(value)


def _fit(values: Any, shape: Numbers) -> bool:
    if not isinstance(values, list):
        return False
    kinds = set(map(type, values))
    if not kinds <= ({int} if shape.whole else {int, float}):
        return False
    if not shape.nan and not all(_is_number(value, whole=shape.whole) for value in values):
        return False
    if shape.nan and any(type(value) is int and abs(value) > LARGEST for value in values):
        return False
    return shape.nan or not values or (shape.low <= min(values) and max(values) <= shape.high)


def _words(shape: Any) -> str:
    if isinstance(shape, tuple):
        return " or ".join(_words(part) for part in shape)
    if isinstance(shape, set):
        return " or ".join(map(repr, sorted(shape)))
    if isinstance(shape, Between):
        return f"a number from {shape.low} to {shape.high}"
    if isinstance(shape, Numbers):
        return f"a list of {'whole ' if shape.whole else ''}numbers" + (
            f" from {shape.low} to {shape.high}" if math.isfinite(shape.high) else ""
        )
    if isinstance(shape, Mapping | list):
        return "an object" if isinstance(shape, Mapping) else "a list"
    known = {str: "a text", int: "a whole number", float: "a finite number", bool: "true or false"}
    return "nothing" if shape is None else known.get(shape, f"a {shape.__name__}")


def _misfit(name: str, wanted: str, value: Any) -> ValueError:
    return ValueError(f"{name} must be {wanted}; got {_short(value)}.")


def _printed(key: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in key[:60])


def _short(value: Any) -> str:
    if isinstance(value, int) and not -LARGEST <= value <= LARGEST:
        return "a number too large"  # whose digits Python may refuse to write
    if isinstance(value, str | bytes | float | int | None):
        return f"{value!r:.60}"
    return {"dict": "an object", "list": "a list"}.get(type(value).__name__, type(value).__name__)


def seal(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content with its digest, so that a changed character is noticed."""
    return {**content, SEAL: _digest(json.loads(json.dumps(content)))}  # as it will be read


def is_sealed(content: Mapping[str, Any]) -> bool:
    """Whether the content is as it was sealed; True where there is no seal, as in older files."""
    rest = {name: value for name, value in content.items() if name != SEAL}
    return SEAL not in content or content[SEAL] == _digest(rest)


def _digest(content: Mapping[str, Any]) -> str:
    try:
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    except RecursionError:  # nested so deeply that nothing of ours wrote it
        return ""
