"""Hostile delimited text: what comes out, cell by cell, or where and why it is refused."""

from hostile.case import give, refuse

AB = ("a", "b")

LINES = [
    give("LF", b"a,b\n1,2\n3,4\n", AB, (("1", "2"), ("3", "4"))),
    give("no last line end", b"a,b\n1,2\n3,4", AB, (("1", "2"), ("3", "4"))),
    give("CRLF", b"a,b\r\n1,2\r\n", AB, (("1", "2"),)),
    give("CR, as an old Mac", b"a,b\r1,2\r3,4\r", AB, (("1", "2"), ("3", "4"))),
    give("mixed line ends", b"a,b\r\n1,2\n3,4\r5,6\n", AB, (("1", "2"), ("3", "4"), ("5", "6"))),
    give("blank lines at the end", b"a,b\n1,2\n\n\n  \n", AB, (("1", "2"),)),
    give(
        "blank lines in the middle",
        b"a,b\n1,2\n\n\n3,4\n",
        AB,
        (("1", "2"), ("3", "4")),
        "2 blank line(s) skipped, first line 3.",
    ),
    give("blank lines before the header", b"\n\na,b\n1,2\n", AB, (("1", "2"),)),
    refuse(
        "blank line in one column",
        b"a\n1\n\n2\n",
        "blank line in a table of one column",
        at=(3, None),
    ),
    give(
        "form feed and Unicode line separators end no line",
        "a,b\n1\x0c\x0b,\u2028\x85\x1e\n".encode(),
        AB,
        (("1\x0c\x0b", "\u2028\x85\x1e"),),
    ),
    give("byte-order mark", b"\xef\xbb\xbfa,b\n1,2\n", AB, (("1", "2"),)),
    give("byte-order mark before a quote", b'\xef\xbb\xbf"a",b\n1,2\n', AB, (("1", "2"),)),
    give(
        "second byte-order mark is text",
        "\ufeff\ufeffa,b\n1,2\n".encode(),
        ("\ufeffa", "b"),
        (("1", "2"),),
    ),
    refuse("control-Z of DOS", b"a,b\n1,2\n\x1a", "1 field(s) where", "has 2", at=(3, 2)),
    refuse("empty file", b"", "empty"),
    refuse("only blank lines", b"\n\n \n", "no line with content"),
    refuse("only a header", b"a,b\n", "header but no row", at=(1, None)),
    refuse("only a byte-order mark", b"\xef\xbb\xbf", "no line with content"),
]

FIELDS = [
    refuse("too many fields", b"a,b\n1,2\n3,44,5\n", "3 field(s)", "has 2", "Field 3", at=(3, 6)),
    refuse("too few fields", b"a,b,c\n1,2,3\n4,5\n", "2 field(s)", "has 3", at=(3, 4)),
    refuse("too many fields behind a quote", b'a,b\n"x,y",2,3\n', "3 field(s)", at=(2, 9)),
    refuse("ragged behind a quoted line break", b'a,b\n"x\ny",2\n1,2,3\n', "3 field(s)", at=(4, 5)),
    give(
        "trailing delimiter on every line",
        b"a,b,\n1,2,\n3,4,\n",
        AB,
        (("1", "2"), ("3", "4")),
        "Every line ends with a delimiter",
    ),
    refuse("trailing delimiter on rows only", b"a,b\n1,2,\n3,4,\n", "3 field(s)", at=(2, 5)),
    refuse("trailing delimiter on one row", b"a,b\n1,2\n3,4,\n", "3 field(s)", at=(3, 5)),
    give("named but empty last column stays", b"a,b\n1,\n2,\n", AB, (("1", ""), ("2", ""))),
    refuse(
        "double name", b"a,bc,a\n1,2,3\n", "'a' twice", "fields 1 and 3", "--no-header", at=(1, 6)
    ),
    refuse("double name after trimming", b"a, a\n1,2\n", "'a' twice", at=(1, 4)),
    give("names that differ in case are two", b"a,A\n1,2\n", ("a", "A"), (("1", "2"),)),
    give("empty name", b",b\n1,2\n", ("column 1", "b"), (("1", "2"),), "1 name(s) empty"),
    give(
        "empty name beside its stand-in",
        b",column 1\n1,2\n",
        ("column 1'", "column 1"),
        (("1", "2"),),
    ),
    give(
        "no header", b"1,2\n3,4\n", ("column 1", "column 2"), (("1", "2"), ("3", "4")), header=False
    ),
    refuse(
        "too many columns",
        lambda: b",".join([b"x"] * 12) + b"\n",
        "12 columns where at most 10",
        "--max-columns",
        at=(1, None),
        max_columns=10,
    ),
    refuse(
        "a million columns", lambda: b"," * 1000000 + b"\n1\n", "1,000,001 columns", at=(1, None)
    ),
    give(
        "a field of a million characters",
        lambda: b"a,b\n" + b"x" * 1000000 + b',"' + b"y" * 200000 + b'"\n',
        AB,
        (("x" * 1000000, "y" * 200000),),
    ),
    give(
        "row of delimiters only",
        b"a,b,c\n1,2,3\n,,\n",
        ("a", "b", "c"),
        (("1", "2", "3"), ("", "", "")),
    ),
    give("lines before the table", b"Report of May\n\na,b\n1,2\n", AB, (("1", "2"),), skip_lines=2),
    refuse(
        "lines before the table, unsaid",
        b"Report of May\na,b\n1,2\n",
        "2 field(s)",
        "--skip-lines",
        at=(2, 3),
    ),
    refuse(
        "line numbers count skipped lines", b"x\ny\na,b\n1\n", "1 field(s)", at=(4, 2), skip_lines=2
    ),
]

