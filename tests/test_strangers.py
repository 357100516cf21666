"""What comes from a stranger's file steers no terminal and is no formula of a spreadsheet."""

import csv
import os
import random
import unicodedata

import pytest

from expacc.cli import main
from expacc.data import TableError, read_table
from expacc.plain import one_line, plain, safe_cell

# An escape sequence, one in a single character, a title, a turn of direction, a line of its own.
EVIL = "\x1b[31mred\x9b2J\x1b]0;title\x07\u202egnp\u2066x\u200f\u2028\u2029\nexpacc: all is well\r"
FORMULAS = [
    "=1+1",
    "+A1",
    "-A1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "＝1+1",
    "＋A1",
    "－A1",
    "＠A1",
    " =1",
]
FORMULAS += ["-1+1"]
NUMBERS = ["-1.5", "+2", "-3e5", "1,5", "-.5"]


def is_clean(text):
    """Lines of letters: no control but the line's end, no change of direction."""
    odd = [c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")]
    return not odd


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_gets_an_apostrophe(text):
    assert safe_cell(text) == "'" + text


@pytest.mark.parametrize("text", [*NUMBERS, "", "a=1", "a-b", "'=1", "–", "x@y.org"])
def test_a_number_and_other_text_stay(text):
    assert safe_cell(text) == text


def test_plain_text():
    assert is_clean(one_line(EVIL))
    assert "\n" not in one_line(EVIL)
    assert one_line("a  b 'c  d'") == "a  b 'c  d'"  # a command is copied as it is
    for good in ("naïve Größe", "日本語", "👩‍🔬 lab", "עברית", "نامه‌ای"):
        assert plain(good) == one_line(good) == good
    assert plain("a\tb") == "a\tb"
    assert plain("\u202eevil\ud800\x07") == "\ufffdevil\ufffd\ufffd"
    assert len(one_line("x" * 10**6)) == 10_000


def test_a_refusal_is_one_clean_line(tmp_path):
    error = TableError(EVIL, f"a message about {EVIL}")
    assert is_clean(str(error))
    assert "\n" not in str(error)
    assert error.source == EVIL
    with pytest.raises(TableError) as caught:
        read_table(tmp_path / f"{EVIL.replace('/', '')}.csv")
    assert is_clean(str(caught.value))


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """A table whose name, columns, levels and classes are all hostile."""
    monkeypatch.chdir(tmp_path)
    name = f"x{EVIL}.csv".replace("/", "")
    try:
        (tmp_path / name).write_bytes(b"")
    except OSError:
        pytest.skip("the disk takes no such name")
    source = random.Random(0)
    head = ["=cmd", f"@size{EVIL}", "－level", f"=y{EVIL}"]
    classes = ["=cmd|' /C calc'!A0", f"@b{EVIL}", "-1.5"]
    rows = [
        [
            f"{source.gauss(place, 1):.3f}",
            f"{source.gauss(-place, 1):.3f}",
            source.choice(["=HYPERLINK(1)", f"+{EVIL}", "＝w", "plain"]),
            classes[place],
        ]
        for place in [0, 1, 2] * 20
    ]
    with open(name, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([head, *rows])
    return name


def clean_words(capfd):
    said = capfd.readouterr()
    assert is_clean(said.out)
    assert is_clean(said.err)
    # No line pretends to be ours: the name's own line break makes none.
    assert not any(
        line.startswith("expacc: all is well") for line in (said.out + said.err).splitlines()
    )
    return said


def test_the_command_line_prints_names_without_tricks(stranger, capfd):
    assert main(["inspect", stranger]) == 0
    assert "60 rows" in clean_words(capfd).out
    assert main(["inspect", stranger, "--target", f"no {EVIL}"]) == 2
    clean_words(capfd)
    assert main(["inspect", f"none{EVIL}".replace("/", "")]) == 2
    clean_words(capfd)
    assert main(["inspect", "--no-such-option-" + EVIL]) == 2
    clean_words(capfd)
    os.mkdir("folder")
    os.rename(stranger, f"folder/{stranger}")
    with open(f"folder/ignored{EVIL}".replace("\r", "").replace("/e", "e"), "w"):
        pass
    assert main(["compare", f"folder/{stranger}", "--dry-run"]) == 0
    clean_words(capfd)
    assert main(["compare", "folder", "--dry-run"]) == 0
    clean_words(capfd)


def test_a_study_of_it_is_told_and_reported_without_tricks(stranger, capfd, tmp_path):
    fast = ["--losses", "hinge", "--trials", "1", "--repeats", "1", "--folds", "holdout"]
    assert main(["compare", stranger, *fast, "--workers", "1", "-o", "out"]) == 0
    clean_words(capfd)
    assert main(["show", "out"]) == 0
    clean_words(capfd)
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert is_clean(page.replace("\t", ""))
    for name in ("leaderboard.csv", "suspects.csv"):
        with open(tmp_path / "out" / name, newline="", encoding="utf-8") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        assert all(safe_cell(cell) == cell for cell in cells)


def test_predictions_hold_no_formula(stranger, capfd):
    assert main(["fit", stranger, "--loss", "hinge", "--trials", "1", "-o", "model"]) == 0
    clean_words(capfd)
    for ending in ("csv", "tsv"):
        assert main(["predict", "model", stranger, "-o", f"p.{ending}"]) == 0
        clean_words(capfd)
        with open(f"p.{ending}", newline="", encoding="utf-8") as file:
            head, *rows = csv.reader(file, delimiter="\t" if ending == "tsv" else ",")
        assert head[0] == "'=cmd"
        assert "probability '=cmd|' /C calc'!A0" in head
        assert "probability -1.5" in head
        cells = [cell for row in [head, *rows] for cell in row]
        assert all(safe_cell(cell) == cell for cell in cells)
        assert {row[3] for row in rows} >= {"'=cmd|' /C calc'!A0", "-1.5"}  # a number stays one
        assert any(row[1].startswith("-") for row in rows)
        assert head[4:6] == ["line", "prediction"]
        assert {row[5] for row in rows} <= {row[3] for row in rows}
        lines = [int(row[4]) for row in rows]
        assert lines == sorted({*lines})
        assert lines[0] > 2  # the header goes over several
