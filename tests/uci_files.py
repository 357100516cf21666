"""Small data as the papers have it: EXACT's ten UCI tables with all oddities, halves, digits."""

import gzip
import io
import json
import lzma
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from expacc.recipes.leaky.digits import FILES

ROWS = 60
Pairs = list[tuple[int, float]]


def real_data(inside: str) -> Path:
    """The folder that EXPACC_DATA names; a test without it, or without this inside, is skipped."""
    root = os.environ.get("EXPACC_DATA")
    if not root or not (Path(root) / inside).is_dir():
        pytest.skip(f"EXPACC_DATA names no folder with {inside}")
    return Path(root)


def write_tables(folder: Path) -> Path:
    """Write all ten; a row's first feature tells its class. The folder is what --data names."""
    noise = np.random.default_rng(0).normal(size=ROWS).round(3).tolist()
    pairs = list(zip((np.arange(ROWS) % 3).tolist(), noise, strict=True))
    for path, data in _files(pairs).items():
        place = folder / "exact-uci" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return folder


def _files(pairs: Pairs) -> dict[str, bytes]:
    wine = [f"{kind + 1},{kind + noise / 10},{noise}" for kind, noise in pairs]
    balance = [f"{'BLR'[kind]},{kind},{noise}" for kind, noise in pairs]
    cancer = [
        f"{9000 + place},{'MB'[kind > 0]},{kind + noise / 10}"
        for place, (kind, noise) in enumerate(pairs)
    ]
    cars = ("high,4,acc", "low,4,good", "low,more,unacc")
    audit = [
        f"{kind + noise / 10},{'LOHARU' if kind else 7},{int(kind > 0)}" for kind, noise in pairs
    ]
    return {
        "adult/adult.data": _text(_adult(pairs, "?")),
        # A first line that is no data, and a dot behind each label.
        "adult/adult.test.xz": lzma.compress(
            _text(["|1x3 Cross validator", *(f"{line}." for line in _adult(pairs[:9], "Private"))])
        ),
        "annealing/anneal.data": _text(_annealing(pairs)),
        "annealing/anneal.test": _text(_annealing(pairs[:6])),
        "audit-risk/audit_data.zip": _zipped(_text(["Sector_score,LOCATION_ID,Risk", *audit])),
        "balance-scale/balance-scale.data": _text(balance),
        "breast-cancer-wisconsin/wdbc.data": _text(cancer),
        "car/car.data.gz": gzip.compress(_text([cars[kind] for kind, _ in pairs])),
        "cylinder-bands/bands.data": _text(_bands(pairs)),
        "dry-bean/Dry_Bean_Dataset.xlsx": _workbook(pairs),
        "mice-protein/Data_Cortex_Nuclear.xls": _old_workbook(pairs),
        "wine/wine.data": _text(wine),
    }


