"""Small files that ask for much memory or time: each is refused, or read within limits.

Every builder returns the bytes of a file. They are made when they are needed.
"""

import gzip
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from hostile.files import HEAD

MB = 1 << 20


@dataclass(frozen=True)
class Bomb:
    """A file; ``slow`` if it takes more than a second or so to make or to read."""

    title: str
    file: str
    content: Callable[[], bytes]
    slow: bool = False


def slow(title: str, file: str, content: Callable[[], bytes]) -> Bomb:
    return Bomb(title, file, content, slow=True)


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
    slow("gzip of zeros", "x.csv.gz", lambda: squeezed(b"0" * 1000, 3 * MB)),
    slow("gzip of line ends", "x.csv.gz", lambda: squeezed(b"\n", 400 * MB)),
    slow("gzip of a blank line a row", "x.csv.gz", lambda: squeezed(b"a\n\n", 130 * MB)),
    slow("gzip of one letter a row", "x.csv.gz", lambda: squeezed(b"a\n", 200 * MB)),
    slow("gzip of rows", "x.csv.gz", lambda: squeezed(b"ab,cd\n", 80 * MB, b"a,b\n")),
    slow("gzip of quotes", "x.csv.gz", lambda: squeezed(b'"",""\n', 60 * MB, b"a,b\n")),
    slow("gzip of doubled quotes", "x.csv.gz", lambda: squeezed(b'"a""b",c\n', 50 * MB, b"a,b\n")),
    slow("gzip of commas", "x.csv.gz", lambda: squeezed(b",", 400 * MB)),
    slow("gzip of wide rows", "x.csv.gz", lambda: squeezed(b"0," * 999 + b"0\n", MB)),
    slow(
        "gzip of one wide character",
        "x.csv.gz",
        lambda: squeezed(b"ab,cd\n", 40 * MB, "😀,b\n".encode()),
    ),
    slow("gzip of blanks", "x.csv.gz", lambda: squeezed(b" ", 500 * MB, b"a,b\n1,2\n")),
    slow("gzip of words", "x.data.gz", lambda: squeezed(b"1 2 3\n", 80 * MB)),
    Bomb("empty gzip members", "x.csv.gz", lambda: gzip.compress(b"", mtime=0) * 100000),
    Bomb("empty xz streams", "x.csv.xz", lambda: lzma.compress(b"") * 100000),
    slow("empty Zstandard frames", "x.csv.zst", lambda: zst(b"") * 200000),
    slow("xz of commas", "x.csv.xz", lambda: xz(b"," * MB, 600)),
    slow("Zstandard of commas", "x.csv.zst", lambda: zst(b"," * MB, 3000)),
    Bomb("gzip within gzip", "x.csv.gz.gz", lambda: gzip.compress(squeezed(b"0", 100 * MB))),
    slow("gzip of Parquet", "x.parquet.gz", lambda: squeezed(b"\x00", 600 * MB, b"PAR1")),
    slow(
        "gzip of a directory of parts",
        "x.xlsx.gz",
        lambda: squeezed(b"PK\x01\x02" + b"\x00" * 42, 9 * MB, b"PK\x03\x04"),
    ),
]

