"""Parquet and workbooks (.xlsx, .xls, .ods), read by a process of its own: typed cells."""

import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, cast

from expacc.data import container_process
from expacc.data.cells import Cells, as_text, whole_number
from expacc.data.columns import Grid, name_columns
from expacc.data.container_process import read_container
from expacc.data.options import (
    READ_MEMORY,
    READ_SECONDS,
    TEXT,
    WORKBOOK,
    Budget,
    NoRows,
    ReadOptions,
    TableError,
    most_unpacked,
    need,
    too_large,
    too_many_columns,
)
from expacc.data.source import Source
from expacc.data.table import Kind

_MOST_PARTS = 10_000
_KINDS: dict[str, Kind] = {"text": "category", "boolean": "category"}  # all else is a number


def read_parquet(source: Source, options: ReadOptions) -> Grid:
    """Read a Parquet file; numbers are numbers, text and booleans are categories."""
    file = _Container(
        source, options, "parquet", Budget(source.name, source.size, options, TEXT, 2)
    )
    batches, rows, text = [], 0, 0
    with closing(file.found()) as found:
        facts = file.facts(found)
        names, notes = _check_parquet(file, facts)
        # Texts come by dictionaries, and one may serve many batches.
        last: dict[int, Any] = {}
        for batch in file.batches(found):
            rows += batch.num_rows
            file.budget.check(rows, len(names))
            for place, column in enumerate(batch.columns):
                if facts["kinds"][place] == "text":
                    known = last.get(place)
                    if known is None or not known.equals(column.dictionary):
                        text += column.dictionary.nbytes
                        last[place] = column.dictionary
            if text > file.memory:
                raise file.refusal("memory")
            batches.append(batch)
    if rows == 0:
        raise NoRows(source.name, "there are columns but no row of data.", names)
    arrow = need("pyarrow", "reading Parquet")
    table = arrow.Table.from_batches(batches)
    columns = [
        Cells(column, "number" if kind == "decimal" else "plain")
        for column, kind in zip(table.columns, facts["kinds"], strict=True)
    ]
    declared = {
        name: _KINDS.get(kind, "number") for name, kind in zip(names, facts["kinds"], strict=True)
    }
    index = tuple(name for name in names if name in facts["index"])
    lines = range(1, rows + 1)
    return Grid(source.name, names, columns, lines, declared=declared, notes=notes, index=index)


def _check_parquet(file: "_Container", facts: dict[str, Any]) -> tuple[tuple[str, ...], list[str]]:
    """What the file says of itself is not proof, but reason enough to refuse it."""
    width = max(len(facts["names"]), facts["leaves"])
    if width > file.options.max_columns:
        raise too_many_columns(file.name, f"{width:,}", file.options, None)
    names, notes = name_columns(file.name, facts["names"], 1)
    for place, kind in enumerate(facts["kinds"]):
        if not kind:
            raise TableError(
                file.name,
                f"the column {names[place]!r} holds {facts['types'][place]}, which is neither "
                "number nor text. Leave it out of the file.",
                column=place + 1,
            )
    stated = facts["bytes"]
    if file.options.max_bytes:
        stated = max(stated, 8 * facts["rows"] * width)
    if stated > most_unpacked(file.options):
        raise too_large(file.name, most_unpacked(file.options), "unpacks to")
    file.budget.check(facts["rows"], width)
    return names, notes


def read_workbook(source: Source, options: ReadOptions) -> Grid:
    """Read one sheet by the values last saved; what holds an error value is refused."""
    need("python_calamine", "reading workbooks")
    budget = Budget(source.name, source.size, options, WORKBOOK)
    file = _Container(source, options, source.suffix, budget)
    if source.suffix != ".xls":
        _check_parts(file)
    arrow = need("pyarrow", "reading workbooks")
    with closing(file.found()) as found:
        facts = file.facts(found)
        notes = _check_sheet(file, facts)
        table = arrow.Table.from_batches(file.batches(found), None) if facts["widths"] else None
    numbers, header = facts["numbers"], facts["header"]
    if not numbers:
        raise NoRows(source.name, "the sheet is empty.")
    if facts.get("formulas"):
        notes.append(f"{facts['formulas']:,} formula(s) read by their saved values.")
    blank = numbers[-1] - numbers[0] + 1 - len(numbers)
    if blank:
        first = next(n for n, number in enumerate(numbers, numbers[0]) if n != number)
        notes.append(f"{blank:,} blank row(s) skipped, first row {first}.")
    header_line = None
    if header is not None:
        header_line = numbers.pop(0)
        texts = [
            as_text(whole_number(cell) if isinstance(cell, float) else cell) or ""
            for cell in header
        ]
        names, more = name_columns(source.name, texts, header_line)
        notes += more
    else:
        names = tuple(f"column {place + 1}" for place in range(len(facts["forms"])))
    if table is None:
        raise NoRows(source.name, "there is a header but no row of data.", names, line=header_line)
    # Empty cells at the end may not be stored: the header, or the widest row, is the measure.
    for number, width in zip(numbers, facts["widths"], strict=True):
        if width > len(names):
            raise TableError(
                source.name,
                f"{width} cells where the header (line {header_line}) has {len(names)}.",
                line=number,
                column=len(names) + 1,
            )
    budget.check(len(numbers), len(names))
    columns = [Cells(*one) for one in zip(table.columns, facts["forms"], strict=True)]
    return Grid(source.name, names, columns, numbers, header_line=header_line, notes=notes)


