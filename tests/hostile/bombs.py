"""Small files that ask for much memory or time: each is refused, or read within limits.

Every builder returns the bytes of a file. They are made when they are needed.
"""

import gzip
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from hostile.files import HEAD

MB = 1 << 20


@dataclass(frozen=True)
class Bomb:
    """A file; ``slow`` if it takes more than a second or so to make or to read."""

    key: str  # "file: what"
    content: Callable[[], bytes]
    slow: bool

    @property
    def file(self) -> str:
        return self.key.partition(": ")[0]


fast, slow = partial(Bomb, slow=False), partial(Bomb, slow=True)


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
    slow("x.csv.gz: gzip of zeros", lambda: squeezed(b"0" * 1000, 3 * MB)),
    slow("x.csv.gz: gzip of line ends", lambda: squeezed(b"\n", 400 * MB)),
    slow("x.csv.gz: gzip of a blank line a row", lambda: squeezed(b"a\n\n", 130 * MB)),
    slow("x.csv.gz: gzip of one letter a row", lambda: squeezed(b"a\n", 200 * MB)),
    slow("x.csv.gz: gzip of rows", lambda: squeezed(b"ab,cd\n", 80 * MB, b"a,b\n")),
    slow("x.csv.gz: gzip of quotes", lambda: squeezed(b'"",""\n', 60 * MB, b"a,b\n")),
    slow("x.csv.gz: gzip of doubled quotes", lambda: squeezed(b'"a""b",c\n', 50 * MB, b"a,b\n")),
    slow("x.csv.gz: gzip of commas", lambda: squeezed(b",", 400 * MB)),
    slow("x.csv.gz: gzip of wide rows", lambda: squeezed(b"0," * 999 + b"0\n", MB)),
    slow("x.csv.gz: gzip of one wide character",
         lambda: squeezed(b"ab,cd\n", 40 * MB, "😀,b\n".encode())),
    slow("x.csv.gz: gzip of blanks", lambda: squeezed(b" ", 500 * MB, b"a,b\n1,2\n")),
    slow("x.data.gz: gzip of words", lambda: squeezed(b"1 2 3\n", 80 * MB)),
    fast("x.csv.gz: empty gzip members", lambda: gzip.compress(b"", mtime=0) * 100000),
    fast("x.csv.xz: empty xz streams", lambda: lzma.compress(b"") * 100000),
    slow("x.csv.zst: empty Zstandard frames", lambda: zst(b"") * 200000),
    slow("x.csv.xz: xz of commas", lambda: xz(b"," * MB, 600)),
    slow("x.csv.zst: Zstandard of commas", lambda: zst(b"," * MB, 3000)),
    fast("x.csv.gz.gz: gzip within gzip", lambda: gzip.compress(squeezed(b"0", 100 * MB))),
    slow("x.parquet.gz: gzip of Parquet", lambda: squeezed(b"\x00", 600 * MB, b"PAR1")),
    slow("x.xlsx.gz: gzip of a directory of parts",
         lambda: squeezed(b"PK\x01\x02" + b"\x00" * 42, 9 * MB, b"PK\x03\x04")),
]  # fmt: skip

