"""Open a file, undo its compression within a limit, and say what is inside by its first bytes."""

import gzip
import hashlib
import io
import lzma
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from expacc.data.options import MOST_BYTES, NoRows, TableError, need, too_large

COMPRESSIONS = {".gz": "gzip", ".xz": "xz", ".zst": "Zstandard"}

_MAGIC = (
    (b"\x1f\x8b", "gzip data", "add .gz to its name"),
    (b"\xfd7zXZ\0", "xz data", "add .xz to its name"),
    (b"\x28\xb5\x2f\xfd", "Zstandard data", "add .zst to its name"),
    (b"BZh91AY&SY", "bzip2 data", "unpack it first"),
    (b"PK\x03\x04", "a ZIP archive or a workbook", "name it .xlsx or .ods, or unpack it first"),
    (b"PAR1", "a Parquet file", "name it .parquet"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook", "name it .xls"),
    (b"\x89PNG", "a picture", "give a table"),
    (b"%PDF", "a PDF document", "give a table"),
)
_EXPECTED = {
    ".xlsx": "a ZIP archive or a workbook",
    ".ods": "a ZIP archive or a workbook",
    ".xls": "an old Excel workbook",
    ".parquet": "a Parquet file",
    ".pq": "a Parquet file",
}
_UNREADABLE = {
    ".zip": "unpack it first",
    ".tar": "unpack it first",
    ".bz2": "unpack it first",
    ".json": "save it as CSV or Parquet",
    ".jsonl": "save it as CSV or Parquet",
    ".feather": "save it as Parquet",
    ".pkl": "save it as CSV or Parquet; a pickle can run code",
}
_CHUNK = 1 << 20
_LARGE = 32 << 20  # bytes of a text that is not read at once
# What a stream leaves over is copied for the next one, and there may be many: small chunks.
_PACKED_CHUNK = 1 << 12
_NOT_ZERO = re.compile(rb"[^\0]")
_XZ_MEMORY = 1 << 30  # xz -9 needs 65 MiB; a file may ask for 4 GiB
# One byte of Zstandard can mean 32 KiB (a run-length block), so the limit is checked every KiB.
_ZST_CHUNK = 1 << 10


class _OnDisk:
    """The bytes of a file, a slice at a time."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._size = os.stat(path).st_size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(self._size)
        self._file.seek(start)
        return self._file.read(stop - start)

    def __del__(self) -> None:
        self._file.close()


@dataclass(frozen=True)
class Source:
    """The bytes of one file, decompressed, and the digest of the file as it lies on the disk.

    A large text stays on the disk: ``view`` gives slices of it, ``data`` the whole.
    """

    name: str
    suffix: str
    view: bytes | _OnDisk
    sha256: str
    size: int = 0  # on the disk

    @property
    def data(self) -> bytes:
        """All bytes."""
        return self.view if isinstance(self.view, bytes) else self.view[:]


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


def open_source(path: Path, max_bytes: int | None = None) -> Source:
    """Read a file whole; refuse what is missing, damaged, too large or not what its name says."""
    name = path.name
    most = max_bytes or MOST_BYTES
    suffix = table_suffix(path)
    packed = path.suffix.lower()
    data = raw = _read(path, most, whole=packed in COMPRESSIONS or suffix in _EXPECTED)
    digest = hashlib.sha256()
    for start in range(0, len(raw), _CHUNK):
        digest.update(raw[start : start + _CHUNK])
    if packed in COMPRESSIONS:
        data = _unpack(name, packed, raw[:], most)
    if not len(data):
        raise NoRows(name, "the file is empty.")
    expected, head = _EXPECTED.get(suffix), data[:16]
    found = next(((what, cure) for magic, what, cure in _MAGIC if head.startswith(magic)), None)
    if expected:
        if found is None or found[0] != expected:
            raise TableError(
                name,
                f"the content must be {expected}, as its name says; it begins with "
                f"{head[:4]!r}. Give it the ending of what it is.",
            )
    elif found is not None:
        raise TableError(name, f"the content is {found[0]}, not text; {found[1]}.")
    return Source(name, suffix, data, digest.hexdigest(), len(raw))


def _read(path: Path, max_bytes: int, whole: bool) -> bytes | _OnDisk:
    name = path.name or str(path)
    try:
        # A named pipe would block for ever and /dev/zero never end: regular files only.
        if path.exists() and not path.is_file():
            raise TableError(name, "it must be a file; got a folder or device.")
        if os.stat(path).st_size > max_bytes:
            raise too_large(name, max_bytes, "has")
        return path.read_bytes() if whole or os.stat(path).st_size < _LARGE else _OnDisk(path)
    except FileNotFoundError:
        raise TableError(name, f"there is no such file in {path.parent.absolute()}.") from None
    except PermissionError:
        raise TableError(name, "it may not be read by this user; change its permissions.") from None
    except OSError as error:
        raise TableError(name, f"it cannot be read ({error.strerror or error}).") from None


def _unpack(name: str, packed: str, raw: bytes, max_bytes: int) -> bytes:
    whole = io.BytesIO()  # a list of parts, joined, would take twice the memory
    stream = {".gz": _gunzip, ".xz": _unxz, ".zst": _unzstd}[packed]
    what = COMPRESSIONS[packed]
    try:
        for part in stream(raw):
            if whole.tell() + len(part) > max_bytes:
                raise too_large(name, max_bytes, "unpacks to")
            whole.write(part)
    except EOFError:
        raise TableError(
            name,
            f"the {what} data end too early, after {whole.tell():,} bytes of content; fetch it "
            "again.",
        ) from None
    except (OSError, lzma.LZMAError, zlib.error) as error:
        raise TableError(
            name, f"the content must be {what} data, as its name says, and undamaged ({error})."
        ) from None
    return whole.getvalue()


def _gunzip(raw: bytes) -> Iterator[bytes]:
    if not raw:
        raise EOFError
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as stream:
        while part := stream.read(_CHUNK):
            yield part


def _unxz(raw: bytes) -> Iterator[bytes]:
    # lzma.LZMAFile would pass over rubbish behind the last stream.
    if not raw:
        raise EOFError
    at = 0
    while at < len(raw):
        stream = lzma.LZMADecompressor(memlimit=_XZ_MEMORY)
        while not stream.eof:
            rest = b""
            if stream.needs_input:
                rest = raw[at : at + _PACKED_CHUNK]
                if not rest:
                    raise EOFError
                at += len(rest)
            yield stream.decompress(rest, _CHUNK)
        at = _next_stream(raw, at - len(stream.unused_data), 4)


def _next_stream(raw: bytes, at: int, unit: int) -> int:
    """Where the next stream begins: behind zeros, by so many at a time, as the formats allow."""
    found = _NOT_ZERO.search(raw, at)
    end = found.start() if found else len(raw)
    return end if (end - at) % unit == 0 else at


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
