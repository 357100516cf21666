"""The report: complete, escaped, small, the same bytes for the same rows."""

import base64
import hashlib
import itertools
import re
from dataclasses import replace
from html import escape
from html.parser import HTMLParser

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from study_samples import PAYLOADS, hostile, sample

from expacc.compare.answer import methods_text
from expacc.compare.figures_runs import confusion
from expacc.compare.leaderboard import leaderboard
from expacc.compare.page import report_html, write_report
from expacc.compare.suspects import suspects
from expacc.report.figures import chart_style, critical_difference_figure, inline_svg
from expacc.report.words import DARK, looks, loss_name
from expacc.stats import critical_difference
from expacc.training import LOSS_NAMES


def page(record):
    found = [suspects(record, table) for table in record.tables]
    return report_html(record, leaderboard(record), found)


class Reader(HTMLParser):
    """Tags, attributes and text of a page, and whether its tags close."""

    VOID = frozenset({"meta", "link", "br", "img", "input", "hr", "circle", "use", "path", "rect"})

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.text, self.unclosed = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]

    def handle_endtag(self, tag):
        if tag not in self.VOID and (not self.open or self.open.pop() != tag):
            self.unclosed.append(tag)

    def handle_data(self, data):
        self.text.append(data)

    @property
    def words(self):
        return " ".join("".join(self.text).replace("\u00a0", " ").split())


@pytest.fixture(scope="module")
def one():
    record = sample(noises=(0.0, 0.2), seeds=2, wrong_share=0.03, fail=[("focal", "1a")], trials=6)
    return record, page(record)


@pytest.fixture(scope="module")
def many():
    record = sample(tables=tuple(f"table {i}" for i in range(5)), trials=2, rows=200, classes=3)
    return record, page(record)


def sections(text):
    return re.findall(r'<section id="([a-z]+)"', text)


def test_every_part_is_there_and_the_answer_first(one, many):
    tail = ["curves", "reliability", "confusion", "search", "suspects"]
    head = ["next", "leaderboard", "noisy", "columns", "classes", "folds", "differences", "noise"]
    assert sections(one[1]) == [*head, *tail, "failures", "protocol"]
    head = ["next", "leaderboard", "columns", "classes", "tables", "ranks", "profile", "results"]
    assert sections(many[1]) == [*head, *tail, "protocol"]
    words = Reader(many[1]).words
    assert all(table in words for table in many[0].tables)
    for record, text in (one, many):
        sentence = escape(leaderboard(record).answer.sentence.replace(" %", "\u00a0%"))
        sentence = sentence.replace("&#x27;", "&#39;")  # as jinja writes it
        also = r'(?: <span class="also">[^<]+</span>)*'  # what else is to be said, none of many
        found = re.search(f"<h1>{re.escape(sentence)}{also}</h1>", text)
        assert 0 < found.start() < text.index("<section")


def test_it_is_well_formed_and_nothing_in_it_can_run_or_load(one, many):
    for _, text in (one, many):
        reader = Reader(text)
        assert reader.unclosed == reader.open == []
        identifiers = [value for _, name, value in reader.attributes if name == "id"]
        assert len(identifiers) == len(set(identifiers))
        references = re.findall(r'(?:url\(#|xlink:href="#)([^)"]+)', text)
        contents = re.findall(r'<li><a href="#([a-z]+)">', text)
        assert len(contents) > 8
        assert {*references, *contents} <= set(identifiers)
        assert not {"script", "img", "iframe", "object", "embed", "form", "base"} & {*reader.tags}
        names = {name for _, name, _ in reader.attributes}
        assert not {name for name in names if name.startswith("on")}
        assert "style" not in names, "the policy forbids inline styles"
        links = {v for _, name, v in reader.attributes if name in ("href", "src", "xlink:href")}
        assert all(link.startswith("#") or link == "data:," for link in links)
        assert re.findall(r"url\((?!#)", text) == []


def test_the_policy_allows_this_style_sheet_and_nothing_else(one):
    text = one[1]
    css = re.search(r"<style>(.*?)</style>", text, re.S).group(1)
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy.replace("&#39;", "'") == (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
        f"form-action 'none'"
    )
    assert text.index("Content-Security-Policy") < text.index("<style>")
    assert text.count("<style") == 1


