"""Parquet by pyarrow and workbooks by calamine, in a process with a limit on memory and time.

A few bytes of such a file can ask for any amount of memory, within libraries where nothing else can
hold it. This file is run by its path, so that the process starts at once: it imports nothing of
ours. In go a line of JSON and the bytes of the file; out come lines of JSON, and arrow's stream.
"""

import datetime
import io
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Any
from xml.etree import ElementTree

_BATCH_ROWS, _BATCH_CELLS = 1 << 18, 1 << 21
_MOST_CELLS_OF_A_BOOK = 60_000_000  # with the empty ones between


class Refused(Exception):
    """Says why in words for the other side."""


def read_container(data: bytes, asked: dict[str, Any]) -> Iterator[dict[str, Any] | Any]:
    """Facts on the file, a dict; then batches of rows; then the end, or an error, a dict."""
    try:
        yield from (_parquet if asked["format"] == "parquet" else _workbook)(data, asked)
        yield {"end": True}
    except MemoryError:  # pyarrow's own is one too
        yield {"error": "memory"}
    except Refused as error:
        yield {"error": str(error)}
    except BaseException as error:  # libraries raise what their parts raise; Rust panics
        if isinstance(error, KeyboardInterrupt | GeneratorExit):
            raise
        lines = str(error).splitlines() or [type(error).__name__]
        yield {"error": "damaged", "reason": lines[0][:200].rstrip(".")}


# ------------------------------------------------------------------------------------- Parquet