TEXTS = [
    Bomb("a million columns", "x.csv", lambda: numbers(MB) + b"\n" + numbers(MB)),
    Bomb("one line of letters", "x.csv", lambda: b"a" * 64 * MB),
    Bomb("one line of fields", "x.csv", lambda: b"ab," * 20 * MB),
    slow("a second line of fields", "x.csv", lambda: b"a,b\n" + b"ab," * 10 * MB),
    slow("a second line of quoted fields", "x.csv", lambda: b"a,b\n" + b'"ab",' * 6 * MB),
    slow("one line of words", "x.data", lambda: b"ab " * 10 * MB),
    slow("one line of quoted words", "x.data", lambda: b'"a" ' * 6 * MB + b"b"),
    slow("one line of quotes", "x.csv", lambda: b'"' * 32 * MB),
    slow("a quote never closed", "x.csv", lambda: b'a,b\n1,"' + b"\n" * 20 * MB),
    slow("a quote never closed, in many lines", "x.csv", lambda: b'a,b\n1,"' + b"x,y\n" * 6 * MB),
    slow("carriage returns", "x.csv", lambda: b"a,b\r" + b"1,2\r" * 2 * MB),
    slow("line ends of all kinds", "x.csv", lambda: b"a,b\r\n" + b"\r\n\n\r" * 2 * MB),
    Bomb("every delimiter", "x.txt", lambda: b",;\t| " * MB + b"\n" + b",;\t| " * MB),
    slow(
        "a million classes",
        "x.csv",
        lambda: b"a,b\n" + b"".join(b"%d,k%d\n" % (i % 7, i) for i in range(MB)),
    ),
    Bomb(
        "classes that differ in writing only",
        "x.csv",
        lambda: b"a,b\n" + b"".join(b"%d,1.%s\n" % (i % 7, b"0" * (i % 3000)) for i in range(6000)),
    ),
    slow(
        "long classes",
        "x.csv",
        lambda: b"a,b\n" + b"".join(b"%d,%s\n" % (i, b"k" * i) for i in range(0, 50000, 25)),
    ),
    Bomb(
        "long names",
        "x.csv",
        lambda: (
            b",".join(b"%d" % i + b"n" * 10000 for i in range(900)) + b"\n" + b"1," * 899 + b"1\n"
        ),
    ),
    slow(
        "a million levels in each of ten columns",
        "x.csv",
        lambda: (
            b"a,b,c,d,e,f,g,h,i,y\n"
            + b"".join(b",".join([b"k%d" % i] * 9) + b",%d\n" % (i % 2) for i in range(300000))
        ),
    ),
    Bomb(
        "numbers of a million digits",
        "x.csv",
        lambda: b"a,b\n" + (b"1" * MB + b",x\n" + b"2,y\n") * 8,
    ),
    Bomb("UTF-16 that is none", "x.csv", lambda: b"\xff\xfe" + b"a" * 20 * MB),
    slow("NUL at the end", "x.csv", lambda: b"a,b\n" + b"1,2\n" * 5 * MB + b"\x00"),
    slow("a bad byte at the end", "x.csv", lambda: b"a,b\n" + b"1,2\n" * 5 * MB + b"\xff"),
    slow(
        "one wide character at the end",
        "x.csv",
        lambda: b"a,b\n" + b"1,2\n" * 2 * MB + "3,😀\n".encode(),
    ),
    slow("25 million rows", "x.csv", lambda: b"a,y\n" + b"1,p\n2,q\n" * (12 * MB)),
    slow(
        "half a GB of numbers", "x.csv", lambda: b"a,b,y\n" + b"0.1234567,1234.5678,p\n" * 23 * MB
    ),
    slow(
        "rows with quotes and blanks", "x.csv", lambda: b"a,y\n" + b'"1", "p"\n"2" ,q\n' * (6 * MB)
    ),
    slow("rows of words and tabs", "x.data", lambda: b"1 \t2 p\n3\t 4 q\n" * (6 * MB)),
    slow(
        "six million classes",
        "x.csv",
        lambda: b"a,y\n" + b"".join(b"%d,k%d\n" % (i % 7, i) for i in range(6 * MB)),
    ),
]


def attributes(count: int) -> bytes:
    return b"".join(b"@attribute a%d real\n" % i for i in range(count))


ARFF = [
    Bomb("many attributes", "x.arff", lambda: attributes(130000) + b"@data\n"),
    slow(
        "many levels, the last twice",
        "x.arff",
        lambda: b"@attribute a {" + numbers(400000) + b",399999}\n@data\n",
    ),
    slow("gzip of levels", "x.arff.gz", lambda: squeezed(b"a,", 200 * MB, b"@attribute a {")),
    Bomb("one long row", "x.arff", lambda: HEAD + b"1," * 3 * MB),
    Bomb("one long quoted row", "x.arff", lambda: HEAD + b"'1'," * 3 * MB),
    Bomb("quotes never closed", "x.arff", lambda: HEAD + b"1,'" + b"\\'" * 3 * MB),
    slow("many comments", "x.arff", lambda: b"%\n" * 2 * MB + HEAD + b"1,x\n" + b"%\n" * 2 * MB),
    slow("gzip of comments", "x.arff.gz", lambda: squeezed(b"%\n", 250 * MB, HEAD)),
    slow("gzip of rows", "x.arff.gz", lambda: squeezed(b"1,x\n", 100 * MB, HEAD)),
    slow("gzip of quoted rows", "x.arff.gz", lambda: squeezed(b"1,'x'\n", 80 * MB, HEAD)),
    Bomb("a sparse row far out", "x.arff", lambda: HEAD + b"{4000000000 1}\n"),
    Bomb("blanks", "x.arff", lambda: HEAD + b"1," + b" " * 20 * MB + b"x\n"),
]

TEXT_BOMBS = [*PACKED, *TEXTS, *ARFF]
