"""Small files that ask for much memory or time: each is refused, or read within limits.

Every builder returns the bytes of a file. They are made when they are needed.
"""

import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from hostile.files import HEAD, edited, workbook
from hostile.raw_parquet import (
    BYTE_ARRAY,
    PLAIN,
    billions,
    data_page,
    dictionary_page,
    raw_parquet,
    repeated,
)

MB = 1 << 20
SHEET = "xl/worksheets/sheet1.xml"


@dataclass(frozen=True)
class Bomb:
    """A file; ``slow`` if it takes more than a second or so to make or to read."""

    title: str
    file: str
    content: Callable[[], bytes]
    slow: bool = False


def squeezed(piece: bytes, times: int, head: bytes = b"") -> bytes:
    """gzip of a long repetition, not made in memory."""
    packer = zlib.compressobj(9, wbits=31)
    many = piece * max(1, MB // len(piece))
    parts = [packer.compress(head)]
    parts += [packer.compress(many) for _ in range(max(1, times * len(piece) // len(many)))]
    return b"".join([*parts, packer.flush()])


def zst(data: bytes, times: int = 1) -> bytes:
    import zstandard

    packer = zstandard.ZstdCompressor(level=1).compressobj()
    return b"".join([*(packer.compress(data) for _ in range(times)), packer.flush()])


def xz(piece: bytes, times: int) -> bytes:
    packer = lzma.LZMACompressor(preset=0)
    return b"".join([*(packer.compress(piece) for _ in range(times)), packer.flush()])


def numbers(count: int, form: str = "{}", between: str = ",") -> bytes:
    return between.join(form.format(i) for i in range(count)).encode()


PACKED = [
    Bomb("gzip of zeros", "x.csv.gz", lambda: squeezed(b"0" * 1000, 3 * MB), slow=True),
    Bomb("gzip of line ends", "x.csv.gz", lambda: squeezed(b"\n", 400 * MB), slow=True),
    Bomb("gzip of a blank line a row", "x.csv.gz", lambda: squeezed(b"a\n\n", 130 * MB), slow=True),
    Bomb("gzip of one letter a row", "x.csv.gz", lambda: squeezed(b"a\n", 200 * MB), slow=True),
    Bomb("gzip of rows", "x.csv.gz", lambda: squeezed(b"ab,cd\n", 80 * MB, b"a,b\n"), slow=True),
    Bomb("gzip of quotes", "x.csv.gz", lambda: squeezed(b'"",""\n', 60 * MB, b"a,b\n"), slow=True),
    Bomb(
        "gzip of doubled quotes",
        "x.csv.gz",
        lambda: squeezed(b'"a""b",c\n', 50 * MB, b"a,b\n"),
        slow=True,
    ),
    Bomb("gzip of commas", "x.csv.gz", lambda: squeezed(b",", 400 * MB)),
    Bomb("gzip of wide rows", "x.csv.gz", lambda: squeezed(b"0," * 999 + b"0\n", MB), slow=True),
    Bomb(
        "gzip of one wide character",
        "x.csv.gz",
        lambda: squeezed(b"ab,cd\n", 40 * MB, "😀,b\n".encode()),
        slow=True,
    ),
    Bomb("gzip of blanks", "x.csv.gz", lambda: squeezed(b" ", 500 * MB, b"a,b\n1,2\n"), slow=True),
    Bomb("gzip of words", "x.data.gz", lambda: squeezed(b"1 2 3\n", 80 * MB), slow=True),
    Bomb("empty gzip members", "x.csv.gz", lambda: gzip.compress(b"", mtime=0) * 100_000),
    Bomb("empty xz streams", "x.csv.xz", lambda: lzma.compress(b"") * 100_000),
    Bomb("empty Zstandard frames", "x.csv.zst", lambda: zst(b"") * 200_000),
    Bomb("xz of commas", "x.csv.xz", lambda: xz(b"," * MB, 600), slow=True),
    Bomb("Zstandard of commas", "x.csv.zst", lambda: zst(b"," * MB, 3000)),
    Bomb("gzip within gzip", "x.csv.gz.gz", lambda: gzip.compress(squeezed(b"0", 100 * MB))),
    Bomb("gzip of Parquet", "x.parquet.gz", lambda: squeezed(b"\0", 600 * MB, b"PAR1"), slow=True),
    Bomb(
        "gzip of a directory of parts",
        "x.xlsx.gz",
        lambda: squeezed(b"PK\x01\x02" + b"\0" * 42, 9 * MB, b"PK\x03\x04"),
        slow=True,
    ),
]

TEXTS = [
    Bomb("a million columns", "x.csv", lambda: numbers(MB) + b"\n" + numbers(MB)),
    Bomb("one line of letters", "x.csv", lambda: b"a" * 64 * MB),
    Bomb("one line of fields", "x.csv", lambda: b"ab," * 20 * MB),
    Bomb("a second line of fields", "x.csv", lambda: b"a,b\n" + b"ab," * 10 * MB),
    Bomb("a second line of quoted fields", "x.csv", lambda: b"a,b\n" + b'"ab",' * 6 * MB),
    Bomb("one line of words", "x.data", lambda: b"ab " * 10 * MB),
    Bomb("one line of quoted words", "x.data", lambda: b'"a" ' * 6 * MB + b"b"),
    Bomb("one line of quotes", "x.csv", lambda: b'"' * 32 * MB),
    Bomb("a quote never closed", "x.csv", lambda: b'a,b\n1,"' + b"\n" * 20 * MB),
    Bomb("a quote never closed, in many lines", "x.csv", lambda: b'a,b\n1,"' + b"x,y\n" * 6 * MB),
    Bomb("carriage returns", "x.csv", lambda: b"a,b\r" + b"1,2\r" * 2 * MB, slow=True),
    Bomb("line ends of all kinds", "x.csv", lambda: b"a,b\r\n" + b"\r\n\n\r" * 2 * MB, slow=True),
    Bomb("every delimiter", "x.txt", lambda: b",;\t| " * MB + b"\n" + b",;\t| " * MB),
    Bomb(
        "a million classes",
        "x.csv",
        lambda: b"a,b\n" + b"".join(b"%d,k%d\n" % (i % 7, i) for i in range(MB)),
        slow=True,
    ),
    Bomb(
        "classes that differ in writing only",
        "x.csv",
        lambda: b"a,b\n" + b"".join(b"%d,1.%s\n" % (i % 7, b"0" * (i % 3000)) for i in range(6000)),
    ),
    Bomb(
        "long classes",
        "x.csv",
        lambda: b"a,b\n" + b"".join(b"%d,%s\n" % (i, b"k" * i) for i in range(0, 50_000, 25)),
        slow=True,
    ),
    Bomb(
        "long names",
        "x.csv",
        lambda: (
            b",".join(b"%d" % i + b"n" * 10_000 for i in range(900)) + b"\n" + b"1," * 899 + b"1\n"
        ),
    ),
    Bomb(
        "a million levels in each of ten columns",
        "x.csv",
        lambda: (
            b"a,b,c,d,e,f,g,h,i,y\n"
            + b"".join(b",".join([b"k%d" % i] * 9) + b",%d\n" % (i % 2) for i in range(300_000))
        ),
        slow=True,
    ),
    Bomb(
        "numbers of a million digits",
        "x.csv",
        lambda: b"a,b\n" + (b"1" * MB + b",x\n" + b"2,y\n") * 8,
    ),
    Bomb("UTF-16 that is none", "x.csv", lambda: b"\xff\xfe" + b"a" * 20 * MB),
    Bomb("NUL at the end", "x.csv", lambda: b"a,b\n" + b"1,2\n" * 5 * MB + b"\0"),
    Bomb("a bad byte at the end", "x.csv", lambda: b"a,b\n" + b"1,2\n" * 5 * MB + b"\xff"),
    Bomb(
        "one wide character at the end",
        "x.csv",
        lambda: b"a,b\n" + b"1,2\n" * 2 * MB + "3,😀\n".encode(),
        slow=True,
    ),
]


def attributes(count: int) -> bytes:
    return b"".join(b"@attribute a%d real\n" % i for i in range(count))


ARFF = [
    Bomb("many attributes", "x.arff", lambda: attributes(130_000) + b"@data\n"),
    Bomb(
        "many levels, the last twice",
        "x.arff",
        lambda: b"@attribute a {" + numbers(400_000) + b",399999}\n@data\n",
        slow=True,
    ),
    Bomb(
        "gzip of levels",
        "x.arff.gz",
        lambda: squeezed(b"a,", 200 * MB, b"@attribute a {"),
        slow=True,
    ),
    Bomb("one long row", "x.arff", lambda: HEAD + b"1," * 3 * MB),
    Bomb("one long quoted row", "x.arff", lambda: HEAD + b"'1'," * 3 * MB),
    Bomb("quotes never closed", "x.arff", lambda: HEAD + b"1,'" + b"\\'" * 3 * MB),
    Bomb(
        "many comments",
        "x.arff",
        lambda: b"%\n" * 2 * MB + HEAD + b"1,x\n" + b"%\n" * 2 * MB,
        slow=True,
    ),
    Bomb("gzip of comments", "x.arff.gz", lambda: squeezed(b"%\n", 250 * MB, HEAD), slow=True),
    Bomb("gzip of rows", "x.arff.gz", lambda: squeezed(b"1,x\n", 100 * MB, HEAD), slow=True),
    Bomb(
        "gzip of quoted rows", "x.arff.gz", lambda: squeezed(b"1,'x'\n", 80 * MB, HEAD), slow=True
    ),
    Bomb("a sparse row far out", "x.arff", lambda: HEAD + b"{4000000000 1}\n"),
    Bomb("blanks", "x.arff", lambda: HEAD + b"1," + b" " * 20 * MB + b"x\n"),
]


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
    import pyarrow as arrow
    import pyarrow.parquet

    out = io.BytesIO()
    names = [f"c{i}" for i in range(columns)]
    data = [arrow.array(np.zeros(rows, np.int64))] * columns
    arrow.parquet.write_table(arrow.table(data, names=names), out, **options)
    return out.getvalue()


PARQUET = [
    Bomb("two billion rows", "x.parquet", lambda: billions(2_000_000_000, columns=2)),
    Bomb(
        "two billion values that are said to be ten",
        "x.parquet",
        lambda: billions(2_000_000_000, columns=2, claimed=10),
    ),
    Bomb(
        "rows beyond all counting", "x.parquet", lambda: billions(2**31 - 1, columns=2, groups=4000)
    ),
    Bomb("a negative number of rows", "x.parquet", lambda: billions(1000, columns=2, claimed=-5)),
    Bomb(
        "forty million cells of a number",
        "x.parquet",
        lambda: billions(2_000_000, columns=20),
        slow=True,
    ),
    Bomb("many row groups", "x.parquet", lambda: billions(1, columns=2, groups=200_000), slow=True),
    Bomb(
        "columns by row groups",
        "x.parquet",
        lambda: billions(1, columns=5000, groups=100),
        slow=True,
    ),
    Bomb("too many columns", "x.parquet", lambda: billions(1, columns=200_000), slow=True),
    Bomb("a wide table of few rows", "x.parquet", lambda: billions(4000, columns=9999), slow=True),
    *(
        Bomb(
            f"a page that unpacks by {codec}",
            "x.parquet",
            lambda codec=codec: page_bomb(codec),
            slow=True,
        )
        for codec in ("gzip", "brotli", "zstd")
    ),
    Bomb(
        "a page that unpacks by snappy",
        "x.parquet",
        lambda: page_bomb("snappy", 400 * MB),
        slow=True,
    ),
    Bomb("a page that lies", "x.parquet", lying_page),
    Bomb("a page of a negative size", "x.parquet", lambda: lying_page(-1)),
    Bomb(
        "a long text in a million rows", "x.parquet", lambda: long_texts(MB, 1_000_000), slow=True
    ),
    Bomb("a long text in a billion rows", "x.parquet", lambda: long_texts(10 * MB, 1_000_000_000)),
    Bomb("groups in groups", "x.parquet", lambda: nested(100)),
    Bomb("a hundred thousand groups in groups", "x.parquet", lambda: nested(100_000)),
    Bomb(
        "real zeros",
        "x.parquet",
        lambda: parquet_of(6_000_000, 8, row_group_size=6_000_000),
        slow=True,
    ),
    Bomb(
        "a footer said to be large",
        "x.parquet",
        lambda: b"PAR1" + b"\0" * 100 + b"\xff\xff\xff\x7fPAR1",
    ),
    Bomb(
        "gzip of zeros in Parquet",
        "x.parquet.gz",
        lambda: gzip.compress(
            b"PAR1" + bytes(200 * MB) + (200 * MB).to_bytes(4, "little") + b"PAR1"
        ),
        slow=True,
    ),
]


def sheet(
    rows: bytes, times: int = 1, part: str = SHEET, tail: bytes = b"", **texts: bytes
) -> bytes:
    """A workbook whose sheet holds ``rows``, repeated."""
    return parts(
        {
            part: (
                b"<worksheet xmlns='%s'><sheetData>" % MAIN,
                rows,
                times,
                b"</sheetData></worksheet>" + tail,
            )
        }
        | texts
    )


MAIN = b"http://schemas.openxmlformats.org/spreadsheetml/2006/main"


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
    names = b"".join(
        b"<sheet name='s%d' sheetId='%d' r:id='rId1'/>" % (i, i + 1) for i in range(count)
    )
    old = b"<sheet "
    whole = workbook(["a", "b"], [1, "x"])
    return edited(
        whole,
        "xl/workbook.xml",
        b"<sheets>"
        if b"<sheets>" in zipfile.ZipFile(io.BytesIO(whole)).read("xl/workbook.xml")
        else old,
        b"<sheets>"
        + names.replace(
            b"r:id",
            b"xmlns:r='http://schemas.openxmlformats.org/officeDocument/2006/relationships' r:id",
        ),
    )


def overlapping() -> bytes:
    """Hundreds of parts that are all the same bytes of the file."""
    data = zlib.compress(b"\0" * 10 * MB, 9)[2:-4]
    local = b"PK\x03\x04" + bytes(22) + (1).to_bytes(2, "little") + bytes(2) + b"a" + data
    out = io.BytesIO(workbook(["a", "b"], [1, "x"]))
    with zipfile.ZipFile(out) as archive:
        start, count = archive.start_dir, len(archive.infolist())
    whole = out.getvalue()
    entries = whole[start:-22]
    many = b"".join(
        b"PK\x01\x02"
        + bytes(6)
        + b"\x08\0"
        + bytes(4)
        + zlib.crc32(b"\0" * 10 * MB).to_bytes(4, "little")
        + len(data).to_bytes(4, "little")
        + (10 * MB).to_bytes(4, "little")
        + (4).to_bytes(2, "little")
        + bytes(12)
        + start.to_bytes(4, "little")
        + b"p%03d" % i
        for i in range(500)
    )
    directory = entries + many
    end = b"PK\x05\x06" + bytes(4) + 2 * (count + 500).to_bytes(2, "little")
    end += (
        len(directory).to_bytes(4, "little") + (start + len(local)).to_bytes(4, "little") + bytes(2)
    )
    return whole[:start] + local + directory + end


def far_cells(rows: int) -> bytes:
    return sheet(
        b"".join(
            b"<row r='%d'><c r='XFD%d'><v>1</v></c></row>" % (i, i) for i in range(1, rows + 1)
        )
    )


WORKBOOKS = [
    Bomb("a far cell in every row", "x.xlsx", lambda: far_cells(200_000), slow=True),
    Bomb(
        "one far cell",
        "x.xlsx",
        lambda: sheet(b"<row r='1048576'><c r='XFD1048576'><v>1</v></c></row>"),
    ),
    Bomb(
        "a header and a far cell",
        "x.xlsx",
        lambda: sheet(
            b"<row r='1'><c r='A1' t='str'><v>a</v></c><c r='B1' t='str'><v>b</v></c></row><row r='1048576'><c r='B1048576'><v>1</v></c></row>"
        ),
    ),
    Bomb(
        "rows without numbers",
        "x.xlsx",
        lambda: sheet(b"<row><c><v>1</v></c><c><v>2</v></c></row>", 1_000_000),
        slow=True,
    ),
    Bomb("rows of nothing", "x.xlsx", lambda: sheet(b"<row/>", 30_000_000), slow=True),
    Bomb(
        "one number for all rows",
        "x.xlsx",
        lambda: sheet(b"<row r='1'><c><v>1</v></c></row>", 1_000_000),
    ),
    Bomb(
        "cells of nothing",
        "x.xlsx",
        lambda: sheet(b"<row r='1'>" + b"<c/>" * 16_000 + b"</row>", 1),
    ),
    Bomb("elements of nothing", "x.xlsx", lambda: sheet(b"<a/>", 100_000_000), slow=True),
    Bomb("elements in elements", "x.xlsx", lambda: sheet(b"<a>", 20_000_000), slow=True),
    Bomb("a long token", "x.xlsx", lambda: sheet(b"<a b='" + b"x" * 100 * MB + b"'/>"), slow=True),
    Bomb(
        "many attributes",
        "x.xlsx",
        lambda: sheet(b"<a " + b" ".join(b"b%d='1'" % i for i in range(200_000)) + b"/>"),
    ),
    Bomb(
        "a long text",
        "x.xlsx",
        lambda: sheet(b"<row><c t='str'><v>" + b"x" * 300 * MB + b"</v></c></row>"),
        slow=True,
    ),
    Bomb(
        "a long text in pieces",
        "x.xlsx",
        lambda: sheet(
            b"<row><c t='inlineStr'><is><r><t>"
            + b"x</t></r><r><t>" * 3_000_000
            + b"</t></r></is></c></row>"
        ),
        slow=True,
    ),
    Bomb(
        "a long number",
        "x.xlsx",
        lambda: sheet(b"<row><c><v>" + b"1" * 4000 + b"</v></c></row>", 20_000),
        slow=True,
    ),
    Bomb("entities that grow", "x.xlsx", laughs),
    Bomb("many strings", "x.xlsx", lambda: strings(b"<si><t>abc</t></si>", 20_000_000), slow=True),
    Bomb(
        "a long string",
        "x.xlsx",
        lambda: strings(b"<si><t>" + b"a" * 200 * MB + b"</t></si>", 1),
        slow=True,
    ),
    Bomb(
        "many styles",
        "x.xlsx",
        lambda: parts(
            {
                "xl/styles.xml": (
                    b"<styleSheet xmlns='%s'><cellXfs>" % MAIN,
                    b"<xf numFmtId='14'/>",
                    10_000_000,
                    b"</cellXfs></styleSheet>",
                )
            }
        ),
        slow=True,
    ),
    Bomb(
        "many formats",
        "x.xlsx",
        lambda: parts(
            {
                "xl/styles.xml": (
                    b"<styleSheet xmlns='%s'><numFmts>" % MAIN,
                    b"".join(
                        b"<numFmt numFmtId='%d' formatCode='%s'/>" % (i, b"[" * 2000)
                        for i in range(200, 20_000)
                    ),
                    1,
                    b"</numFmts></styleSheet>",
                )
            }
        ),
        slow=True,
    ),
    Bomb("many sheets", "x.xlsx", lambda: many_sheets(50_000)),
    Bomb("parts over one another", "x.xlsx", overlapping),
    Bomb(
        "many parts", "x.xlsx", lambda: parts({f"p{i}": (b"", b"", 1, b"") for i in range(20_000)})
    ),
    Bomb(
        "parts packed by LZMA",
        "x.xlsx",
        lambda: parts({SHEET: (b"<a>", b" " * 100, 3 * MB, b"</a>")}, zipfile.ZIP_LZMA),
        slow=True,
    ),
    Bomb("blanks", "x.xlsx", lambda: sheet(b" " * 1000, 400_000), slow=True),
]

BOMBS = [*PACKED, *TEXTS, *ARFF, *PARQUET, *WORKBOOKS]
