"""Parts of a work item that is not done yet: what a study that is killed need not compute again.

A part is bytes of the executor's own, in a file beside the store until the rows of its item are
saved. One that is damaged, or was made by another study or by other versions, is no part.
"""

import contextlib
import hashlib
import json
from pathlib import Path

from expacc.files import check_plain, read_whole, write_whole
from expacc.runner.items import versions

NAME = "study.part-"
LARGEST = 4 << 30  # bytes of a part
_HASH = 64  # its first characters: the SHA-256 of all that it is of


class Parts:
    """The parts of a study's items.

    Args:
        folder: of the study.
        study: its settings; parts of others are not ours.
    """

    def __init__(self, folder: Path, study: str) -> None:
        self._folder, self._study = folder, study
        self._counts: dict[str, int] = {}  # of items that have some

    def of(self, item: str) -> tuple[bytes, ...]:
        """The parts of an item in their order, up to the first that is not as it was written."""
        found: list[bytes] = []
        while (data := self._read(item, len(found))) is not None:
            found.append(data)
        if found:
            self._counts[item] = len(found)
        return tuple(found)

    def _read(self, item: str, number: int) -> bytes | None:
        path = self._path(item, number)
        try:
            if check_plain(path) is None:
                return None
            whole = read_whole(path, LARGEST)
        except (ValueError, OSError):
            return None
        data = whole[_HASH:]
        return data if whole[:_HASH] == self._hash(item, number, data) else None

    def add(self, item: str, data: bytes) -> None:
        """Keep one more; on return it is on the disk for good."""
        number = self._counts.get(item, 0)
        write_whole(self._path(item, number), self._hash(item, number, data) + data)
        self._counts[item] = number + 1

    def drop(self, item: str) -> None:
        """Delete those of an item that is saved."""
        for number in range(self._counts.pop(item, 0)):
            self._path(item, number).unlink(missing_ok=True)

    def _path(self, item: str, number: int) -> Path:
        return self._folder / f"{NAME}{hashlib.sha256(item.encode()).hexdigest()[:20]}-{number}"

    def _hash(self, item: str, number: int, data: bytes) -> bytes:
        of = json.dumps([self._study, dict(versions()), item, number], sort_keys=True)
        return hashlib.sha256(of.encode() + b"\n" + data).hexdigest().encode()


def delete_parts(folder: Path) -> None:
    """Delete all that lie there, whosever they are."""
    for path in folder.glob(f"{NAME}*"):
        with contextlib.suppress(OSError):  # a folder of that name is none of ours
            path.unlink()
