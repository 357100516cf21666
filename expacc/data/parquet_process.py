"""Parquet by pyarrow, batch by batch, in a process of its own with a limit on memory and time.

A few bytes of Parquet can ask for any amount of memory, within pyarrow, where nothing else can hold
it. This file is run by its path, so that the process starts at once: it imports nothing of ours.
What goes in and out is JSON with bytes behind it.
"""

import decimal
import itertools
import json
import struct
import sys
from collections.abc import Iterator
from typing import IO, Any

__all__ = ["Frame", "frames", "read_frame"]

Frame = tuple[dict[str, Any], bytes]
_HEAD = struct.Struct("<II")
_MOST_HEAD = 64 << 20
_BATCH_ROWS, _BATCH_CELLS = 1 << 16, 1 << 21


def write_frame(out: IO[bytes], frame: Frame) -> None:
    """Lengths, JSON, bytes."""
    head = json.dumps(frame[0]).encode()
    out.write(_HEAD.pack(len(head), len(frame[1])) + head)
    out.write(frame[1])
    out.flush()


def read_frame(stream: IO[bytes]) -> Frame | None:
    """What ``write_frame`` wrote, or None if it ends before."""
    lengths = stream.read(_HEAD.size)
    if len(lengths) < _HEAD.size:
        return None
    head, body = _HEAD.unpack(lengths)
    text = stream.read(min(head, _MOST_HEAD))
    data = stream.read(body)
    if len(text) < head or len(data) < body:
        return None
    return json.loads(text), data


def frames(data: bytes) -> Iterator[Frame]:
    """What the file says of itself; then batches of rows; then the end, or an error."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    try:
        file = parquet.ParquetFile(arrow.BufferReader(data))
        schema, meta = file.schema_arrow, file.metadata
        groups = range(meta.num_row_groups)
        kinds = [_kind(arrow.types, field.type) for field in schema]
        yield (
            {
                "names": schema.names,
                "kinds": kinds,
                "types": [str(field.type)[:80] for field in schema],
                "rows": meta.num_rows,
                "leaves": meta.num_columns,
                "bytes": sum(meta.row_group(group).total_byte_size for group in groups),
            },
            b"",
        )
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
        columns = [_Column(arrow, kind) for kind in kinds]
        for batch in file.iter_batches(rows, use_threads=False):
            parts, payload = [], []
            for column, values in zip(columns, batch.columns, strict=True):
                part, data_of_it = column.pack(values)
                parts.append(part)
                payload += data_of_it
            yield {"rows": batch.num_rows, "parts": parts}, b"".join(payload)
        yield {"end": True}, b""
    except MemoryError:  # pyarrow's own is one too
        yield {"error": "memory"}, b""
    except Exception as error:  # pyarrow raises what its parts raise
        lines = str(error).splitlines() or [type(error).__name__]
        yield {"error": "damaged", "reason": lines[0][:200].rstrip(".")}, b""


def _by_differences(chunk: Any) -> bool:
    """Whether a chunk is written in a way that pyarrow makes no dictionary of."""
    return any(name.startswith("DELTA") for name in chunk.encodings)


def _is_text(types: Any, kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _kind(types: Any, kind: Any) -> str:
    """How a column is packed, or '' if it is neither number nor text."""
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


class _Column:
    """What is packed of one column, and the texts that were sent."""

    def __init__(self, arrow: Any, kind: str) -> None:
        self.arrow = arrow
        self.kind = kind
        self.known: dict[str | None, int] = {None: -1}
        self.seen: Any = None  # the dictionary of the last batch
        self.places: Any = None  # of its texts among all

    def pack(self, values: Any) -> tuple[dict[str, Any], list[bytes]]:
        """Facts on a batch, and its bytes."""
        types = self.arrow.types
        if self.kind == "null":
            return {}, []
        if types.is_dictionary(values.type) and not _is_text(types, values.type.value_type):
            values = values.dictionary_decode()
        if self.kind == "decimal":
            text = json.dumps([_number(cell) for cell in values.to_pylist()])
            return {"size": len(text)}, [text.encode()]
        if self.kind == "text":
            return self._texts(values)
        gaps = []
        if values.null_count:
            gaps = [values.is_null().to_numpy(zero_copy_only=False).tobytes()]
            values = values.fill_null(False if self.kind == "boolean" else 0)
        numbers = values.to_numpy(zero_copy_only=False)
        return {"type": numbers.dtype.str, "gaps": bool(gaps)}, [numbers.tobytes(), *gaps]

    def _texts(self, values: Any) -> tuple[dict[str, Any], list[bytes]]:
        import numpy as np

        if not self.arrow.types.is_dictionary(values.type):
            if self.arrow.types.is_temporal(values.type):
                values = values.cast(self.arrow.string())
            values = values.dictionary_encode()
        # Within a row group the dictionary of the last batch stays, and may have grown.
        dictionary, last = values.dictionary, self.seen
        if last is None or not dictionary.slice(0, len(last)).equals(last):
            last, self.places = dictionary.slice(0, 0), np.empty(0, np.int32)
        texts = dictionary.slice(len(last)).to_numpy(zero_copy_only=False).tolist()
        known = self.known
        fresh = list(dict.fromkeys(text for text in texts if text not in known))
        known.update(zip(fresh, itertools.count(len(known) - 1)))  # None is there from the start
        places = np.fromiter(map(known.__getitem__, texts), np.int32, len(texts))
        self.seen, self.places = dictionary, np.concatenate([self.places, places])
        codes = values.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        found = np.append(self.places, np.int32(-1))[codes]  # -1 takes the last
        joined = "".join(fresh).encode()
        lengths = np.fromiter(map(len, fresh), np.uint32, len(fresh)).tobytes()
        part = {"texts": len(fresh), "size": len(joined)}
        return part, [lengths, joined, found.astype(np.int32).tobytes()]


def _number(cell: object) -> object:
    if isinstance(cell, decimal.Decimal):
        return int(cell) if cell == cell.to_integral_value() else float(cell)
    return cell


def _limit(memory: int, seconds: int) -> None:
    """Bound this process; where the system cannot, the counts of the reader remain."""
    try:
        import resource

        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
    except (ImportError, OSError, ValueError):
        pass
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, ValueError):
        pass


def _main() -> None:
    asked = json.loads(sys.stdin.buffer.readline())
    sys.path[:] = asked["path"]
    import pyarrow.parquet

    pyarrow.set_cpu_count(1)
    write_frame(sys.stdout.buffer, ({"ready": True}, b""))
    data = sys.stdin.buffer.read()
    _limit(asked["memory"], asked["seconds"])
    for frame in frames(data):
        write_frame(sys.stdout.buffer, frame)


if __name__ == "__main__":
    _main()