def _check_parts(file: "_Container") -> None:
    """What the archive says of its parts; where it lies, the limits of the process remain."""
    data = file.source.data
    if data.count(b"PK\x01\x02") > _MOST_PARTS:
        raise file.damaged(f"it has more than {_MOST_PARTS:,} parts")
    try:
        parts = zipfile.ZipFile(io.BytesIO(data)).infolist()
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError) as error:
        raise file.damaged(error) from None
    most = most_unpacked(file.options)
    if sum(part.file_size for part in parts) > most:
        raise too_large(file.name, most, "unpacks to")


def _check_sheet(file: "_Container", facts: dict[str, Any]) -> list[str]:
    """Raise for a sheet that is not there or cannot be read; notes on the choice of one."""
    titles, asked = facts["titles"], file.options.sheet
    if not titles:
        raise TableError(file.name, "the workbook has no sheet of cells.")
    if asked is not None and asked not in titles:
        known = ", ".join(map(repr, titles[:30])) + (", …" if len(titles) > 30 else "")
        raise TableError(file.name, f"there is no sheet {asked!r}; it has: {known}.")
    if "wide" in facts:
        line, width = facts["wide"]
        raise too_many_columns(file.name, f"{width:,}", file.options, line)
    if "bad" in facts:
        line, column, error = facts["bad"]
        message = (
            f"the cell holds the error {error}; mend it, or give --missing '{error}' to read it "
            "as missing."
            if error
            else "a formula without a saved value; open the workbook, save it, and try again."
        )
        raise TableError(file.name, message, line=line, column=column)
    if len(titles) == 1 or asked is not None:
        return []
    return [f"The sheet {titles[0]!r} is read, the first of {len(titles)}; --sheet takes another."]


class _Container:
    """One file and the process that reads it."""

    def __init__(self, source: Source, options: ReadOptions, form: str, budget: Budget) -> None:
        if find_spec("pyarrow") is None:  # not imported: the process that reads it does so
            need("pyarrow", "reading Parquet and workbooks")
        self.source, self.name, self.options, self.budget = source, source.name, options, budget
        self.what = "Parquet file" if form == "parquet" else "workbook"
        self.memory = max(READ_MEMORY + len(source.data), options.max_bytes or 0)
        self.seconds = max(READ_SECONDS, READ_SECONDS * (options.max_cells or 0) // TEXT)
        self.asked = {
            "path": [os.path.abspath(entry) for entry in sys.path if entry],
            "memory": self.memory,
            "seconds": self.seconds,
            "format": form,
            "sheet": options.sheet,
            "header": options.header,
            "skip": options.skip_lines,
            "missing": sorted(options.missing_words),
            "columns": options.max_columns,
            "cells": budget.cells,
            "rows": budget.rows,
        }

    def facts(self, found: Iterator[Any]) -> dict[str, Any]:
        """What it says of the file."""
        return self._fine(next(found))

    def batches(self, found: Iterator[Any]) -> Iterator[Any]:
        """The rows."""
        for one in found:
            if isinstance(one, dict):
                self._fine(one)
                return
            yield one

    def _fine(self, facts: dict[str, Any]) -> dict[str, Any]:
        if "error" in facts:
            raise self.refusal(facts["error"], facts.get("reason", ""))
        return facts

    def damaged(self, reason: object) -> TableError:
        """The refusal of a file that is not what it should be."""
        return TableError(self.name, f"the {self.what} is damaged ({reason}).")

    def refusal(self, what: str, reason: str = "") -> TableError:
        """Why the process ended without all rows."""
        if what == "cells":
            return self.budget.refusal(f"{self.budget.cells:,} cells")
        if what == "memory":
            return TableError(
                self.name,
                f"reading it takes more than {self.memory >> 20:,} MiB of memory, the most for a "
                "file of its size. Raise --max-bytes if you trust it, or save it in smaller parts.",
            )
        if what == "time":
            return TableError(
                self.name,
                f"reading it takes longer than {self.seconds} s, the most for a file of its size. "
                "Raise --max-cells if you trust it, or save it in fewer parts.",
            )
        return self.damaged(reason)

    def found(self) -> Generator[Any, None, None]:
        """What a process of its own finds, or, where none can be started, this one."""
        quiet = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
        try:
            process = subprocess.Popen(
                [sys.executable or "", "-I", str(Path(container_process.__file__))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | quiet | {"ARROW_DEFAULT_MEMORY_POOL": "system"},
            )
        except OSError:
            yield from read_container(self.source.data, self.asked)
            return
        to, back = cast(IO[bytes], process.stdin), cast(IO[bytes], process.stdout)
        try:
            with suppress(OSError):  # if it is gone it will not say that it is ready
                to.write(json.dumps(self.asked).encode() + b"\n")
                to.flush()
            if not back.readline():
                yield from read_container(self.source.data, self.asked)
                return
            with suppress(OSError):
                to.write(self.source.data)
                to.close()
            arrow = need("pyarrow", "reading Parquet and workbooks")
            while line := back.readline():
                facts = json.loads(line) if line.endswith(b"\n") else {}
                if "rows" in facts and facts["rows"] is True:
                    with suppress(arrow.ArrowInvalid, OSError):  # it ended within a batch
                        yield from arrow.ipc.open_stream(back)
                elif facts:
                    yield facts
            yield {"error": self._end_of(process.wait()), "reason": "its reader crashed"}
        finally:
            process.kill()
            back.close()
            with suppress(OSError):
                to.close()
            process.wait()

    def _end_of(self, code: int) -> str:
        """Why a process ended without a word: its time was up, memory was refused to it, or not."""
        if code in (-getattr(signal, "SIGXCPU", 0), -getattr(signal, "SIGKILL", 0)):
            return "time"
        return "memory" if code == -getattr(signal, "SIGABRT", 0) else "damaged"