BLANKS = [
    give(
        "blanks around fields",
        b"a , b\n 1,\t2 \n",
        AB,
        (("1", "2"),),
        "Blanks around 4 unquoted field(s)",
    ),
    give("blanks within quotes stay", b'a,b\n" 1 ","\t2"\n', AB, ((" 1 ", "\t2"),)),
    give("quotes behind a blank", b'a, b\n1, "x, y" \n', AB, (("1", "x, y"),)),
    give(
        "a no-break space is not a blank",
        "a,b\n\xa01,2\u3000\n".encode(),
        AB,
        (("\xa01", "2\u3000"),),
    ),
    give("zero-width characters stay", "a,b\nye\u200bs,no\n".encode(), AB, (("ye\u200bs", "no"),)),
    give(
        "tab-parted with empty cells",
        b"a\tb\n\t\n1\t\n",
        AB,
        (("", ""), ("1", "")),
        file="hostile.tsv",
    ),
    give(
        "tab-parted with spaces and commas",
        b"a\tb\nx, y\t2 3\n",
        AB,
        (("x, y", "2 3"),),
        file="hostile.tsv",
    ),
]

QUOTES = [
    give("delimiter in quotes", b'a,b\n"1,5",2\n', AB, (("1,5", "2"),)),
    give("doubled quote", b'a,b\n"say ""hi""",2\n', AB, (('say "hi"', "2"),)),
    give("only a doubled quote", b'a,b\n"""",""\n', AB, (('"', ""),)),
    give(
        "line breaks in quotes, each kept",
        b'a,b\r\n"x\ny\r\nz\rw",2\r\n',
        AB,
        (("x\ny\r\nz\rw", "2"),),
        "1 row(s) hold quoted line breaks, first line 2",
    ),
    give("blank line in quotes", b'a,b\n"x\n\ny",2\n', AB, (("x\n\ny", "2"),)),
    refuse("unclosed quote", b'a,b\n1,2\n3,"x\n4,5\n6,7\n', "never closed", at=(3, 3)),
    refuse("unclosed quote in the header", b'a,"b\n1,2\n', "never closed", at=(1, 3)),
    refuse("unclosed quote at the very end", b'a,b\n1,"', "never closed", at=(2, 3)),
    refuse(
        "text behind a closing quote", b'a,b\n"x"y,2\n', "text follows a closing quote", at=(2, 4)
    ),
    refuse(
        "text behind a closing quote, lines later",
        b'a,b\n"x\ny" z,2\n',
        "text follows a closing quote",
        at=(3, 4),
    ),
    refuse("quote inside a bare field", b'a,b\n1,5" pipe\n', "quote inside a field", at=(2, 4)),
    give(
        "quotes as text",
        b'a,b\n1,5" pipe\n"x",2\n',
        AB,
        (("1", '5" pipe'), ('"x"', "2")),
        quote=None,
    ),
    give("single quotes are text", b"a,b\n'x,2\n", AB, (("'x", "2"),)),
    refuse(
        "single quotes as quotes",
        b"a,b\n'x,y',it''s\n",
        "quote inside a field",
        at=(2, 9),
        quote="'",
    ),
    give("backslash is no escape", b'a,b\n"x\\",2\n', AB, (("x\\", "2"),)),
    give("quoted header with delimiter", b'"a,b",c\n1,2\n', ("a,b", "c"), (("1", "2"),)),
    refuse(
        "unclosed quote over many lines is found in linear time",
        lambda: b'a,b\n"' + b"1,2\n" * 200000,
        "never closed",
        at=(2, 1),
    ),
    give(
        "quotes by the thousand",
        lambda: b'a,b\n"' + b'""' * 50000 + b'",2\n',
        AB,
        (('"' * 50000, "2"),),
    ),
]

