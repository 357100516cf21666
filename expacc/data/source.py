"""Open a file, undo its compression within a limit, and say what is inside by its first bytes."""

import gzip
import hashlib
import io
import lzma
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from expacc.data.refusals import TableError, need

__all__ = [
    "COMPRESSIONS",
    "Source",
    "open_source",
    "refuse_other_formats",
    "table_name",
    "table_suffix",
]

COMPRESSIONS = {".gz": "gzip", ".xz": "xz", ".zst": "Zstandard"}

_MAGIC = (
    (b"\x1f\x8b", "gzip data", "add .gz to its name"),
    (b"\xfd7zXZ\0", "xz data", "add .xz to its name"),
    (b"\x28\xb5\x2f\xfd", "Zstandard data", "add .zst to its name"),
    (b"BZh91AY&SY", "bzip2 data", "unpack it first"),
    (b"PK\x03\x04", "a ZIP archive or a workbook", "name it .xlsx, or unpack it first"),
    (b"PAR1", "a Parquet file", "name it .parquet"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook", "save it as .xlsx or CSV"),
    (b"\x89PNG", "a picture", "give a table"),
    (b"%PDF", "a PDF document", "give a table"),
)
_UNREADABLE = {
    ".xls": "save it as .xlsx or CSV",
    ".ods": "save it as .xlsx or CSV",
    ".zip": "unpack it first",
    ".tar": "unpack it first",
    ".bz2": "unpack it first",
    ".json": "save it as CSV or Parquet",
    ".jsonl": "save it as CSV or Parquet",
    ".feather": "save it as Parquet",
    ".pkl": "save it as CSV or Parquet; a pickle can run code",
}
_CHUNK = 1 << 20
_XZ_MEMORY = 1 << 30  # xz -9 needs 65 MiB; a file may ask for 4 GiB
# One byte of Zstandard can mean 32 KiB (a run-length block), so the limit is checked every KiB.
_ZST_CHUNK = 1 << 10


@dataclass(frozen=True)
class Source:
    """The bytes of one file, decompressed, and the digest of the file as it lies on the disk."""

    name: str
    suffix: str
    data: bytes
    sha256: str


def table_suffix(path: Path) -> str:
    """The ending that says the format, without a compression's: .csv of cars.csv.gz."""
    inner = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return inner.suffix.lower()


def table_name(path: Path) -> str:
    """The file's name without its endings: cars of cars.csv.gz."""
    inner = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return inner.stem


def refuse_other_formats(path: Path) -> None:
    """Raise for a file whose ending names a format that is not read."""
    cure = _UNREADABLE.get(table_suffix(path))
    if cure and path.is_file():
        raise TableError(path.name, f"{table_suffix(path)} files are not read; {cure}.")


def open_source(path: Path, max_bytes: int) -> Source:
    """Read a file whole; refuse what is missing, damaged, too large or not what its name says."""
    name = path.name
    raw = _read(path, max_bytes)
    suffix = table_suffix(path)
    packed = path.suffix.lower()
    data = _unpack(name, packed, raw, max_bytes) if packed in COMPRESSIONS else raw
    if not data:
        raise TableError(name, "the file is empty.")
    expected = {".xlsx": "a ZIP archive or a workbook", ".parquet": "a Parquet file"}
    expected[".pq"] = expected[".parquet"]
    found = next(((what, cure) for magic, what, cure in _MAGIC if data.startswith(magic)), None)
    if suffix in expected:
        if found is None or found[0] != expected[suffix]:
            raise TableError(
                name,
                f"the content must be {expected[suffix]}, as its name says; it begins with "
                f"{data[:4]!r}. Give it the ending of what it is.",
            )
    elif found is not None:
        raise TableError(name, f"the content is {found[0]}, not text; {found[1]}.")
    return Source(name, suffix, data, hashlib.sha256(raw).hexdigest())


def _read(path: Path, max_bytes: int) -> bytes:
    name = path.name or str(path)
    try:
        # A named pipe would block for ever and /dev/zero never end: regular files only.
        if path.exists() and not path.is_file():
            raise TableError(name, "it must be a file; got a folder or device.")
        if os.stat(path).st_size > max_bytes:
            raise _too_large(name, max_bytes, "has")
        return path.read_bytes()
    except FileNotFoundError:
        raise TableError(name, f"there is no such file in {path.parent.absolute()}.") from None
    except PermissionError:
        raise TableError(name, "it may not be read by this user; change its permissions.") from None
    except OSError as error:
        raise TableError(name, f"it cannot be read ({error.strerror or error}).") from None


def _too_large(name: str, max_bytes: int, verb: str) -> TableError:
    return TableError(
        name,
        f"it {verb} more than {max_bytes:,} bytes, the most that is read. Raise --max-bytes if "
        "you trust the file.",
    )


def _unpack(name: str, packed: str, raw: bytes, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    stream = {".gz": _gunzip, ".xz": _unxz, ".zst": _unzstd}[packed]
    what = COMPRESSIONS[packed]
    try:
        for part in stream(raw):
            size += len(part)
            if size > max_bytes:
                raise _too_large(name, max_bytes, "unpacks to")
            parts.append(part)
    except EOFError:
        raise TableError(
            name, f"the {what} data end too early, after {size:,} bytes of content; fetch it again."
        ) from None
    except (OSError, lzma.LZMAError, zlib.error) as error:
        raise TableError(
            name, f"the content must be {what} data, as its name says, and undamaged ({error})."
        ) from None
    return b"".join(parts)


def _gunzip(raw: bytes) -> Iterator[bytes]:
    if not raw:
        raise EOFError
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as stream:
        while part := stream.read(_CHUNK):
            yield part


def _unxz(raw: bytes) -> Iterator[bytes]:
    # lzma.LZMAFile would pass over rubbish behind the last stream.
    rest = raw
    if not rest:
        raise EOFError
    while rest:
        stream = lzma.LZMADecompressor(memlimit=_XZ_MEMORY)
        while not stream.eof:
            yield stream.decompress(rest, _CHUNK)
            rest = b""
            if stream.needs_input and not stream.eof:
                raise EOFError
        rest = stream.unused_data
        if len(rest) % 4 == 0:
            rest = rest.lstrip(b"\0")  # padding that the format allows


def _unzstd(raw: bytes) -> Iterator[bytes]:
    zstandard = need("zstandard", "reading .zst files")
    if not raw:
        raise EOFError
    frame = None  # stream_reader would take a cut file for a whole one; a frame knows its end
    for start in range(0, len(raw), _ZST_CHUNK):
        rest = raw[start : start + _ZST_CHUNK]
        while rest:
            if frame is None:
                frame = zstandard.ZstdDecompressor().decompressobj()
            try:
                yield frame.decompress(rest)
            except zstandard.ZstdError as error:
                raise OSError(str(error)) from None
            rest = b""
            if frame.eof:
                rest, frame = frame.unused_data, None
    if frame is not None:
        raise EOFError
