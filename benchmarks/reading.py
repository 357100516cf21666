"""Time and memory of reading tables of many shapes, each by ``expacc`` in a process of its own.

Memory is the largest sum over the process and those it starts, sampled. Time is that of the
processors; the clock's is recorded beside it. Both count the start of Python and torch, which
`three rows` shows alone. ``--before FILE`` puts the figures of an older run beside the new ones.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from machine import RESULTS, facts, heading
from rich.console import Console
from rich.table import Table

SEED = 0


@dataclass(frozen=True)
class Case:
    """A file, written by ``make``, and whether a study of it is planned too."""

    name: str
    file: str
    make: Callable[[Path], None]
    plan: bool = True


def write(path: Path, head: str, lines: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(head + "\n")
        file.writelines(lines)


def mixed(path: Path, rows: int = 250_000) -> None:
    random = np.random.default_rng(SEED)
    numbers = random.normal(size=(rows, 10)).round(4)
    words = random.integers(0, 40, (rows, 4))
    labels = random.integers(0, 5, rows)
    head = ",".join([f"n{i}" for i in range(10)] + [f"w{i}" for i in range(4)] + ["y"])
    lines = (
        f"{','.join(map(str, n))},{','.join(f'word{w}' for w in ws)},class {y}\n"
        for n, ws, y in zip(numbers.tolist(), words.tolist(), labels.tolist(), strict=True)
    )
    write(path, head, lines)


def tiny(path: Path, rows: int = 25_000_000) -> None:
    random = np.random.default_rng(SEED)
    text = np.empty((rows, 4), np.uint8)
    text[:, 0] = random.integers(48, 58, rows)
    text[:, 1] = ord(",")
    text[:, 2] = random.integers(97, 100, rows)
    text[:, 3] = ord("\n")
    path.write_bytes(b"x,y\n" + text.tobytes())


def narrow(path: Path, rows: int = 7_000_000) -> None:
    random = np.random.default_rng(SEED)
    numbers = random.normal(size=rows).round(6).tolist()
    labels = random.integers(0, 3, rows).tolist()
    pairs = enumerate(zip(numbers, labels, strict=True))
    lines = (f"{n},{k % 100},{'abc'[y]}\n" for k, (n, y) in pairs)
    write(path, "x,k,y", lines)


def wide(path: Path, rows: int = 10_000, columns: int = 1_000) -> None:
    random = np.random.default_rng(SEED)
    lines = (
        ",".join(map(str, random.normal(size=columns).round(6).tolist())) + f",{row % 3}\n"
        for row in range(rows)
    )
    write(path, ",".join(f"c{i}" for i in range(columns)) + ",y", lines)


def quoted(path: Path, rows: int = 1_200_000) -> None:
    lines = (
        f'{row % 977},"word {row % 50}, and ""more""", "{row % 7}.5","a text of some length '
        f'that fills the file, number {row % 300}",yes{row % 2}\n'
        for row in range(rows)
    )
    write(path, "a,b,c,d,y", lines)


def broken(path: Path, rows: int = 400_000) -> None:
    more = "third line, with some text, " + "x" * 200
    lines = (f'{row % 977},"first line {row % 400}\n\n{more}",y{row % 2}\n' for row in range(rows))
    write(path, "a,b,y", lines)


def blanks(path: Path, rows: int = 3_000_000) -> None:
    lines = (
        f"{row % 61}, word{row % 40}, {row % 89}.25, other{row % 9}, y{row % 3}\n"
        for row in range(rows)
    )
    write(path, "a, b, c, d, y", lines)


def classes(path: Path, rows: int = 8_000_000) -> None:
    write(path, "x,y", (f"{row % 7},k{row:08}\n" for row in range(rows)))


def levels(path: Path, rows: int = 2_500_000) -> None:
    write(
        path,
        "u,v,x,y",
        (f"u{row:08},{row * 7},v{row % 997}.{row},{row % 2}\n" for row in range(rows)),
    )


def parquet(path: Path, rows: int = 3_000_000) -> None:
    import pyarrow as arrow
    import pyarrow.parquet

    labels = [f"label {row:08}" for row in range(rows)]
    table = arrow.table({"x": np.arange(rows) % 7, "y": labels})
    arrow.parquet.write_table(table, path, compression="zstd")