def test_every_chart_says_what_it_shows_in_units_and_letters_of_a_size(one, many):
    for record, text in (one, many):
        pictures = re.findall(r'<svg[^>]*role="img".*?</svg>', text, re.S)
        charts = set(re.findall(r'aria-labelledby="([a-z]+)-(?:wide|narrow)-title', text))
        assert len(pictures) == 2 * len(charts) >= 12
        for picture in pictures:
            finding = re.search(r"<desc[^>]*>(.*?)</desc>", picture).group(1)
            assert re.search(r"\d", finding), "a finding has a number"
            assert any(loss_name(loss) in finding for loss in record.settings["losses"])
            assert re.search(r"<title[^>]*>[^<]{8,}</title>", picture)
            words = " ".join(re.findall(r"<text[^>]*>(.*?)</text>", picture, re.S))
            assert re.search(r"\(%\)|\(points\)|mean rank over", words), words
            sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)', picture)]
            width = float(re.search(r' width="(\d+)"', picture).group(1))
            room = 302 if "-narrow-title" in picture else 786  # of a phone's and a wide page's card
            scale = 96 / 72 * min(1, room / width)  # a chart's unit is a point
            assert min(sizes) * scale >= 11


def test_numbers_of_the_board_are_on_the_page(one):
    record, text = one
    words = Reader(text).words
    for entry in leaderboard(record).boards[0].entries:
        assert f"{entry.accuracy * 100:.1f}" in words
    assert "diverged at step 120: its gradient is not finite" in words
    assert record.command in words
    assert methods_text(record).replace("\u00a0", " ") in words
    for name, version in record.versions.items():
        assert name in words
        assert version in words
    assert record.tables["digits"].sha256 in words


def test_the_same_rows_give_the_same_bytes(one):
    record, text = one
    with mpl.rc_context({"font.size": 30, "svg.hashsalt": "other", "text.parse_math": True}):
        assert page(replace(record, rows=record.rows[::-1])) == text


def test_hostile_names_stay_text():
    text = page(hostile())
    reader = Reader(text)
    assert reader.unclosed == []
    assert "script" not in reader.tags
    assert not [name for _, name, _ in reader.attributes if name.startswith("on")]
    assert "49" not in re.findall(r"\{\{.*?\}\}", reader.words)
    text.encode()
    assert "\x00" not in text
    for payload in PAYLOADS[:29]:
        assert " ".join(payload.split()) in reader.words, "shown as it was written"


def test_files_are_written_whole(tmp_path):
    record = sample(folds="holdout", trials=0)
    path = write_report(record, tmp_path / "new" / "folder")
    assert path.read_text() == page(record)
    names = {file.name for file in path.parent.iterdir()}
    assert names == {
        *("report.html", "leaderboard.json", "leaderboard.csv", "classes.csv", "suspects.csv")
    }


def test_eighty_seven_tables_stay_small():
    names = tuple(f"table number {i}" for i in range(87))
    text = page(sample(tables=names, rows=60, classes=3, folds="3", trials=1))
    assert len(text.encode()) < 1_500_000
    assert text.count("<svg xmlns") <= 20


def test_dollars_in_names_are_dollars():
    with chart_style():
        figure = Figure()
        figure.add_subplot().set_title("costs $5 or $6 & <more>")
        text = inline_svg(figure, "key", "a <title>", 'a "finding"')
    assert "costs $5 or $6 &amp; &lt;more&gt;" in text
    assert "a &lt;title&gt;" in text


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.0, "No answer yet"), (0.1, "No answer yet"), (0.5, "focal is not compared: it is not fin")],
)
def test_a_running_study_has_a_report(share, words):
    record = sample(trials=0)
    some = replace(record, rows=record.rows[: int(share * len(record.rows))])
    reader = Reader(page(some))
    assert reader.unclosed == []
    assert words in reader.words


def test_a_study_with_failures_only_has_a_report():
    found = sections(
        page(sample(fail=[(loss, "*") for loss in LOSS_NAMES], outside=False, trials=0))
    )
    assert "failures" in found
    assert "folds" not in found


def luminance(colour):
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_colours_belong_to_losses_and_stand_out_by_day_and_by_night():
    few, all_of_them = looks({"cross_entropy", "exact"}), looks(set(LOSS_NAMES))
    assert few["exact"] == all_of_them["exact"]
    assert len({*all_of_them.values()}) == len(LOSS_NAMES)
    own = looks({"cross_entropy", "exact", "mine"})
    assert own["mine"].colour not in (own["exact"].colour, own["cross_entropy"].colour)
    for look in all_of_them.values():
        day, night = luminance(look.colour), luminance(DARK[look.colour])
        assert (luminance("#fdfdfe") + 0.05) / (day + 0.05) >= 2.5
        assert (night + 0.05) / (luminance("#171c23") + 0.05) >= 4.5


