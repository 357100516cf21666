"""What is inside an XLSX file: its parts, unpacked and parsed within limits.

A workbook is XML in a ZIP archive. What the archive says of sizes is not believed: bytes and
elements are counted as they come, and a document type, where entities would grow, is refused.
"""

import io
import posixpath
import zipfile
import zlib
from collections.abc import Callable
from typing import Any
from xml.parsers import expat

from expacc.data.errors import TableError, need
from expacc.data.limits import WORKBOOK, Budget
from expacc.data.options import ReadOptions
from expacc.data.source import Source, most_unpacked

__all__ = ["Package"]

_MOST_PARTS = 10_000
_CHUNK = 1 << 18
_LONGEST_TOKEN = 8 << 20  # a cell holds 32,767 characters
_ELEMENTS_OF_A_CELL = 3
_DEEPEST = 100  # elements in elements
_MOST_STYLES = 100_000  # Excel has 65,490
_LONGEST_FORMAT = 255  # characters of a number format, as Excel has it

Attributes = dict[str, str]
Start = Callable[[str, Attributes], None]


class Package:
    """The parts of one workbook.

    Attributes:
        budget: the cells that may be read.
        titles: of the sheets of cells.
        epoch: the day that dates are counted from.
        dates: the styles by which a number is a date, or a span of time.
        strings: those that cells share.
    """

    def __init__(self, source: Source, options: ReadOptions) -> None:
        self.name = source.name
        self.budget = Budget(source, options, WORKBOOK)
        self.most_bytes = most_unpacked(options.max_bytes, len(source.data))
        self.bytes = 0
        self.elements = 0
        self.most_elements = _ELEMENTS_OF_A_CELL * self.budget.cells
        if source.data.count(b"PK\x01\x02") > _MOST_PARTS:
            raise self.damaged(f"it has more than {_MOST_PARTS:,} parts")
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(source.data))
            self._count(sum(entry.file_size for entry in self._archive.infolist()))
        except (zipfile.BadZipFile, OSError, NotImplementedError) as error:
            raise self.damaged(error) from None
        self.bytes = 0  # so far it was hearsay
        times = need("openpyxl.utils.datetime", "reading XLSX")
        self._book = self._find_book()
        self._links = self._relations(self._book)
        self._sheets: dict[str, str] = {}
        self.epoch = times.WINDOWS_EPOCH
        self._read_book(times)
        self.titles = list(self._sheets)
        self.dates, self.spans = self._read_styles()
        self.strings = self._read_strings()

    def damaged(self, reason: object) -> TableError:
        """The refusal of what is no workbook."""
        return TableError(self.name, f"the workbook is damaged ({reason}).")

    def parse_sheet(self, title: str, start: Start, end: Callable[[str], None], text: Any) -> None:
        """Parse the cells of a sheet."""
        self._parse(self._sheets[title], start, end, text)

    def _parse(
        self,
        part: str,
        start: Start,
        end: Callable[[str], None] | None = None,
        text: Callable[[str], None] | None = None,
    ) -> None:
        """Parse one part; names come without the prefix of the first."""
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.buffer_size = 1 << 16
        parser.StartDoctypeDeclHandler = self._refuse_doctype
        depth = prefix = 0  # some write x:row, and say so in the first element

        def started(name: str, attributes: Attributes) -> None:
            nonlocal depth, prefix
            self.elements += 1
            depth += 1
            if depth == 1:
                prefix = name.find(":") + 1
            if depth > _DEEPEST:
                raise self.damaged("its elements are nested too deep")
            start(name[prefix:] if prefix else name, attributes)

        def ended(name: str) -> None:
            nonlocal depth
            depth -= 1
            if end is not None:
                end(name[prefix:] if prefix else name)

        parser.StartElementHandler = started
        parser.EndElementHandler = ended
        if text is not None:
            parser.CharacterDataHandler = text
        try:
            kind = self._archive.getinfo(part).compress_type
            if kind not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise self.damaged(f"{part} is packed as no workbook is")
            with self._archive.open(part) as stream:
                fed = 0
                while chunk := stream.read(_CHUNK):
                    fed += len(chunk)
                    self._count(len(chunk))
                    parser.Parse(chunk, False)
                    # What is not yet a token is scanned again with every chunk.
                    if fed - parser.CurrentByteIndex > _LONGEST_TOKEN:
                        raise self.damaged(f"a token of {part} is too long")
                parser.Parse(b"", True)
        except TableError:
            raise
        except KeyError:
            raise self.damaged(f"there is no {part} in it") from None
        except (expat.ExpatError, zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise self.damaged(error) from None
        except (ValueError, IndexError, OverflowError, RuntimeError, OSError) as error:
            raise self.damaged(error) from None

    def _refuse_doctype(self, *_: object) -> None:
        raise self.damaged("it holds a document type, which no workbook has")

    def _count(self, size: int) -> None:
        self.bytes += size
        if self.bytes > self.most_bytes:
            raise TableError(
                self.name,
                f"it unpacks to more than {self.most_bytes:,} bytes, the most that is read. Raise "
                "--max-bytes if you trust the file.",
            )
        if self.elements > self.most_elements:
            raise TableError(
                self.name,
                f"it holds more than {self.most_elements:,} elements of XML, the most that is read "
                "of a file of its size. Raise --max-cells if you trust it.",
            )

    def _has(self, part: str) -> bool:
        return part in self._archive.NameToInfo

    def _relations(self, part: str) -> dict[str, tuple[str, str]]:
        """What a part refers to: kind and path, by their names there."""
        folder, base = posixpath.split(part)
        path = posixpath.join(folder, "_rels", base + ".rels")
        found: dict[str, tuple[str, str]] = {}

        def start(name: str, attributes: Attributes) -> None:
            if name == "Relationship" and attributes.get("TargetMode") != "External":
                target = posixpath.join("/" + folder, attributes.get("Target", ""))
                kind = attributes.get("Type", "").rpartition("/")[2]
                found[attributes.get("Id", "")] = kind, posixpath.normpath(target).lstrip("/")

        if self._has(path):
            self._parse(path, start)
        return found

    def _find_book(self) -> str:
        for kind, path in self._relations("").values():
            if kind == "officeDocument":
                return path
        return "xl/workbook.xml"

    def _part(self, kind: str) -> str | None:
        """The one part of a kind that the workbook refers to."""
        return next((p for k, p in self._links.values() if k == kind and self._has(p)), None)

    def _read_book(self, times: Any) -> None:
        def start(name: str, attributes: Attributes) -> None:
            if name == "workbookPr" and attributes.get("date1904", "0") in ("1", "true", "on"):
                self.epoch = times.MAC_EPOCH
            if name == "sheet":
                ids = [value for key, value in attributes.items() if key.endswith(":id")]
                kind, path = self._links.get(ids[0] if ids else "", ("", ""))
                if kind == "worksheet":
                    self._sheets.setdefault(attributes.get("name", ""), path)

        self._parse(self._book, start)

    def _read_styles(self) -> tuple[set[int], set[int]]:
        """Which styles make a date of a number, and which of these a span of time."""
        numbers = need("openpyxl.styles.numbers", "reading XLSX")
        custom: dict[int, str] = {}
        used: list[int] = []
        inside = ""

        def start(name: str, attributes: Attributes) -> None:
            nonlocal inside
            if name in ("cellXfs", "cellStyleXfs", "dxfs"):
                inside = name
            elif name == "numFmt" and inside != "dxfs":
                code = attributes.get("formatCode", "")[:_LONGEST_FORMAT]
                custom[int(attributes.get("numFmtId", 0))] = code
            elif name == "xf" and inside == "cellXfs":
                used.append(int(attributes.get("numFmtId", 0)))
                if len(used) > _MOST_STYLES:
                    raise self.damaged(f"it has more than {_MOST_STYLES:,} styles")

        part = self._part("styles")
        if part:
            self._parse(part, start)
        kinds = {}
        for number in set(used):
            code = custom.get(number) or numbers.builtin_format_code(number)
            kinds[number] = numbers.is_date_format(code), numbers.is_timedelta_format(code)
        dates = {place for place, number in enumerate(used) if kinds[number][0]}
        return dates, {place for place in dates if kinds[used[place]][1]}

    def _read_strings(self) -> list[str]:
        found: list[str] = []
        words: list[str] = []
        inside = phonetic = False

        def start(name: str, attributes: Attributes) -> None:
            nonlocal inside, phonetic
            if name == "t":
                inside = not phonetic
            elif name == "rPh":
                phonetic = True
            elif name == "si":
                words.clear()

        def end(name: str) -> None:
            nonlocal inside, phonetic
            if name == "t":
                inside = False
            elif name == "rPh":
                phonetic = False
            elif name == "si":
                # As Excel writes an underscore that would begin an escape.
                found.append("".join(words).replace("x005F_", ""))
                if len(found) > self.budget.cells:
                    self.budget.check(1, len(found))

        def text(data: str) -> None:
            if inside:
                words.append(data)

        part = self._part("sharedStrings")
        if part:
            self._parse(part, start, end, text)
        return found