TEXTS = [
    fast("x.csv: a million columns", lambda: numbers(MB) + b"\n" + numbers(MB)),
    fast("x.csv: one line of letters", lambda: b"a" * 64 * MB),
    fast("x.csv: one line of fields", lambda: b"ab," * 20 * MB),
    slow("x.csv: a second line of fields", lambda: b"a,b\n" + b"ab," * 10 * MB),
    slow("x.csv: a second line of quoted fields", lambda: b"a,b\n" + b'"ab",' * 6 * MB),
    slow("x.data: one line of words", lambda: b"ab " * 10 * MB),
    slow("x.data: one line of quoted words", lambda: b'"a" ' * 6 * MB + b"b"),
    slow("x.csv: one line of quotes", lambda: b'"' * 32 * MB),
    slow("x.csv: a quote never closed", lambda: b'a,b\n1,"' + b"\n" * 20 * MB),
    slow("x.csv: a quote never closed, in many lines", lambda: b'a,b\n1,"' + b"x,y\n" * 6 * MB),
    slow("x.csv: carriage returns", lambda: b"a,b\r" + b"1,2\r" * 2 * MB),
    slow("x.csv: line ends of all kinds", lambda: b"a,b\r\n" + b"\r\n\n\r" * 2 * MB),
    fast("x.txt: every delimiter", lambda: b",;\t| " * MB + b"\n" + b",;\t| " * MB),
    slow("x.csv: a million classes",
         lambda: b"a,b\n" + b"".join(b"%d,k%d\n" % (i % 7, i) for i in range(MB))),
    fast(
        "x.csv: classes that differ in writing only",
        lambda: b"a,b\n" + b"".join(b"%d,1.%s\n" % (i % 7, b"0" * (i % 3000)) for i in range(6000)),
    ),
    slow("x.csv: long classes",
         lambda: b"a,b\n" + b"".join(b"%d,%s\n" % (i, b"k" * i) for i in range(0, 50000, 25))),
    fast(
        "x.csv: long names",
        lambda: (
            b",".join(b"%d" % i + b"n" * 10000 for i in range(900)) + b"\n" + b"1," * 899 + b"1\n"
        ),
    ),
    slow(
        "x.csv: a million levels in each of ten columns",
        lambda: (
            b"a,b,c,d,e,f,g,h,i,y\n"
            + b"".join(b",".join([b"k%d" % i] * 9) + b",%d\n" % (i % 2) for i in range(300000))
        ),
    ),
    fast("x.csv: numbers of a million digits",
         lambda: b"a,b\n" + (b"1" * MB + b",x\n" + b"2,y\n") * 8),
    fast("x.csv: UTF-16 that is none", lambda: b"\xff\xfe" + b"a" * 20 * MB),
    slow("x.csv: NUL at the end", lambda: b"a,b\n" + b"1,2\n" * 5 * MB + b"\x00"),
    slow("x.csv: a bad byte at the end", lambda: b"a,b\n" + b"1,2\n" * 5 * MB + b"\xff"),
    slow("x.csv: one wide character at the end",
         lambda: b"a,b\n" + b"1,2\n" * 2 * MB + "3,😀\n".encode()),
    slow("x.csv: 25 million rows", lambda: b"a,y\n" + b"1,p\n2,q\n" * (12 * MB)),
    slow("x.csv: half a GB of numbers", lambda: b"a,b,y\n" + b"0.1234567,1234.5678,p\n" * 23 * MB),
    slow("x.csv: rows with quotes and blanks", lambda: b"a,y\n" + b'"1", "p"\n"2" ,q\n' * (6 * MB)),
    slow("x.data: rows of words and tabs", lambda: b"1 \t2 p\n3\t 4 q\n" * (6 * MB)),
    slow("x.csv: six million classes",
         lambda: b"a,y\n" + b"".join(b"%d,k%d\n" % (i % 7, i) for i in range(6 * MB))),
]  # fmt: skip


def attributes(count: int) -> bytes:
    return b"".join(b"@attribute a%d real\n" % i for i in range(count))


ARFF = [
    fast("x.arff: many attributes", lambda: attributes(130000) + b"@data\n"),
    slow("x.arff: many levels, the last twice",
         lambda: b"@attribute a {" + numbers(400000) + b",399999}\n@data\n"),
    slow("x.arff.gz: gzip of levels", lambda: squeezed(b"a,", 200 * MB, b"@attribute a {")),
    fast("x.arff: one long row", lambda: HEAD + b"1," * 3 * MB),
    fast("x.arff: one long quoted row", lambda: HEAD + b"'1'," * 3 * MB),
    fast("x.arff: quotes never closed", lambda: HEAD + b"1,'" + b"\\'" * 3 * MB),
    slow("x.arff: many comments", lambda: b"%\n" * 2 * MB + HEAD + b"1,x\n" + b"%\n" * 2 * MB),
    slow("x.arff.gz: gzip of comments", lambda: squeezed(b"%\n", 250 * MB, HEAD)),
    slow("x.arff.gz: gzip of rows", lambda: squeezed(b"1,x\n", 100 * MB, HEAD)),
    slow("x.arff.gz: gzip of quoted rows", lambda: squeezed(b"1,'x'\n", 80 * MB, HEAD)),
    fast("x.arff: a sparse row far out", lambda: HEAD + b"{4000000000 1}\n"),
    fast("x.arff: blanks", lambda: HEAD + b"1," + b" " * 20 * MB + b"x\n"),
]  # fmt: skip

TEXT_BOMBS = [*PACKED, *TEXTS, *ARFF]
