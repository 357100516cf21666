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
    """The .xls of Excel 2, the simplest that there is: a stream of records."""
    head = ["MouseID", "DYRK1A_N", "ITSN1_N", "Genotype", "Treatment", "Behavior", "class"]
    cells: list[list[str | float | None]] = [list(head)]
    for place, (kind, noise) in enumerate(pairs):
        gap = None if place % 7 == 0 else noise
        words = ("Control", "Saline", "C/S", f"c-{kind}")
        cells.append([f"3{place}_1", kind + noise / 10, gap, *words])
    parts = [struct.pack("<HHHH", 9, 4, 2, 0x10)]
    for down, row in enumerate(cells):
        for across, cell in enumerate(row):
            where = struct.pack("<HH3x", down, across)
            if isinstance(cell, str):
                text = bytes([len(cell)]) + cell.encode()
                parts.append(struct.pack("<HH", 4, 7 + len(text)) + where + text)
            elif cell is not None:
                parts.append(struct.pack("<HH", 3, 15) + where + struct.pack("<d", cell))
    return b"".join([*parts, struct.pack("<HH", 10, 0)])
