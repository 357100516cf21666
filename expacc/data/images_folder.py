"""A folder of class folders: which files are pictures of which class.

No link is followed, so nothing outside the folder is read.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from expacc.data.options import TableError

TRAIN, TEST = ("train", "training"), ("test", "testing")
HELD = ("val", "valid", "validation", "dev")
_MOST_FILES = 5_000_000
_IGNORED = ("thumbs.db", "desktop.ini", "__macosx", "icon\r")
_SUFFIXES = (
    *(".png", ".apng", ".jpg", ".jpeg", ".jpe", ".jfif", ".gif", ".bmp", ".dib", ".webp"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".tif", ".tiff", ".svg", ".heic", ".heif", ".avif"),
)
_NO = bytes(4)  # what BMP keeps for later
_MAGIC = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"II*\0", b"MM\0*")


@dataclass
class Layout:
    """The pictures of a folder: part → class → paths; and what was seen beside them."""

    root: Path
    parts: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    links: int = 0
    others: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, part: str, folders: Mapping[str, str]) -> None:
        """Look for the pictures of every class folder, at any depth."""
        found = self.parts.setdefault(part, {})
        for name, path in folders.items():
            found.setdefault(name, []).extend(self._pictures(path))

    def _pictures(self, path: str) -> Iterator[str]:
        waiting = [path]
        while waiting:
            files, folders, links = entries(waiting.pop())
            waiting += sorted(folders.values(), reverse=True)
            self.links += links
            for one in files.values():
                if is_picture(one):
                    yield one
                else:
                    self.others.append(os.path.basename(one))
            if len(self.others) > _MOST_FILES:
                raise TableError(self.root.name, f"it holds more than {_MOST_FILES:,} files.")


def entries(path: str | Path) -> tuple[dict[str, str], dict[str, str], int]:
    """Plain files and folders by name, in order, without the hidden; and how many links."""
    files, folders, links = {}, {}, 0
    try:
        found = sorted(os.scandir(path), key=lambda one: one.name)
    except PermissionError:
        raise TableError(str(path), "the folder may not be read by this user.") from None
    for one in found:
        if one.name.startswith(".") or one.name.lower() in _IGNORED:
            continue
        if one.is_symlink():
            links += 1
        elif one.is_dir(follow_symlinks=False):
            folders[one.name] = one.path
        elif one.is_file(follow_symlinks=False):
            files[one.name] = one.path
    return files, folders, links


def is_picture(path: str) -> bool:
    """By its ending, or by its first bytes."""
    if os.path.splitext(path)[1].lower() in _SUFFIXES:
        return True
    try:
        with open(path, "rb") as file:
            head = file.read(12)
    except OSError:
        return False
    webp, bmp = head[:4] == b"RIFF" and head[8:] == b"WEBP", head[:2] == b"BM" and head[6:10] == _NO
    return head.startswith(_MAGIC) or webp or bmp


def holds_picture(path: str, most: int = 2000) -> bool:
    """Whether one of the first files in or below a folder is a picture."""
    waiting = [path]
    while waiting and most > 0:
        files, folders, _ = entries(waiting.pop())
        if any(map(is_picture, list(files.values())[:most])):
            return True
        most -= len(files) + 1
        waiting += folders.values()
    return False


def part_folders(folders: Mapping[str, str]) -> dict[str, str]:
    """Folder name → 'train', 'test' or 'val', if all of them are parts and one is to train on."""
    known = dict.fromkeys(TRAIN, "train") | dict.fromkeys(TEST, "test")
    known |= dict.fromkeys(HELD, "val")
    parts = {name: known.get(name.lower(), "") for name in folders}
    return parts if all(parts.values()) and "train" in parts.values() else {}


def class_folders(path: str | Path) -> dict[str, str]:
    """The folders in a folder that hold pictures, at any depth."""
    return {name: one for name, one in entries(path)[1].items() if holds_picture(one)}


def find_pictures(root: Path) -> Layout:
    """The pictures of a folder of class folders, or of train/ and test/ with class folders."""
    layout = Layout(root)
    files, folders, layout.links = entries(root)
    layout.others += files
    parts = part_folders(folders)
    if not parts:
        layout.add("train", folders)
    for name, part in sorted(parts.items(), key=lambda one: one[1] != "train"):
        inside, below, links = entries(folders[name])
        layout.others += inside
        layout.links += links
        if part == "val":
            part = "train" if "test" in parts.values() else "test"
            word = (
                "joined with train/: held-out rows are drawn anew"
                if part == "train"
                else ("the test part: there is no test/")
            )
            layout.notes.append(f"{name}/ is {word}.")
        layout.add(part, below)
    for part, classes in layout.parts.items():
        for name in [name for name, paths in classes.items() if not paths]:
            layout.notes.append(f"{part}: the folder {name!r} holds no picture and is no class.")
            del classes[name]
    if layout.links:
        layout.notes.append(f"{layout.links:,} links are not followed; copy what they lead to.")
    if layout.others:
        named = ", ".join(layout.others[:5]) + (", …" if len(layout.others) > 5 else "")
        layout.notes.append(f"{len(layout.others):,} files are no pictures of a class: {named}.")
    return layout
