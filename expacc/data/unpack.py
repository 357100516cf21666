"""Archives of others, unpacked within a folder: plain files, by names that stay in it, and no more.

All names are looked at before the first file is written. A file that is there stays as it is.
"""

import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import IO, Any

from expacc.files import check_plain, replace_file
from expacc.plain import UsageError

_MOST_FILES = 20_000
_CHUNK = 1 << 20

Member = tuple[str, int, Callable[[], IO[bytes]]]


def unpack(archive: Path, to: Path, top: str, folder: str, most: int) -> int:
    """Unpack a .tar.gz or .zip.

    Args:
        archive: the file.
        to: where its content goes.
        top: the folder in the archive that is taken; what lies outside of it is left.
        folder: its name in ``to``.
        most: bytes of all files together.

    Returns:
        How many files it holds there.

    Raises:
        ValueError: a link, a name that leads out of the folder, too much, damage; or a file that is
            there and differs.
    """
    try:
        with ExitStack() as stack:
            members = list(_members(archive, stack))
            wanted = [(_place(archive, name, top), size, read) for name, size, read in members]
            if len(wanted) > _MOST_FILES or sum(size for _, size, _ in wanted) > most:
                raise _bad(archive, f"at most {_MOST_FILES:,} files and {most:,} bytes", "more")
            own = [(place, size, read) for place, size, read in wanted if place is not None]
            for place, size, read in own:
                path = _folders(to / folder, place)
                with read() as stream:
                    _write(path, stream, size)
            return len(own)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise _bad(archive, "an undamaged archive", str(error)) from None


def _bad(archive: Path, wanted: str, got: str) -> UsageError:
    return UsageError(f"{archive} must hold {wanted}; got {got}. Nothing else was changed.")


def _members(archive: Path, stack: ExitStack) -> Iterator[Member]:
    """Plain files: name, size, and what opens it; folders are left out, all else is refused."""
    if archive.suffix == ".zip":
        book = stack.enter_context(zipfile.ZipFile(archive))
        for entry in book.infolist():
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if entry.is_dir():
                continue
            if kind not in (0, stat.S_IFREG) or entry.flag_bits & 1:
                raise _bad(archive, "plain files", f"a link or the like: {entry.filename!r:.80}")
            yield entry.filename, entry.file_size, lambda entry=entry: book.open(entry)  # type: ignore[misc]
        return
    tape = stack.enter_context(tarfile.TarFile.open(archive))
    for member in tape:
        if member.isdir():
            continue
        if not member.isreg() or member.issparse():
            raise _bad(archive, "plain files", f"a link or the like: {member.name!r:.80}")
        yield member.name, member.size, lambda member=member: _content(tape, member)  # type: ignore[misc]


def _content(tape: tarfile.TarFile, member: tarfile.TarInfo) -> Any:
    return tape.extractfile(member)


def _place(archive: Path, name: str, top: str) -> PurePosixPath | None:
    """Where a member goes below ``top``; None if it is not below it."""
    parts = PurePosixPath(name).parts
    odd = any(p == ".." or set(p) & set("\\:") or p != p.strip() for p in parts)
    odd = odd or not name.isprintable()
    if odd or name.startswith("/") or not parts:
        raise _bad(archive, "names that stay in its folder", f"{name!r:.80}")
    return PurePosixPath(*parts[1:]) if parts[0] == top and len(parts) > 1 else None


def _folders(root: Path, place: PurePosixPath) -> Path:
    """The path, its folders made; none of them is a link."""
    path = root
    for part in ("", *place.parts[:-1]):
        path = path / part
        if path.is_symlink():
            raise UsageError(f"{path} must be a folder; got a link. Give another folder.")
        path.mkdir(exist_ok=True)
    return path / place.name


def _write(path: Path, stream: IO[bytes], size: int) -> None:
    found = check_plain(path)
    if found is not None:
        with path.open("rb") as there:
            same = found.st_size == size
            while same and (chunk := stream.read(_CHUNK)):
                same = there.read(len(chunk)) == chunk
        if not same:
            raise UsageError(
                f"{path} must be as in the archive; got another file. It was left as it is: move "
                "it away, or give another folder."
            )
        return

    def fill(part: Path) -> None:
        with part.open("wb") as out:
            shutil.copyfileobj(stream, out, _CHUNK)

    replace_file(path, fill)
