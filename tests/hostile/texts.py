"""Hostile delimited text: what comes out, cell by cell, or where and why it is refused."""

from hostile.case import Case

AB = ("a", "b")

LINES = [
    Case("LF", b"a,b\n1,2\n3,4\n", AB, (("1", "2"), ("3", "4"))),
    Case("no last line end", b"a,b\n1,2\n3,4", AB, (("1", "2"), ("3", "4"))),
    Case("CRLF", b"a,b\r\n1,2\r\n", AB, (("1", "2"),)),
    Case("CR, as an old Mac", b"a,b\r1,2\r3,4\r", AB, (("1", "2"), ("3", "4"))),
    Case("mixed line ends", b"a,b\r\n1,2\n3,4\r5,6\n", AB, (("1", "2"), ("3", "4"), ("5", "6"))),
    Case("blank lines at the end", b"a,b\n1,2\n\n\n  \n", AB, (("1", "2"),)),
    Case(
        "blank lines in the middle",
        b"a,b\n1,2\n\n\n3,4\n",
        AB,
        (("1", "2"), ("3", "4")),
        notes=("2 blank line(s) skipped, first line 3.",),
    ),
    Case("blank lines before the header", b"\n\na,b\n1,2\n", AB, (("1", "2"),)),
    Case(
        "blank line in one column",
        b"a\n1\n\n2\n",
        refused=("blank line in a table of one column",),
        line=3,
    ),
    Case(
        "form feed and Unicode line separators end no line",
        "a,b\n1\f\v,\u2028\x85\x1e\n".encode(),
        AB,
        (("1\f\v", "\u2028\x85\x1e"),),
    ),
    Case("byte-order mark", b"\xef\xbb\xbfa,b\n1,2\n", AB, (("1", "2"),)),
    Case("byte-order mark before a quote", b'\xef\xbb\xbf"a",b\n1,2\n', AB, (("1", "2"),)),
    Case(
        "second byte-order mark is text",
        "\ufeff\ufeffa,b\n1,2\n".encode(),
        ("\ufeffa", "b"),
        (("1", "2"),),
    ),
    Case(
        "control-Z of DOS",
        b"a,b\n1,2\n\x1a",
        refused=("1 field(s) where", "has 2"),
        line=3,
        column=2,
    ),
    Case("empty file", b"", refused=("empty",)),
    Case("only blank lines", b"\n\n \n", refused=("no line with content",)),
    Case("only a header", b"a,b\n", refused=("header but no row",), line=1),
    Case("only a byte-order mark", b"\xef\xbb\xbf", refused=("no line with content",)),
]

FIELDS = [
    Case(
        "too many fields",
        b"a,b\n1,2\n3,44,5\n",
        refused=("3 field(s)", "has 2", "Field 3"),
        line=3,
        column=6,
    ),
    Case(
        "too few fields", b"a,b,c\n1,2,3\n4,5\n", refused=("2 field(s)", "has 3"), line=3, column=4
    ),
    Case(
        "too many fields behind a quote",
        b'a,b\n"x,y",2,3\n',
        refused=("3 field(s)",),
        line=2,
        column=9,
    ),
    Case(
        "ragged behind a quoted line break",
        b'a,b\n"x\ny",2\n1,2,3\n',
        refused=("3 field(s)",),
        line=4,
        column=5,
    ),
    Case(
        "trailing delimiter on every line",
        b"a,b,\n1,2,\n3,4,\n",
        AB,
        (("1", "2"), ("3", "4")),
        notes=("Every line ends with a delimiter",),
    ),
    Case(
        "trailing delimiter on rows only",
        b"a,b\n1,2,\n3,4,\n",
        refused=("3 field(s)",),
        line=2,
        column=5,
    ),
    Case(
        "trailing delimiter on one row",
        b"a,b\n1,2\n3,4,\n",
        refused=("3 field(s)",),
        line=3,
        column=5,
    ),
    Case("named but empty last column stays", b"a,b\n1,\n2,\n", AB, (("1", ""), ("2", ""))),
    Case(
        "double name",
        b"a,bc,a\n1,2,3\n",
        refused=("'a' twice", "fields 1 and 3", "--no-header"),
        line=1,
        column=6,
    ),
    Case("double name after trimming", b"a, a\n1,2\n", refused=("'a' twice",), line=1, column=4),
    Case("names that differ in case are two", b"a,A\n1,2\n", ("a", "A"), (("1", "2"),)),
    Case("empty name", b",b\n1,2\n", ("column 1", "b"), (("1", "2"),), notes=("1 name(s) empty",)),
    Case(
        "empty name beside its stand-in",
        b",column 1\n1,2\n",
        ("column 1'", "column 1"),
        (("1", "2"),),
    ),
    Case(
        "no header",
        b"1,2\n3,4\n",
        ("column 1", "column 2"),
        (("1", "2"), ("3", "4")),
        options={"header": False},
    ),
    Case(
        "too many columns",
        lambda: b",".join([b"x"] * 12) + b"\n",
        refused=("12 columns where at most 10", "--max-columns"),
        line=1,
        options={"max_columns": 10},
    ),
    Case(
        "a million columns",
        lambda: b"," * 1_000_000 + b"\n1\n",
        refused=("1,000,001 columns",),
        line=1,
    ),
    Case(
        "a field of a million characters",
        lambda: b"a,b\n" + b"x" * 1_000_000 + b',"' + b"y" * 200_000 + b'"\n',
        AB,
        (("x" * 1_000_000, "y" * 200_000),),
    ),
    Case(
        "row of delimiters only",
        b"a,b,c\n1,2,3\n,,\n",
        ("a", "b", "c"),
        (("1", "2", "3"), ("", "", "")),
    ),
    Case(
        "lines before the table",
        b"Report of May\n\na,b\n1,2\n",
        AB,
        (("1", "2"),),
        options={"skip_lines": 2},
    ),
    Case(
        "lines before the table, unsaid",
        b"Report of May\na,b\n1,2\n",
        refused=("2 field(s)", "--skip-lines"),
        line=2,
        column=3,
    ),
    Case(
        "line numbers count skipped lines",
        b"x\ny\na,b\n1\n",
        refused=("1 field(s)",),
        line=4,
        column=2,
        options={"skip_lines": 2},
    ),
]