CODES = [
    refuse("NUL", b"a,b\n1,\x002\n", "NUL", at=(2, 3)),
    refuse("Latin-1 read as UTF-8", b"a,b\ncaf\xe9,2\n", "0xe9", "--encoding latin-1", at=(2, 4)),
    give("Latin-1 as told", b"a,b\ncaf\xe9,2\n", AB, (("café", "2"),), encoding="latin-1"),
    refuse(
        "columns are characters, not bytes", "a,b\néé".encode() + b"\xff,2\n", "0xff", at=(2, 3)
    ),
    refuse("bad byte behind mixed line ends", b"a,b\r\n1,2\r3,\xff\n", "0xff", at=(3, 3)),
    refuse("cut in the middle of a character", "a,b\n1,é".encode()[:-1], "0xc3", at=(2, 3)),
    refuse("overlong UTF-8", b"a,b\n\xc0\xaf,2\n", "0xc0", at=(2, 1)),
    refuse("surrogate in UTF-8", b"a,b\n\xed\xa0\x80,2\n", "0xed", at=(2, 1)),
    refuse("UTF-16 with mark", "a,b\n1,2\n".encode("utf-16"), "--encoding utf-16", at=(1, 1)),
    give("UTF-16 as told", "a,b\n1,é\n".encode("utf-16"), AB, (("1", "é"),), encoding="utf-16"),
    refuse("UTF-16 without mark", "a,b\n1,2\n".encode("utf-16-le"), "NUL", "utf-16-le", at=(1, 2)),
    refuse("UTF-32 with mark", "a,b\n1,2\n".encode("utf-32"), "--encoding utf-32", at=(1, 1)),
    give("composed and decomposed letters stay apart", "a,b\né,é\n".encode(), AB, (("é", "é"),)),
    give(
        "right-to-left and emoji", "a,b\nשלום,👩\u200d🔬\n".encode(), AB, (("שלום", "👩\u200d🔬"),)
    ),
]

DELIMITERS = [
    give("semicolons", b"a;b\n1,5;2\n", AB, (("1,5", "2"),), "parted by ';'"),
    give("pipes", b"a|b\n1|2\n", AB, (("1", "2"),), "parted by '|'"),
    give("tabs in a .csv", b"a\tb\n1\t2\n", AB, (("1", "2"),), "parted by tab"),
    give(
        "blanks in a .data",
        b"  1   2\n 3 \t4 \n",
        ("column 1", "column 2"),
        (("1", "2"), ("3", "4")),
        "parted by whitespace",
        file="hostile.data",
        header=False,
    ),
    give(
        "quotes among blanks",
        b'a b\n"x y"  2\n3 "z"\n',
        AB,
        (("x y", "2"), ("3", "z")),
        file="hostile.data",
    ),
    refuse(
        "ragged among blanks", b"a b\n1 2\n3 4  5\n", "3 field(s)", at=(3, 6), file="hostile.data"
    ),
    refuse(
        "delimiter in doubt",
        b"1,5;2,5\n3,5;4,5\n",
        "',' (3 fields) and ';' (2 fields)",
        "--delimiter",
        at=(1, None),
        header=False,
    ),
    give(
        "delimiter in doubt, as told",
        b"1,5;2,5\n3,5;4,5\n",
        ("column 1", "column 2"),
        (("1,5", "2,5"), ("3,5", "4,5")),
        header=False,
        delimiter=";",
    ),
    give(
        "delimiters in quotes do not count",
        b'a,b\n"1;2;3",x\n"4;5;6",y\n',
        AB,
        (("1;2;3", "x"), ("4;5;6", "y")),
    ),
    give(
        "spaces in text do not part a .csv",
        b"first name,b\nAnn Lee,2\nBob Ray,3\n",
        ("first name", "b"),
        (("Ann Lee", "2"), ("Bob Ray", "3")),
    ),
    give("one column", b"a\nx\ny\n", ("a",), (("x",), ("y",))),
    give("odd delimiter as told", "a§b\n1§2\n".encode(), AB, (("1", "2"),), delimiter="§"),
    give(
        "comma asked for, tabs inside",
        b"a\tb,c\n1\t2,3\n",
        ("a\tb", "c"),
        (("1\t2", "3"),),
        delimiter=",",
    ),
]

TEXTS = [*LINES, *FIELDS, *BLANKS, *QUOTES, *CODES, *DELIMITERS]