def workbook(path: Path, rows: int = 100_000) -> None:
    import zipfile

    random = np.random.default_rng(SEED)
    numbers = random.normal(size=(rows, 8)).round(4).tolist()
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    kinds = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"

    def line(number: int, cells: Iterable[str]) -> str:
        return f'<row r="{number}">{"".join(cells)}</row>'

    def text(place: int, number: int, word: str) -> str:
        return f'<c r="{chr(65 + place)}{number}" t="inlineStr"><is><t>{word}</t></is></c>'

    body = [line(1, (text(i, 1, f"c{i}") for i in range(10)))]
    body += [
        line(
            row,
            [f'<c r="{chr(65 + i)}{row}"><v>{n}</v></c>' for i, n in enumerate(values)]
            + [text(8, row, f"word {row % 30}"), text(9, row, f"y{row % 3}")],
        )
        for row, values in enumerate(numbers, 2)
    ]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "[Content_Types].xml",
            '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>',
        )
        archive.writestr(
            "_rels/.rels",
            f'<Relationships><Relationship Id="a" Type="{kinds}/officeDocument" '
            'Target="xl/workbook.xml"/></Relationships>',
        )
        archive.writestr(
            "xl/workbook.xml",
            f'<workbook xmlns="{main}" xmlns:r="{kinds}"><sheets>'
            '<sheet name="one" sheetId="1" r:id="s"/></sheets></workbook>',
        )
        archive.writestr(
            "xl/_rels/workbook.xml.rels",
            f'<Relationships><Relationship Id="s" Type="{kinds}/worksheet" '
            'Target="worksheets/sheet1.xml"/></Relationships>',
        )
        archive.writestr(
            "xl/worksheets/sheet1.xml",
            f'<worksheet xmlns="{main}"><sheetData>{"".join(body)}</sheetData></worksheet>',
        )


def small(path: Path) -> None:
    write(path, "x,y", ["1,p\n", "2,q\n", "3,p\n"])


CASES = [
    Case("three rows", "small.csv", small),
    Case("250,000 rows, 15 columns", "mixed.csv", mixed),
    Case("25 million tiny rows", "tiny.csv", tiny),
    Case("7 million rows", "narrow.csv", narrow),
    Case("1,001 columns", "wide.csv", wide),
    Case("quotes, and blanks around them", "quoted.csv", quoted),
    Case("line breaks in quotes", "broken.csv", broken),
    Case("blanks behind commas", "blanks.csv", blanks),
    Case("8 million classes", "classes.csv", classes),
    Case("columns of identifiers", "levels.csv", levels),
    Case("Parquet, 3 million classes", "labels.parquet", parquet),
    Case("XLSX, 100,000 rows", "book.xlsx", workbook),
]


def tree(pid: int) -> int:
    """Bytes of memory that a process and all it started hold now."""
    total = 0
    try:
        with open(f"/proc/{pid}/statm") as file:
            total = int(file.read().split()[1]) * 4096
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            total += sum(tree(int(child)) for child in file.read().split())
    except (OSError, ValueError):
        pass
    return total


def run(words: list[str]) -> dict[str, object]:
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; from expacc.cli import main; sys.exit(main())", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    most = 0
    while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
        most = max(most, tree(process.pid))
        time.sleep(0.02)
    _, status, used = ended
    said = process.stderr.read().strip().splitlines()
    process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "seconds": round(time.perf_counter() - start, 2),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 2),
        "memory_mb": round(max(most, 1024 * used.ru_maxrss) / 1e6),
        "code": process.returncode,
        "refused": said[-1][:300] if process.returncode else "",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="files of these cases")
    parser.add_argument("--folder", type=Path, help="keep the files there")
    parser.add_argument("--out", type=Path, default=RESULTS / "reading-cpu.json")
    parser.add_argument("--before", type=Path, help="figures of an older run")
    asked = parser.parse_args()
    console = Console()
    folder = asked.folder or Path(tempfile.mkdtemp())
    before = json.loads(asked.before.read_text())["cases"] if asked.before else {}
    found: dict[str, dict] = {}
    for case in CASES:
        if asked.only and case.file not in asked.only:
            continue
        path = folder / case.file
        if not path.exists():
            case.make(path)
        one: dict[str, object] = {"size_mb": round(path.stat().st_size / 1e6, 1)}
        one["read"] = run(["read", str(path)])
        if case.plan:
            one["plan"] = run(["compare", str(path), "--dry-run"])
        if case.name in before:
            one["before"] = {key: before[case.name].get(key) for key in ("read", "plan")}
        found[case.name] = one
        console.print(case.name, one)
    asked.out.write_text(json.dumps({**facts(), "cases": found}, indent=1) + "\n")
    table = Table("file", "MB", "read", "plan a study", "read before", "plan before")
    for name, one in found.items():
        cells = [one.get("read"), one.get("plan")]
        cells += [one.get("before", {}).get(key) for key in ("read", "plan")]
        table.add_row(name, str(one["size_mb"]), *map(shown, cells))
    console.print(heading(facts()))
    console.print(table)


def shown(figures: dict | None) -> str:
    if not figures:
        return ""
    return f"{figures['cpu_seconds']:.1f} s, {figures['memory_mb'] / 1000:.2f} GB" + (
        " (refused)" if figures["code"] == 2 else ""
    )


if __name__ == "__main__":
    main()
