"""Small Parquet files and workbooks that ask for much memory or time."""

import gzip
import io
import struct
import zipfile
import zlib

from hostile.bombs import MB, fast, slow
from hostile.files import edited, parquet, workbook
from hostile.raw_parquet import (
    BYTE_ARRAY,
    PLAIN,
    billions,
    data_page,
    dictionary_page,
    raw_parquet,
    repeated,
)

SHEET = "xl/worksheets/sheet1.xml"
MAIN = b"http://schemas.openxmlformats.org/spreadsheetml/2006/main"


def packed_page(codec: str, size: int) -> bytes:
    """A page that unpacks to ``size`` zeros."""
    import pyarrow as arrow

    return bytes(arrow.Codec(codec).compress(b"\0" * size))


def page_bomb(codec: str, size: int = 1500 * MB) -> bytes:
    page = data_page(size // 8, packed_page(codec, size), PLAIN, size=size)
    return raw_parquet(page, rows=1000, codec=codec, columns=2, stated=1000)


def lying_page(size: int = 2**31 - 1) -> bytes:
    page = data_page(1000, packed_page("zstd", 8000), PLAIN, size=size)
    return raw_parquet(page, rows=1000, codec="zstd", columns=2)


def long_texts(length: int, rows: int) -> bytes:
    """One long text in a dictionary, for every row."""
    first = dictionary_page(1, length.to_bytes(4, "little") + b"x" * length)
    pages = first + data_page(rows, repeated(rows))
    return raw_parquet(pages, rows=rows, kind=BYTE_ARRAY, columns=2, dictionary=len(first))


def nested(depth: int) -> bytes:
    first = dictionary_page(1, bytes(8))
    pages = first + data_page(10, repeated(10))
    return raw_parquet(pages, rows=10, dictionary=len(first), depth=depth)


def parquet_of(rows: int, columns: int, **options) -> bytes:
    import numpy as np

    zeros = {f"c{i}": np.zeros(rows, np.int64) for i in range(columns)}
    return parquet(zeros, options=options)


PARQUET = [
    fast("x.parquet: two billion rows", lambda: billions(2000000000, columns=2)),
    fast("x.parquet: two billion values that are said to be ten",
         lambda: billions(2 * 10**9, columns=2, claimed=10)),
    fast("x.parquet: rows beyond all counting",
         lambda: billions(2**31 - 1, columns=2, groups=4000)),
    fast("x.parquet: a negative number of rows", lambda: billions(1000, columns=2, claimed=-5)),
    slow("x.parquet: forty million cells of a number", lambda: billions(2000000, columns=20)),
    slow("x.parquet: many row groups", lambda: billions(1, columns=2, groups=200000)),
    slow("x.parquet: columns by row groups", lambda: billions(1, columns=5000, groups=100)),
    slow("x.parquet: too many columns", lambda: billions(1, columns=200000)),
    slow("x.parquet: a wide table of few rows", lambda: billions(4000, columns=9999)),
    *(
        slow(f"x.parquet: a page that unpacks by {codec}", lambda codec=codec: page_bomb(codec))
        for codec in ("gzip", "brotli", "zstd")
    ),
    slow("x.parquet: a page that unpacks by snappy", lambda: page_bomb("snappy", 400 * MB)),
    fast("x.parquet: a page that lies", lying_page),
    fast("x.parquet: a page of a negative size", lambda: lying_page(-1)),
    fast("x.parquet: a long text in every row", lambda: long_texts(20000, 250000)),
    slow("x.parquet: a long text in a million rows", lambda: long_texts(MB, 1000000)),
    fast("x.parquet: a long text in a billion rows", lambda: long_texts(10 * MB, 1000000000)),
    slow("x.parquet: texts that grow", lambda: growing_texts(40000)),
    fast("x.parquet: groups in groups", lambda: nested(100)),
    fast("x.parquet: a hundred thousand groups in groups", lambda: nested(100000)),
    slow("x.parquet: real zeros", lambda: parquet_of(6000000, 8, row_group_size=6000000)),
    fast("x.parquet: a footer said to be large",
         lambda: b"PAR1" + b"\x00" * 100 + b"\xff\xff\xff\x7fPAR1"),
    slow("x.parquet.gz: gzip of zeros in Parquet", lambda: gzip.compress(
        b"PAR1" + bytes(200 * MB) + (200 * MB).to_bytes(4, "little") + b"PAR1")),
]  # fmt: skip


def sheet(rows: bytes, times: int = 1) -> bytes:
    """A workbook whose sheet holds ``rows``, repeated."""
    head = b"<worksheet xmlns='%s'><sheetData>" % MAIN
    return parts({SHEET: (head, rows, times, b"</sheetData></worksheet>")})


def styles(kind: bytes, piece: bytes, times: int = 1) -> bytes:
    head, tail = b"<styleSheet xmlns='%s'><%s>" % (MAIN, kind), b"</%s></styleSheet>" % kind
    return parts({"xl/styles.xml": (head, piece, times, tail)})


def parts(changed: dict, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A usual workbook with some parts replaced by (head, piece, times, tail)."""
    out = io.BytesIO()
    usual = workbook(["a", "b"], [1, "x"], [2, "y"])
    with zipfile.ZipFile(io.BytesIO(usual)) as before, zipfile.ZipFile(out, "w", method) as after:
        for entry in before.infolist():
            if entry.filename not in changed:
                after.writestr(entry.filename, before.read(entry))
        for name, (head, piece, times, tail) in changed.items():
            many = max(1, min(times, MB // max(1, len(piece))))
            with after.open(name, "w") as stream:
                stream.write(head)
                for _ in range(times // many):
                    stream.write(piece * many)
                stream.write(tail)
    return out.getvalue()


def laughs() -> bytes:
    """Entities that grow tenfold, ten times."""
    lines = [b'<!ENTITY e0 "ha">']
    lines += [b'<!ENTITY e%d "%s">' % (i, b"&e%d;" % (i - 1) * 10) for i in range(1, 11)]
    kind = b"<!DOCTYPE x [" + b"".join(lines) + b"]>"
    row = b"<row r='1'><c r='A1' t='inlineStr'><is><t>&e10;</t></is></c></row>"
    head = b"<?xml version='1.0'?>" + kind + b"<worksheet xmlns='%s'><sheetData>" % MAIN
    return parts({SHEET: (head, row, 1, b"</sheetData></worksheet>")})


def strings(piece: bytes, times: int, tail: bytes = b"</sst>") -> bytes:
    link = b"<Relationship Id='s' Target='/xl/sharedStrings.xml' Type='x/sharedStrings'/>"
    name = "xl/_rels/workbook.xml.rels"
    with zipfile.ZipFile(io.BytesIO(workbook(["a"], [1]))) as usual:
        links = usual.read(name).replace(b"</Relationships>", link + b"</Relationships>")
    head = b"<sst xmlns='%s'>" % MAIN
    return parts({name: (links, b"", 1, b""), "xl/sharedStrings.xml": (head, piece, times, tail)})


def many_sheets(count: int) -> bytes:
    space = b"xmlns:r='http://schemas.openxmlformats.org/officeDocument/2006/relationships'"
    named = b"<sheet name='s%d' sheetId='%d' %s r:id='rId1'/>"
    names = b"".join(named % (i, i + 1, space) for i in range(count))
    return edited(
        workbook(["a", "b"], [1, "x"]), "xl/workbook.xml", b"<sheets>", b"<sheets>" + names
    )


def overlapping() -> bytes:
    """Hundreds of parts that are all the same bytes of the file."""
    zeros = b"\0" * 10 * MB
    data = zlib.compress(zeros, 9)[2:-4]
    local = b"PK\x03\x04" + bytes(22) + struct.pack("<HH", 1, 0) + b"a" + data
    out = io.BytesIO(workbook(["a", "b"], [1, "x"]))
    with zipfile.ZipFile(out) as archive:
        start, count = archive.start_dir, len(archive.infolist())
    whole = out.getvalue()
    entry = b"PK\x01\x02" + bytes(6) + b"\x08\0" + bytes(4)
    entry += struct.pack("<IIIH", zlib.crc32(zeros), len(data), len(zeros), 4) + bytes(12)
    many = b"".join(entry + struct.pack("<I", start) + b"p%03d" % i for i in range(500))
    directory = whole[start:-22] + many
    end = b"PK\x05\x06" + bytes(4) + struct.pack("<HH", count + 500, count + 500)
    end += struct.pack("<IIH", len(directory), start + len(local), 0)
    return whole[:start] + local + directory + end


def far_cells(rows: int, column: bytes = b"XFD", value: bytes = b"<v>1</v>") -> bytes:
    cell = b"<row r='%d'><c r='%s%d'>%s</c></row>"
    return sheet(b"".join(cell % (i, column, i, value) for i in range(1, rows + 1)))


def growing_texts(rows: int) -> bytes:
    """Each text is the one before it and a letter more, and only that is written."""
    import pyarrow as arrow

    texts = arrow.array(("a" * i for i in range(rows)), arrow.large_string(), size=rows)
    delta = {"a": "DELTA_BYTE_ARRAY", "b": "DELTA_BYTE_ARRAY"}
    options = {"use_dictionary": False, "column_encoding": delta, "write_statistics": False}
    return parquet({"a": texts, "b": texts}, options=options)


WORKBOOKS = [
    fast("x.xlsx: a far cell in every row", lambda: far_cells(30000)),
    fast("x.xlsx: a cell not so far in every row", lambda: far_cells(30000, b"NTP")),
    fast("x.xlsx: nothing far away in every row", lambda: far_cells(30000, value=b"")),
    fast("x.xlsx: one far cell",
         lambda: sheet(b"<row r='1048576'><c r='XFD1048576'><v>1</v></c></row>")),
    fast("x.xlsx: a header and a far cell", lambda: sheet(
        b"<row r='1'><c r='A1' t='str'><v>a</v></c><c r='B1' t='str'><v>b</v></c></row>"
        b"<row r='1048576'><c r='B1048576'><v>1</v></c></row>")),
    slow("x.xlsx: rows without numbers",
         lambda: sheet(b"<row><c><v>1</v></c><c><v>2</v></c></row>", 1000000)),
    slow("x.xlsx: rows of nothing", lambda: sheet(b"<row/>", 30000000)),
    fast("x.xlsx: one number for all rows",
         lambda: sheet(b"<row r='1'><c><v>1</v></c></row>", 1000000)),
    fast("x.xlsx: cells of nothing",
         lambda: sheet(b"<row r='1'>" + b"<c/>" * 16000 + b"</row>", 1)),
    slow("x.xlsx: elements of nothing", lambda: sheet(b"<a/>", 100000000)),
    slow("x.xlsx: elements in elements", lambda: sheet(b"<a>", 20000000)),
    slow("x.xlsx: a long token", lambda: sheet(b"<a b='" + b"x" * 100 * MB + b"'/>")),
    fast("x.xlsx: many attributes",
         lambda: sheet(b"<a " + b" ".join(b"b%d='1'" % i for i in range(200000)) + b"/>")),
    slow("x.xlsx: a long text",
         lambda: sheet(b"<row><c t='str'><v>" + b"x" * 300 * MB + b"</v></c></row>")),
    slow("x.xlsx: a long text in pieces", lambda: sheet(
        b"<row><c t='inlineStr'><is><r><t>" + b"x</t></r><r><t>" * 3000000
        + b"</t></r></is></c></row>")),
    slow("x.xlsx: a long number",
         lambda: sheet(b"<row><c><v>" + b"1" * 4000 + b"</v></c></row>", 20000)),
    fast("x.xlsx: entities that grow", laughs),
    slow("x.xlsx: many strings", lambda: strings(b"<si><t>abc</t></si>", 20000000)),
    slow("x.xlsx: a long string", lambda: strings(b"<si><t>" + b"a" * 200 * MB + b"</t></si>", 1)),
    slow("x.xlsx: many styles", lambda: styles(b"cellXfs", b"<xf numFmtId='14'/>", 10000000)),
    slow("x.xlsx: many formats", lambda: styles(b"numFmts", b"".join(
        b"<numFmt numFmtId='%d' formatCode='%s'/>" % (i, b"[" * 2000) for i in range(200, 20000)))),
    fast("x.xlsx: many sheets", lambda: many_sheets(50000)),
    slow("x.xlsx: parts over one another", overlapping),
    fast("x.xlsx: many parts", lambda: parts({f"p{i}": (b"", b"", 1, b"") for i in range(20000)})),
    slow("x.xlsx: parts packed by LZMA",
         lambda: parts({SHEET: (b"<a>", b" " * 100, 3 * MB, b"</a>")}, zipfile.ZIP_LZMA)),
    slow("x.xlsx: blanks", lambda: sheet(b" " * 1000, 400000)),
]  # fmt: skip

BINARY_BOMBS = [*PARQUET, *WORKBOOKS]