def _text(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def _adult(pairs: Pairs, word: str) -> list[str]:
    words = ("Private", word, "Private")
    return [
        f"{kind}, {words[kind]}, {noise}, {'>50K' if kind else '<=50K'}" for kind, noise in pairs
    ]


def _annealing(pairs: Pairs) -> list[str]:
    """A column that is missing throughout, a constant one, a category and a number with gaps."""
    ends = ("Y,{},0.5,1", "?,{},1.5,2", "?,{},?,U")
    return ["?,C," + ends[kind].format(noise) for kind, noise in pairs]


def _bands(pairs: Pairs) -> list[str]:
    ends = ("YES,{},noband", "yes,{},band", "yes,{},band")
    rows = [f"1991,X{p},ME,25,{ends[k].format(n)}" for p, (k, n) in enumerate(pairs)]
    return [*rows, "1992,X1,ME,25", "1992,X1,ME,25,yes,?,?"]  # broken off; without a label


def _zipped(data: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("audit_data/trial.csv", "nothing\n")
        archive.writestr("audit_data/audit_risk.csv", data)
    return buffer.getvalue()


def _workbook(pairs: Pairs) -> bytes:
    from openpyxl import Workbook

    book = Workbook()
    book.active.append(["Area", "Perimeter", "Class"])
    for kind, noise in pairs:
        book.active.append([kind + noise / 10, noise, ("BOMBAY", "CALI", "SIRA")[kind]])
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def _old_workbook(pairs: Pairs) -> bytes:
    """A .xls: the sheet's name, its texts and its numbers, and no more."""
    head = ["MouseID", "DYRK1A_N", "ITSN1_N", "Genotype", "Treatment", "Behavior", "class"]
    cells: list[list[str | float | None]] = [list(head)]
    for place, (kind, noise) in enumerate(pairs):
        gap = None if place % 7 == 0 else noise
        words = ("Control", "Saline", "C/S", f"c-{kind}")
        cells.append([f"3{place}_1", kind + noise / 10, gap, *words])
    return old_workbook(cells)


def old_workbook(rows: list[list[str | float | None]]) -> bytes:
    """The .xls of Excel 97: a stream of records in a compound file."""

    def record(kind: int, body: bytes) -> bytes:
        return struct.pack("<HH", kind, len(body)) + body

    def text(word: str, size: str) -> bytes:
        return struct.pack(size, len(word)) + b"\0" + word.encode("latin-1")

    begin = [record(0x809, struct.pack("<HHHHII", 0x600, kind, 0, 0, 0, 6)) for kind in (5, 16)]
    name = b"\0\0" + text("one", "<B")
    start = len(begin[0]) + 4 + 4 + len(name) + 4
    parts = [begin[0], record(0x85, struct.pack("<I", start) + name), record(10, b""), begin[1]]
    for down, row in enumerate(rows):
        for across, cell in enumerate(row):
            where = struct.pack("<HHH", down, across, 0)
            if isinstance(cell, str):
                parts.append(record(0x204, where + text(cell, "<H")))
            elif cell is not None:
                parts.append(record(0x203, where + struct.pack("<d", cell)))
    stream = b"".join([*parts, record(10, b"")]).ljust(4096, b"\0")  # shorter ones lie elsewhere
    return _compound(stream)


def _compound(stream: bytes) -> bytes:
    """A compound file of one stream: a head, its sectors' chain, its directory, the stream."""
    sectors = -(-len(stream) // 512)
    assert sectors < 126
    none, end = 0xFFFFFFFF, 0xFFFFFFFE
    head = bytes.fromhex("d0cf11e0a1b11ae1") + bytes(16)
    head += struct.pack("<HHHHH6x", 0x3E, 3, 0xFFFE, 9, 6)
    head += struct.pack("<IIIIIIIII", 0, 1, 1, 0, 4096, end, 0, end, 0)
    head += struct.pack("<I", 0) + struct.pack("<I", none) * 108
    chain = [0xFFFFFFFD, end, *range(3, sectors + 2), end]
    table = struct.pack(f"<{len(chain)}I", *chain).ljust(512, b"\xff")

    def entry(title: str, kind: int, child: int, first: int, size: int) -> bytes:
        letters = title.encode("utf-16-le")
        body = letters.ljust(64, b"\0") + struct.pack("<HBB", len(letters) + 2, kind, 1)
        return body + struct.pack("<III36xIQ", none, none, child, first, size)

    folder = entry("Root Entry", 5, 1, end, 0) + entry("Workbook", 2, none, 2, len(stream))
    return head + table + folder.ljust(512, b"\0") + stream.ljust(512 * sectors, b"\0")


def write_halves(folder: Path, rows: int, seed: int, classes: int = 2) -> None:
    """A table of the leaky paper: data.csv, and split5x2.json with a third to test."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, rows)
    features = random.normal(size=(rows, 3)) + labels[:, None] * [1.5, 0.0, -0.5]
    folder.mkdir(parents=True)
    lines = [
        ",".join([*(f"{value:.4f}" for value in row), f"c{label}"])
        for row, label in zip(features, labels, strict=True)
    ]
    (folder / "data.csv").write_bytes(_text(lines))
    test = rows // 3
    folds = []
    for _ in range(5):
        order = random.permutation(np.arange(test, rows)).tolist()
        half = len(order) // 2
        folds.append({"a": sorted(order[:half]), "b": sorted(order[half:])})
    split = {"n": rows, "test": [0, test], "folds": folds}
    (folder / "split5x2.json").write_text(json.dumps(split))


def write_idx(path: Path, array, packed: bool) -> None:
    """An idx file of bytes, as MNIST has them."""
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    data = head + array.astype(np.uint8).tobytes()
    path.with_name(path.name + ".gz" * packed).write_bytes(gzip.compress(data) if packed else data)


def write_digits(folder: Path, train: int = 400, test: int = 100) -> None:
    """Pictures of 4×4 with one bright row per class."""
    random = np.random.default_rng(5)
    folder.mkdir(parents=True)
    for side, count in (("train", train), ("test", test)):
        labels = random.integers(0, 4, count)
        labels[:4] = range(4)
        images = random.integers(0, 120, (count, 4, 4))
        images[np.arange(count), labels] += 90
        write_idx(folder / FILES[f"{side}_images"], images, side == "train")
        write_idx(folder / FILES[f"{side}_labels"], labels, side == "test")


def write_prepared(folder: Path, rows: int, features: int, classes: int, seed: int) -> None:
    """A prepared table, as Klambauer et al. have theirs: compressed or not is another test's."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, features))
    y = (x @ rng.normal(size=(features, classes)) + rng.normal(size=(rows, classes))).argmax(1)
    y[:classes] = np.arange(classes)  # all classes are there
    parts = rng.permuted(np.tile(np.arange(rows), (4, 1)), axis=1) * 8 // rows
    np.savetxt(folder / f"{folder.name}_py.dat", x, fmt="%.6f", delimiter=",")
    np.savetxt(folder / "labels_py.dat", y, fmt="%d")
    np.savetxt(folder / "folds_py.dat", (parts.T < 2).astype(int), fmt="%d", delimiter=",")
    held = ((parts.T >= 2) & (parts.T < 4)).astype(int)
    np.savetxt(folder / "validation_folds_py.dat", held, fmt="%d", delimiter=",")


def write_cifar(folder: Path, rows: int = 20, classes: int = 10) -> None:
    """The six binary files of CIFAR-10."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for name in (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"):
        labels = random.integers(0, classes, (rows, 1))
        labels[:classes, 0] = range(classes)
        whole = np.concatenate([labels, random.integers(0, 256, (rows, 3072))], axis=1)
        (folder / name).write_bytes(whole.astype(np.uint8).tobytes())


def write_imagenet(folder: Path, rows: int = 6) -> None:
    """Folders train and val of three classes of pictures, of several sizes and kinds."""
    from PIL import Image

    random = np.random.default_rng(0)
    for part in ("train", "val"):
        for number, name in enumerate(("ape", "bee", "cat")):
            (folder / part / name).mkdir(parents=True)
            for row in range(rows):
                shape = (40 + 8 * row, 56, 3)
                pixels = random.integers(0, 120, shape, dtype=np.uint8)
                pixels[..., number] += 100
                image = Image.fromarray(pixels).convert("L" if row == 1 else "RGB")
                image.save(folder / part / name / f"{row}.{'png' if row % 2 else 'jpg'}")
