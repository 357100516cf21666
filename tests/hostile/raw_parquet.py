"""Parquet written byte by byte, so that it can say of itself what no library would write."""

PLAIN, RLE_DICTIONARY = 0, 8
INT64, BYTE_ARRAY = 2, 6
CODECS = {"none": 0, "snappy": 1, "gzip": 2, "brotli": 4, "zstd": 6, "lz4_raw": 7}


class Short(int):
    """An i32 of Thrift; a plain int is an i64."""


_TYPES = {Short: 5, int: 6, bytes: 8, str: 8, list: 9, dict: 12}


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def value_of(value) -> bytes:
    if isinstance(value, bytes | str):
        data = value.encode() if isinstance(value, str) else value
        return varint(len(data)) + data
    if isinstance(value, dict):
        return struct_of(value)
    if isinstance(value, list):
        kind = _TYPES[type(value[0])]
        head = bytes([len(value) << 4 | kind]) if len(value) < 15 else bytes([0xF0 | kind])
        return (
            head
            + (varint(len(value)) if len(value) >= 15 else b"")
            + b"".join(map(value_of, value))
        )
    return varint(2 * value if value >= 0 else -2 * value - 1)


def struct_of(fields: dict) -> bytes:
    """A struct in Thrift's compact protocol, its fields by number."""
    out, last = bytearray(), 0
    for number, value in sorted(fields.items()):
        out += bytes([(number - last) << 4 | _TYPES[type(value)]]) + value_of(value)
        last = number
    return bytes(out) + b"\0"


def dictionary_page(values: int, data: bytes, *, size: int | None = None) -> bytes:
    head = {1: Short(2), 2: Short(size or len(data)), 3: Short(len(data))}
    return struct_of(head | {7: {1: Short(values), 2: Short(PLAIN)}}) + data


def data_page(
    values: int, data: bytes, encoding: int = RLE_DICTIONARY, *, size: int | None = None
) -> bytes:
    head = {1: Short(0), 2: Short(size or len(data)), 3: Short(len(data))}
    facts = {1: Short(values), 2: Short(encoding), 3: Short(3), 4: Short(3)}
    return struct_of(head | {5: facts}) + data


def repeated(count: int) -> bytes:
    """The first entry of a dictionary, so often: one bit wide, one run."""
    return b"\x01" + varint(count << 1) + b"\0"


def raw_parquet(
    pages: bytes,
    *,
    rows: int,
    columns: int = 1,
    groups: int = 1,
    kind: int = INT64,
    codec: str = "none",
    dictionary: int = 0,
    values: int | None = None,
    stated: int | None = None,
    depth: int = 0,
) -> bytes:
    """A file of equal columns, all made of the same pages.

    Args:
        pages: of every column chunk.
        rows: of every row group.
        dictionary: length of the dictionary page at the beginning of ``pages``, if there is one.
        values: of a chunk, if not one a row.
        stated: bytes that a chunk claims to unpack to.
        depth: of groups around the first column.
    """
    size = stated or len(pages)
    schema: list[dict] = [{4: "schema", 5: Short(columns)}]
    path = [f"g{i}" for i in range(depth)]
    schema += [{3: Short(0), 4: name, 5: Short(1)} for name in path]
    names = [f"c{i}" for i in range(columns)]
    text = {6: Short(0)} if kind == BYTE_ARRAY else {}
    schema += [{1: Short(kind), 3: Short(0), 4: name} | text for name in names]

    def chunk(name: str, first: bool) -> dict:
        facts = {
            1: Short(kind),
            2: [Short(PLAIN), Short(3), Short(RLE_DICTIONARY)],
            3: [*(path if first else ()), name],
            4: Short(CODECS[codec]),
            5: rows if values is None else values,
            6: size,
            7: len(pages),
            9: 4 + dictionary,
        }
        return {2: 4, 3: facts | ({11: 4} if dictionary else {})}

    group = {1: [chunk(name, i == 0) for i, name in enumerate(names)], 2: size * columns, 3: rows}
    footer = struct_of({1: Short(1), 2: schema, 3: rows * groups, 4: [group] * groups})
    return b"PAR1" + pages + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def billions(rows: int, *, columns: int = 1, groups: int = 1, claimed: int | None = None) -> bytes:
    """One number in a dictionary, repeated ``rows`` times by a run of a few bytes."""
    first = dictionary_page(1, (7).to_bytes(8, "little"))
    pages = first + data_page(rows, repeated(rows))
    return raw_parquet(
        pages,
        rows=claimed or rows,
        values=rows,
        columns=columns,
        groups=groups,
        dictionary=len(first),
    )
