"""Small files in the form of the EXACT paper's ten UCI tables, with all their oddities."""

import gzip
import io
import lzma
import struct
import zipfile
from pathlib import Path

import numpy as np

ROWS = 60
Pairs = list[tuple[int, float]]


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
    """The .xls of Excel 97: one sheet of records, and no styles."""
    head = ["MouseID", "DYRK1A_N", "ITSN1_N", "Genotype", "Treatment", "Behavior", "class"]
    cells: list[list[str | float | None]] = [list(head)]
    for place, (kind, noise) in enumerate(pairs):
        gap = None if place % 7 == 0 else noise
        words = ("Control", "Saline", "C/S", f"c-{kind}")
        cells.append([f"3{place}_1", kind + noise / 10, gap, *words])

    def record(code: int, data: bytes = b"") -> bytes:
        return struct.pack("<HH", code, len(data)) + data

    def start(kind: int) -> bytes:
        return record(0x809, struct.pack("<HHHHII", 0x600, kind, 0, 0, 0, 6))

    sheet = start(0x10)
    for down, row in enumerate(cells):
        for across, cell in enumerate(row):
            where = struct.pack("<HHH", down, across, 0)
            if isinstance(cell, str):
                sheet += record(0x204, where + struct.pack("<HB", len(cell), 0) + cell.encode())
            elif cell is not None:
                sheet += record(0x203, where + struct.pack("<d", cell))
    name = record(0x85, struct.pack("<IHBB", 0, 0, 5, 0) + b"mouse")
    first = len(start(5)) + len(name) + 4  # where the sheet begins
    name = record(0x85, struct.pack("<IHBB", first, 0, 5, 0) + b"mouse")
    return _compound(start(5) + name + record(0xA) + sheet + record(0xA))


def _compound(book: bytes) -> bytes:
    """A compound file with one stream: a sector of chains, one of names, then the book."""
    end, free, size = 0xFFFFFFFE, 0xFFFFFFFF, 512
    count = max(8, -(-len(book) // size))  # a shorter stream would have to lie in a file within
    chains = [0xFFFFFFFD, end, *range(3, count + 2), end]

    def entry(name: str, kind: int, below: int, start: int, length: int) -> bytes:
        text = name.encode("utf-16-le") + b"\0\0"
        tree = struct.pack("<HBBIII", len(text), kind, 1, free, free, below)
        return text.ljust(64, b"\0") + tree + bytes(36) + struct.pack("<IQ", start, length)

    names = entry("Root Entry", 5, 1, end, 0) + entry("Workbook", 2, free, 2, count * size)
    head = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16)
    head += struct.pack("<HHHHH6xIIIIIIIII", 62, 3, 0xFFFE, 9, 6, 0, 1, 1, 0, 4096, end, 0, end, 0)
    head += struct.pack("<109I", 0, *[free] * 108)
    table = struct.pack(f"<{size // 4}I", *chains, *[free] * (size // 4 - len(chains)))
    return head + table + names.ljust(size, b"\0") + book.ljust(count * size, b"\0")
