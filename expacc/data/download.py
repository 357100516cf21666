"""Fetch a file: resumed where it broke off, checked by its digest, never in place of another.

What is on its way lies beside as NAME.expacc-part. Proxies are those of the environment.
"""

import contextlib
import hashlib
import http.client
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from expacc.data.official import File, Official
from expacc.data.unpack import unpack
from expacc.files import check_plain
from expacc.plain import UsageError

Progress = Callable[[str, int, int], None]
"""Told a file's name, its bytes so far, and all of them."""

_CHUNK = 1 << 18
_TRIES, _WAIT, _TIMEOUT = 5, 1.0, 30.0
_SPARE = 16 << 20  # bytes of the disk that stay free


class _Changed(Exception):
    """What was there before is not the beginning of what is offered now."""


def get(official: Official, to: Path, progress: Progress | None = None) -> tuple[Path, list[str]]:
    """Fetch a data set and unpack it; what is there already, and right, is kept.

    Args:
        official: which.
        to: a folder; the data lie in a folder of their own in it.
        progress: told of every part of a file.

    Returns:
        The folder of the data, and lines for the user.

    Raises:
        ValueError: there is no space, no answer, another file than there should be, …
    """
    own = to if official.unpacked else to / official.folder
    own.mkdir(parents=True, exist_ok=True)
    left = [file for file in official.files if check_plain(own / file.name) is None]
    have = sum(_size(_part(own / file.name)) for file in left)
    needed = sum(file.bytes for file in left) - have + official.unpacked
    _check_space(own, needed)
    notes = []
    for file in official.files:
        path, was_there = fetch(file, own, progress)
        if not file.digest:
            found = _digest(path, "sha256")
            notes.append(f"No digest of {file.name} is published or pinned; got SHA-256 {found}.")
        if official.unpacked:
            count = unpack(path, to, official.top, official.folder, 2 * official.unpacked)
            notes.append(f"{path} is unpacked ({count:,} files) and may be deleted.")
        elif was_there:
            notes.append(f"{path} was there already.")
    return to / official.folder, notes


def fetch(file: File, folder: Path, progress: Progress | None = None) -> tuple[Path, bool]:
    """The file, fetched if it is not there; and whether it was.

    Raises:
        ValueError: no address answers, or the content is not what was pinned.
    """
    path = folder / file.name
    if check_plain(path) is not None:
        if (found := _mismatch(path, file)) is not None:
            raise UsageError(
                f"{path} must be the official file, {file.digest}; got {found}. It was left as it "
                "is: move it away, or give another folder."
            )
        return path, True
    part = _part(path)
    check_plain(part, alone=True)
    reasons = []
    for address in file.addresses:
        tell = _teller(file, progress)
        for resumed in (True, False):
            before = _size(part)
            try:
                _fetch_from(address, part, file, tell)
            except UsageError as error:
                reasons.append(str(error))
                break
            if (found := _mismatch(part, file)) is None:
                check_plain(path)  # somebody else may have put one there
                os.replace(part, path)
                return path, False
            part.unlink()
            if not (resumed and before):
                reasons.append(f"{address} must have {file.digest}; got {found}, which was deleted")
                break
    raise UsageError(
        f"{file.name} cannot be fetched: {'; '.join(reasons)}. Run it again to go on, or fetch it "
        f"by hand and put it into {folder}; behind a proxy set HTTPS_PROXY and HTTP_PROXY."
    )


def _part(path: Path) -> Path:
    return path.with_name(path.name + ".expacc-part")


def _size(path: Path) -> int:
    found = check_plain(path)
    return 0 if found is None else found.st_size


def _teller(file: File, progress: Progress | None) -> Callable[[int, int], None]:
    return lambda have, whole: None if progress is None else progress(file.name, have, whole)


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed + _SPARE > free:
        raise UsageError(
            f"the disk of {folder} must have {needed + _SPARE:,} bytes free; it has {free:,}."
        )


def _digest(path: Path, kind: str) -> str:
    digest = hashlib.new(kind, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _mismatch(path: Path, file: File) -> str | None:
    """The digest of a file that is another; None if it is right, or nothing is pinned."""
    kind, _, wanted = file.digest.partition(":")
    if not kind:
        return None
    found = _digest(path, kind)
    return None if found == wanted else f"{kind}:{found}"


def _fetch_from(address: str, part: Path, file: File, tell: Callable[[int, int], None]) -> None:
    """Go on with the part until it is whole; a connection that breaks is made again."""
    reason, tries = "", 0
    while tries < _TRIES:
        have = _size(part)
        try:
            if _transfer(address, part, file, tell):
                return
            reason = f"the connection ended after {_size(part):,} bytes"
        except _Changed:
            part.unlink(missing_ok=True)
            reason = "the server does not go on where it was"
        except urllib.error.HTTPError as error:
            with contextlib.closing(error):
                reason = f"the server answers {error.code} {error.reason}"
            if error.code == 416 and have:  # beyond its end: whole, or of another file
                return
            if error.code < 500 and error.code != 429:
                break
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, UsageError):
                raise
            reason = str(getattr(error, "reason", "") or error) or type(error).__name__
        tries = 0 if _size(part) > have else tries + 1
        if tries < _TRIES:
            time.sleep(_WAIT * 2 ** min(tries, 4))
    raise UsageError(f"{address}: {reason}")


def _transfer(address: str, part: Path, file: File, tell: Callable[[int, int], None]) -> bool:
    """One connection; whether the server gave all that it announced."""
    have = _size(part)
    headers = {"User-Agent": "expacc", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(address, headers=headers)
    opener = urllib.request.build_opener()  # with the proxies of now
    with opener.open(request, timeout=_TIMEOUT) as answer:
        if answer.status == 206:
            if not str(answer.headers.get("Content-Range", "")).startswith(f"bytes {have}-"):
                raise _Changed
        else:
            have = 0  # a server that knows no ranges
        length = answer.headers.get("Content-Length", "")
        whole = have + int(length) if length.isdecimal() else 0
        largest = 2 * file.bytes + _CHUNK
        if whole > largest:
            raise UsageError(f"{address}: {whole:,} bytes are offered, of about {file.bytes:,}")
        _check_space(part.parent, max(0, whole - have))
        flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(part, flags, 0o666), "wb") as out:
            out.seek(have)
            out.truncate()
            while chunk := answer.read(_CHUNK):
                have += len(chunk)
                if have > largest:
                    raise UsageError(f"{address}: more than {largest:,} bytes are sent")
                out.write(chunk)
                tell(have, whole or file.bytes)
    return have == whole or not whole