def _parquet(data: bytes, asked: dict[str, Any]) -> Iterator[dict[str, Any] | Any]:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    file = parquet.ParquetFile(arrow.BufferReader(data))
    schema, meta = file.schema_arrow, file.metadata
    groups = range(meta.num_row_groups)
    kinds = [_kind(arrow.types, field.type) for field in schema]
    yield {
        "names": schema.names,
        "kinds": kinds,
        "types": [str(field.type)[:80] for field in schema],
        "rows": meta.num_rows,
        "leaves": meta.num_columns,
        "bytes": sum(meta.row_group(group).total_byte_size for group in groups),
        "index": _index(schema.metadata or {}, schema.names),
    }
    if not all(kinds):
        return
    # Texts come by their places in a dictionary: one that is there often is there once.
    texts = [
        field.name
        for place, field in enumerate(schema)
        if _is_text(arrow.types, field.type)
        and not any(_by_differences(meta.row_group(group).column(place)) for group in groups)
    ]
    file = parquet.ParquetFile(arrow.BufferReader(data), read_dictionary=texts)
    rows = max(1, min(_BATCH_ROWS, _BATCH_CELLS // max(1, len(schema))))
    names = list(map(str, range(len(schema))))
    for batch in file.iter_batches(rows, use_threads=False):
        columns = [
            _plain(arrow, kind, values) for kind, values in zip(kinds, batch.columns, strict=True)
        ]
        yield arrow.RecordBatch.from_arrays(columns, names)


def _index(metadata: dict[bytes, bytes], names: list[str]) -> list[str]:
    """The columns in which pandas keeps the index of its frame."""
    told: Any = {}
    with suppress(ValueError, RecursionError):
        told = json.loads(metadata.get(b"pandas", b"{}"))
    listed = told.get("index_columns") if isinstance(told, dict) else None
    known = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    unnamed = re.compile(r"__index_level_\d+__")
    return [name for name in names if name in known or unnamed.fullmatch(name)]


def _by_differences(chunk: Any) -> bool:
    """Whether a chunk is written in a way that pyarrow makes no dictionary of."""
    return any(name.startswith("DELTA") for name in chunk.encodings)


def _is_text(types: Any, kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _kind(types: Any, kind: Any) -> str:
    """How a column is handed over, or '' if it is neither number nor text."""
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_null(kind):
        return "null"
    if types.is_integer(kind) or types.is_floating(kind):
        return "number"
    if types.is_decimal(kind):
        return "decimal"
    if types.is_boolean(kind):
        return "boolean"
    return "text" if _is_text(types, kind) or types.is_temporal(kind) else ""


def _plain(arrow: Any, kind: str, values: Any) -> Any:
    """Texts by a dictionary of string, all else as the few types that the other side knows."""
    types = arrow.types
    if kind == "text":
        if not types.is_dictionary(values.type):
            values = values.cast(arrow.string()).dictionary_encode()
        elif not _is_text(types, values.type.value_type):
            values = values.dictionary_decode().cast(arrow.string()).dictionary_encode()
        if len(values.dictionary) > 2 * len(values):  # it grows with every batch: what is used
            used = values.indices.unique().drop_null()
            places = arrow.compute.index_in(values.indices, used)
            values = arrow.DictionaryArray.from_arrays(places, values.dictionary.take(used))
        return values.cast(arrow.dictionary(arrow.int32(), arrow.string()))
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if kind == "null":
        return values.cast(arrow.string())
    if kind == "decimal":
        return values.cast(arrow.string())
    if types.is_floating(values.type):
        import numpy as np

        gaps = values.is_null().to_numpy(zero_copy_only=False)
        numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
        return arrow.array(numbers, mask=gaps)
    if types.is_integer(values.type):
        return values.cast(arrow.uint64() if values.type == arrow.uint64() else arrow.int64())
    return values


# ----------------------------------------------------------------------------------- workbooks


def _workbook(data: bytes, asked: dict[str, Any]) -> Iterator[dict[str, Any] | Any]:
    import pyarrow as arrow
    from python_calamine import CalamineWorkbook, SheetTypeEnum

    book = CalamineWorkbook.from_filelike(io.BytesIO(data))
    titles = [one.name for one in book.sheets_metadata if one.typ == SheetTypeEnum.WorkSheet]
    facts: dict[str, Any] = {"titles": titles}
    title = asked["sheet"] if asked["sheet"] is not None else next(iter(titles), None)
    if title not in titles:
        yield facts
        return
    if asked["format"] == ".xlsx":
        facts |= _look_at_sheet(data, title, asked)
    sheet = book.get_sheet_by_name(title)
    if sheet.height * sheet.width > _MOST_CELLS_OF_A_BOOK:
        raise Refused("cells")
    _, left = sheet.start or (0, 0)
    numbers: list[int] = []
    rows: list[list[Any]] = []
    cells = 0
    for number, row in enumerate(sheet.iter_rows(), 1):
        if number <= asked["skip"]:
            continue
        while row and row[-1] == "":
            row.pop()
        if not row:
            continue
        row = [""] * left + row
        cells += len(row)
        if len(row) > asked["columns"]:
            yield facts | {"wide": [number, len(row)]}
            return
        if cells > asked["cells"] or len(rows) >= asked["rows"]:
            raise Refused("cells")
        numbers.append(number)
        rows.append(list(map(_cell, row)))
    facts["header"] = rows.pop(0) if rows and asked["header"] else None
    facts["numbers"] = numbers
    facts["widths"] = list(map(len, rows))
    width = max((len(facts["header"] or ()), *facts["widths"]))
    facts["forms"], columns = [], []
    for place in range(width):
        form, column = _column(arrow, [row[place] if place < len(row) else None for row in rows])
        facts["forms"].append(form)
        columns.append(column)
    yield facts
    if rows:
        yield arrow.RecordBatch.from_arrays(columns, list(map(str, range(width))))


def _cell(value: Any) -> Any:
    """A cell as the other side knows them; a date is the beginning of its day."""
    if value == "" or isinstance(value, str | bool | float | int):
        return None if value == "" else value
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    return value.isoformat() if isinstance(value, datetime.datetime | datetime.time) else str(value)


def _column(arrow: Any, cells: list[Any]) -> tuple[str, Any]:
    kinds = {type(cell) for cell in cells} - {type(None)}
    if kinds <= {str}:
        return "plain", arrow.array(cells, arrow.string())
    if kinds == {bool}:
        return "plain", arrow.array(cells)
    if kinds <= {int, float}:
        return "number", arrow.array(cells, arrow.float64())
    for place, cell in enumerate(cells):
        if isinstance(cell, float) and cell % 1 == 0 and abs(cell) < 1e15:
            cells[place] = int(cell)
    texts = [None if cell is None else json.dumps(cell) for cell in cells]
    return "json", arrow.array(texts, arrow.string())


_ODD = re.compile(rb"""<(?:\w+:)?f[\s/>]|\bt=["']e["']|<!DOCTYPE""")


def _look_at_sheet(data: bytes, title: str, asked: dict[str, Any]) -> dict[str, Any]:
    """What calamine does not tell of a sheet: formulas, those without a value, and error cells."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        part = _part_of(archive, title)
        if part is None:
            return {}
        with archive.open(part) as stream:
            last, found = b"", False
            while not found and (chunk := stream.read(1 << 20)):
                found = _ODD.search(last + chunk) is not None
                last = chunk[-64:]
        if not found:
            return {}
        formulas = 0
        number = 0
        with archive.open(part) as stream:
            for _, element in ElementTree.iterparse(stream, ("end",)):
                if _name(element) != "row":
                    continue
                number = int(float(element.get("r") or number + 1))
                if number > asked["skip"]:
                    for place, cell in enumerate(element, 1):
                        text = "".join(
                            "".join(child.itertext()) for child in cell if _name(child) in "v is"
                        )
                        formula = any(_name(child) == "f" for child in cell)
                        formulas += formula
                        error = cell.get("t") == "e"
                        if (formula and not text) or (error and text not in asked["missing"]):
                            column = _letters(cell.get("r") or "") or place
                            return {"bad": [number, column, text if error else ""]}
                element.clear()
    return {"formulas": formulas}


def _part_of(archive: zipfile.ZipFile, title: str) -> str | None:
    """The path of a sheet in the archive."""
    names = {name.lower(): name for name in archive.namelist()}

    def links(part: str) -> dict[str, tuple[str, str]]:
        folder, _, base = part.rpartition("/")
        path = names.get(f"{folder}/_rels/{base}.rels".lstrip("/").lower())
        found = {}
        for one in ElementTree.fromstring(archive.read(path)) if path else ():
            target = one.get("Target", "")
            whole = target if target.startswith("/") else f"{folder}/{target}"
            steps: list[str] = []
            for step in whole.split("/"):
                steps = steps[:-1] if step == ".." else [*steps, step] if step else steps
            kind = one.get("Type", "").rpartition("/")[2]
            found[one.get("Id", "")] = kind, "/".join(steps)
        return found

    book = next((path for kind, path in links("").values() if kind == "officeDocument"), None)
    book = names.get((book or "xl/workbook.xml").lower())
    if book is None:
        return None
    known = links(book)
    for element in ElementTree.fromstring(archive.read(book)).iter():
        if _name(element) == "sheet" and element.get("name") == title:
            ids = [value for key, value in element.items() if key.endswith("}id")]
            return names.get(known.get(ids[0] if ids else "", ("", ""))[1].lower())
    return None


def _name(element: Any) -> str:
    return str(element.tag).rpartition("}")[2]


def _letters(where: str) -> int:
    """The number of a column, from 1, by its letters: 28 for AB7."""
    place = 0
    for letter in where.rstrip("0123456789").upper():
        place = 26 * place + ord(letter) - ord("A") + 1
    return place


# -------------------------------------------------------------------------------- the process


def limit(memory: int, seconds: int) -> None:
    """Bound this process; where the system cannot, the counts of the reader remain."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with open("/proc/self/statm") as file:  # on Linux
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))


def _main(out: IO[bytes]) -> None:
    asked = json.loads(sys.stdin.buffer.readline())
    sys.path[:] = asked["path"]
    import pyarrow as arrow
    import pyarrow.compute
    import pyarrow.parquet

    arrow.set_cpu_count(1)
    out.write(b'{"ready": true}\n')
    out.flush()
    data = sys.stdin.buffer.read()
    limit(asked["memory"], asked["seconds"])
    writer: Any = None
    options = arrow.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    for found in read_container(data, asked):
        if isinstance(found, dict):
            if writer is not None:
                writer.close()
            out.write(json.dumps(found).encode() + b"\n")
        else:
            if writer is None:
                out.write(b'{"rows": true}\n')
                out.flush()
                writer = arrow.ipc.new_stream(out, found.schema, options=options)
            writer.write_batch(found)
        out.flush()


if __name__ == "__main__":
    _main(sys.stdout.buffer)