BLANKS = [
    Case(
        "blanks around fields",
        b"a , b\n 1,\t2 \n",
        AB,
        (("1", "2"),),
        notes=("Blanks around 4 unquoted field(s)",),
    ),
    Case("blanks within quotes stay", b'a,b\n" 1 ","\t2"\n', AB, ((" 1 ", "\t2"),)),
    Case("quotes behind a blank", b'a, b\n1, "x, y" \n', AB, (("1", "x, y"),)),
    Case(
        "a no-break space is not a blank",
        "a,b\n\u00a01,2\u3000\n".encode(),
        AB,
        (("\u00a01", "2\u3000"),),
    ),
    Case("zero-width characters stay", "a,b\nye\u200bs,no\n".encode(), AB, (("ye\u200bs", "no"),)),
    Case(
        "tab-parted with empty cells",
        b"a\tb\n\t\n1\t\n",
        AB,
        (("", ""), ("1", "")),
        file="hostile.tsv",
    ),
    Case(
        "tab-parted with spaces and commas",
        b"a\tb\nx, y\t2 3\n",
        AB,
        (("x, y", "2 3"),),
        file="hostile.tsv",
    ),
]

QUOTES = [
    Case("delimiter in quotes", b'a,b\n"1,5",2\n', AB, (("1,5", "2"),)),
    Case("doubled quote", b'a,b\n"say ""hi""",2\n', AB, (('say "hi"', "2"),)),
    Case("only a doubled quote", b'a,b\n"""",""\n', AB, (('"', ""),)),
    Case(
        "line breaks in quotes, each kept",
        b'a,b\r\n"x\ny\r\nz\rw",2\r\n',
        AB,
        (("x\ny\r\nz\rw", "2"),),
        notes=("1 row(s) hold quoted line breaks, first line 2",),
    ),
    Case("blank line in quotes", b'a,b\n"x\n\ny",2\n', AB, (("x\n\ny", "2"),)),
    Case(
        "unclosed quote", b'a,b\n1,2\n3,"x\n4,5\n6,7\n', refused=("never closed",), line=3, column=3
    ),
    Case(
        "unclosed quote in the header", b'a,"b\n1,2\n', refused=("never closed",), line=1, column=3
    ),
    Case(
        "unclosed quote at the very end", b'a,b\n1,"', refused=("never closed",), line=2, column=3
    ),
    Case(
        "text behind a closing quote",
        b'a,b\n"x"y,2\n',
        refused=("text follows a closing quote",),
        line=2,
        column=4,
    ),
    Case(
        "text behind a closing quote, lines later",
        b'a,b\n"x\ny" z,2\n',
        refused=("text follows a closing quote",),
        line=3,
        column=4,
    ),
    Case(
        "quote inside a bare field",
        b'a,b\n1,5" pipe\n',
        refused=("quote inside a field",),
        line=2,
        column=4,
    ),
    Case(
        "quotes as text",
        b'a,b\n1,5" pipe\n"x",2\n',
        AB,
        (("1", '5" pipe'), ('"x"', "2")),
        options={"quote": None},
    ),
    Case("single quotes are text", b"a,b\n'x,2\n", AB, (("'x", "2"),)),
    Case(
        "single quotes as quotes",
        b"a,b\n'x,y',it''s\n",
        refused=("quote inside a field",),
        line=2,
        column=9,
        options={"quote": "'"},
    ),
    Case("backslash is no escape", b'a,b\n"x\\",2\n', AB, (("x\\", "2"),)),
    Case("quoted header with delimiter", b'"a,b",c\n1,2\n', ("a,b", "c"), (("1", "2"),)),
    Case(
        "unclosed quote over many lines is found in linear time",
        lambda: b'a,b\n"' + b"1,2\n" * 200_000,
        refused=("never closed",),
        line=2,
        column=1,
    ),
    Case(
        "quotes by the thousand",
        lambda: b'a,b\n"' + b'""' * 50_000 + b'",2\n',
        AB,
        (('"' * 50_000, "2"),),
    ),
]