def confusion_of(record):
    runs = [
        [row for row in record.finals("digits") if row.loss == loss]
        for loss in ("exact", "cross_entropy")
    ]
    return confusion(record.tables["digits"], *runs)


def test_confusion_counts_rows():
    record = sample(seeds=2, trials=0)
    found, labels = confusion_of(record), record.tables["digits"].labels
    assert found.counts.sum() == pytest.approx(600)
    assert found.counts.sum(1) == pytest.approx(np.bincount(labels, minlength=10))
    assert found.change.sum(1) == pytest.approx(np.zeros(10))
    gain = np.trace(found.change)
    changed = [c.winner_right - c.reference_right for c in (*found.gained, *found.lost)]
    assert sum(changed) == pytest.approx(gain)
    board = leaderboard(record).boards[0]
    assert gain / 600 == pytest.approx(board.entry("exact").difference)


def test_many_classes_are_folded():
    found = confusion_of(sample(classes=30, trials=0))
    assert (len(found.classes), found.classes[-1]) == (12, "19 others")
    assert found.counts.sum() == pytest.approx(600)


def test_methods_speak_of_what_was_done():
    text = methods_text(sample(noises=(0.0, 0.05, 0.2), seeds=3, trials=16))
    for words in ("5×2 cv", "16 trials", "3 random seeds", "5 % and 20 %", "Holm", "EXACT"):
        assert words in text
    assert "McNemar" in methods_text(sample(folds="holdout", trials=0))
    assert "trials" not in methods_text(sample(folds="holdout", trials=0))
    several = methods_text(sample(tables=("a", "b"), trials=0))
    assert "Wilcoxon" in several
    assert "2 tables" in several


# The picture of many tables


NAMES = ["cross entropy", "EXACT", "a loss with a rather long name", "focal", "hinge"]


@pytest.fixture
def accuracies():
    generator = np.random.default_rng(0)
    level = generator.uniform(0.7, 0.9, (15, 1))
    return level + 0.01 * np.arange(5) + 0.02 * generator.normal(size=(15, 5))


def drawings(accuracies):
    yield critical_difference_figure(critical_difference(accuracies, NAMES))
    yield critical_difference_figure(critical_difference(accuracies[:, :2], NAMES[:2]))


def test_the_same_bytes_whatever_the_settings(accuracies):
    first = [inline_svg(figure, "key", "title", "finding") for figure in drawings(accuracies)]
    with mpl.rc_context({"font.size": 30, "svg.hashsalt": "other", "lines.linewidth": 9}):
        second = [inline_svg(figure, "key", "title", "finding") for figure in drawings(accuracies)]
    assert first == second
    assert len(set(first)) == len(first)


def test_nothing_is_cut_off_and_axes_have_titles(accuracies):
    for figure in drawings(accuracies):
        FigureCanvasAgg(figure).draw()
        page = figure.bbox
        (axes,) = figure.axes
        assert axes.get_title()
        assert axes.get_xlabel().endswith(")")  # with its unit
        for text in (*axes.texts, axes.title, axes.xaxis.label):
            box = text.get_window_extent()
            assert page.x0 <= box.x0 < box.x1 <= page.x1, text.get_text()
            assert page.y0 <= box.y0 < box.y1 <= page.y1, text.get_text()


def test_critical_difference_shows_every_method_and_group(accuracies):
    result = critical_difference(accuracies, NAMES)
    assert len(result.groups) >= 2
    (axes,) = critical_difference_figure(result).axes
    labels = {text.get_text() for text in axes.texts}
    for name, rank in zip(result.names, result.mean_ranks, strict=True):
        assert any(name in label and f"{rank:.2f}" in label for label in labels)
    bars = [line for line in axes.lines if line.get_linewidth() == 4]
    assert len(bars) == len(result.groups)
    for bar, (first, last) in zip(bars, result.groups, strict=True):
        low, high = bar.get_xdata()
        for place, rank in enumerate(result.mean_ranks):
            assert (low <= rank <= high) == (first <= place <= last)
    places = sorted((bar.get_ydata()[0], *bar.get_xdata()) for bar in bars)
    assert len({height for height, _, _ in places}) > 1
    for (height, _, end), (next_height, start, _) in itertools.pairwise(places):
        assert height != next_height or end < start  # bars on one line do not touch