CODES = [
    Case("NUL", b"a,b\n1,\x002\n", refused=("NUL",), line=2, column=3),
    Case(
        "Latin-1 read as UTF-8",
        b"a,b\ncaf\xe9,2\n",
        refused=("0xe9", "--encoding latin-1"),
        line=2,
        column=4,
    ),
    Case(
        "Latin-1 as told",
        b"a,b\ncaf\xe9,2\n",
        AB,
        (("café", "2"),),
        options={"encoding": "latin-1"},
    ),
    Case(
        "columns are characters, not bytes",
        "a,b\néé".encode() + b"\xff,2\n",
        refused=("0xff",),
        line=2,
        column=3,
    ),
    Case(
        "bad byte behind mixed line ends",
        b"a,b\r\n1,2\r3,\xff\n",
        refused=("0xff",),
        line=3,
        column=3,
    ),
    Case(
        "cut in the middle of a character",
        "a,b\n1,é".encode()[:-1],
        refused=("0xc3",),
        line=2,
        column=3,
    ),
    Case("overlong UTF-8", b"a,b\n\xc0\xaf,2\n", refused=("0xc0",), line=2, column=1),
    Case("surrogate in UTF-8", b"a,b\n\xed\xa0\x80,2\n", refused=("0xed",), line=2, column=1),
    Case(
        "UTF-16 with mark",
        "a,b\n1,2\n".encode("utf-16"),
        refused=("--encoding utf-16",),
        line=1,
        column=1,
    ),
    Case(
        "UTF-16 as told",
        "a,b\n1,é\n".encode("utf-16"),
        AB,
        (("1", "é"),),
        options={"encoding": "utf-16"},
    ),
    Case(
        "UTF-16 without mark",
        "a,b\n1,2\n".encode("utf-16-le"),
        refused=("NUL", "utf-16-le"),
        line=1,
        column=2,
    ),
    Case(
        "UTF-32 with mark",
        "a,b\n1,2\n".encode("utf-32"),
        refused=("--encoding utf-32",),
        line=1,
        column=1,
    ),
    Case(
        "composed and decomposed letters stay apart",
        "a,b\né,e\u0301\n".encode(),
        AB,
        (("é", "e\u0301"),),
    ),
    Case("right-to-left and emoji", "a,b\nשלום,👩‍🔬\n".encode(), AB, (("שלום", "👩‍🔬"),)),
]

DELIMITERS = [
    Case("semicolons", b"a;b\n1,5;2\n", AB, (("1,5", "2"),), notes=("parted by ';'",)),
    Case("pipes", b"a|b\n1|2\n", AB, (("1", "2"),), notes=("parted by '|'",)),
    Case("tabs in a .csv", b"a\tb\n1\t2\n", AB, (("1", "2"),), notes=("parted by tab",)),
    Case(
        "blanks in a .data",
        b"  1   2\n 3 \t4 \n",
        ("column 1", "column 2"),
        (("1", "2"), ("3", "4")),
        file="hostile.data",
        options={"header": False},
        notes=("parted by whitespace",),
    ),
    Case(
        "quotes among blanks",
        b'a b\n"x y"  2\n3 "z"\n',
        AB,
        (("x y", "2"), ("3", "z")),
        file="hostile.data",
    ),
    Case(
        "ragged among blanks",
        b"a b\n1 2\n3 4  5\n",
        refused=("3 field(s)",),
        line=3,
        column=6,
        file="hostile.data",
    ),
    Case(
        "delimiter in doubt",
        b"1,5;2,5\n3,5;4,5\n",
        refused=("',' (3 fields) and ';' (2 fields)", "--delimiter"),
        line=1,
        options={"header": False},
    ),
    Case(
        "delimiter in doubt, as told",
        b"1,5;2,5\n3,5;4,5\n",
        ("column 1", "column 2"),
        (("1,5", "2,5"), ("3,5", "4,5")),
        options={"header": False, "delimiter": ";"},
    ),
    Case(
        "delimiters in quotes do not count",
        b'a,b\n"1;2;3",x\n"4;5;6",y\n',
        AB,
        (("1;2;3", "x"), ("4;5;6", "y")),
    ),
    Case(
        "spaces in text do not part a .csv",
        b"first name,b\nAnn Lee,2\nBob Ray,3\n",
        ("first name", "b"),
        (("Ann Lee", "2"), ("Bob Ray", "3")),
    ),
    Case("one column", b"a\nx\ny\n", ("a",), (("x",), ("y",))),
    Case(
        "odd delimiter as told",
        "a§b\n1§2\n".encode(),
        AB,
        (("1", "2"),),
        options={"delimiter": "§"},
    ),
    Case(
        "comma asked for, tabs inside",
        b"a\tb,c\n1\t2,3\n",
        ("a\tb", "c"),
        (("1\t2", "3"),),
        options={"delimiter": ","},
    ),
]

TEXTS = [*LINES, *FIELDS, *BLANKS, *QUOTES, *CODES, *DELIMITERS]
