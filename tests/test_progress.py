"""The bar on a terminal, the lines in a log, and silence."""

import io
import sys

import pytest
from rich.console import Console

from expacc.training import progress
from expacc.training.progress import progress_bar


class Clock:
    """Seconds that pass only when told."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def work(stream, monkeypatch, *, steps=100, seconds=0.125, done=0, enabled=True):
    """Do ``steps`` units of ``seconds`` each; return what was shown."""
    monkeypatch.setattr(sys, "stderr", stream)
    clock = Clock()
    with progress_bar(
        total=done + steps, title="epoch 1/2", enabled=enabled, done=done, clock=clock
    ) as bar:
        for step in range(steps):
            clock.now += seconds
            bar.update(done + step + 1, accuracy=0.925, loss=1 / 3)
    return stream.getvalue()


def test_a_log_gets_a_line_per_tenth_or_each_half_minute(monkeypatch):
    lines = work(io.StringIO(), monkeypatch).splitlines()
    assert lines[0] == "epoch 1/2: 16 %, accuracy 92.5 %, loss 0.3333, 0:00:10 left"
    assert lines[-1] == "epoch 1/2: 100 %, accuracy 92.5 %, loss 0.3333, after 0:00:12"
    assert [int(line.split()[2]) for line in lines] == [*range(16, 97, 10), 100]
    lines = work(io.StringIO(), monkeypatch, steps=1000, seconds=10).splitlines()
    assert 300 <= len(lines) <= 350
    assert "2:46:30 left" in lines[0]
    lines = work(io.StringIO(), monkeypatch, steps=100, done=900, seconds=1).splitlines()
    assert "0:01:38 left" in lines[0]  # earlier work does not count as speed


@pytest.mark.parametrize("how", [{"seconds": 0.019}, {"enabled": False}], ids=str)
def test_a_short_job_shows_nothing_nor_one_that_shall_be_silent(monkeypatch, how):
    assert work(io.StringIO(), monkeypatch, **how) == ""
    assert work(Terminal(), monkeypatch, **how) == ""


def test_a_terminal_gets_a_bar(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    shown = work(Terminal(), monkeypatch)
    for part in ("epoch 1/2", "━", "50%", "accuracy 92.5 %, loss 0.3333", "0:00:06 left"):
        assert part in shown
    assert shown.count("━" * 10) < 120  # not redrawn at every unit of a fast job


def test_the_bar_ends_when_the_work_fails(monkeypatch):
    stream, clock = Terminal(), Clock()
    monkeypatch.setattr(sys, "stderr", stream)
    console = Console(file=stream, force_terminal=True)
    monkeypatch.setattr("rich.console.Console", lambda **_: console)

    def fail():
        with progress_bar(total=2, title="x", clock=clock) as bar:
            clock.now += 5
            bar.update(1)
            raise KeyError("work")

    with pytest.raises(KeyError):
        fail()
    assert "\x1b[?25h" in stream.getvalue()  # the cursor is visible again


def test_without_rich_a_terminal_gets_lines(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert work(Terminal(), monkeypatch).startswith("epoch 1/2: 16 %")


def test_due_before_reading_numbers(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    clock = Clock()
    with progress_bar(total=1000, title="x", clock=clock) as bar:
        assert not bar.due(2)
        clock.now += progress.PATIENCE
        assert bar.due(2)
        bar.update(1)
        assert not bar.due(2)
        assert bar.due(101)
        clock.now += progress.LINE_SECONDS
        assert bar.due(2)
    with progress_bar(total=10, title="x", enabled=False, clock=clock) as bar:
        clock.now += 1000
        assert not bar.due(2)
        assert bar.seconds_left is None


def test_a_title_may_change(monkeypatch):
    stream, clock = io.StringIO(), Clock()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_bar(total=4, title="epoch 1/2", clock=clock) as bar:
        clock.now += 3
        bar.update(2, "epoch 2/2", runs="5 of 8")
    assert stream.getvalue().startswith("epoch 2/2: 50 %, runs 5 of 8, 0:00:03 left")


def test_a_terminal_gets_a_table_under_the_bar(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "6")
    stream, clock = Terminal(), Clock()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_bar(total=4, title="study", clock=clock) as bar:
        bar.table = [(f"[loss {place}]", f"{90 - place}.0 %", "3 runs") for place in range(9)]
        clock.now += 5
        bar.update(1, best="loss 0")
    shown = stream.getvalue()
    assert "[loss 0]  90.0 %  3 runs" in shown  # and no markup
    assert "[loss 3]" in shown
    assert "[loss 4]" not in shown  # a terminal of six lines
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    with progress_bar(total=4, title="study", clock=clock) as bar:
        bar.table = [("loss 0", "90.0 %")]
        clock.now += 5
        bar.update(1, best="loss 0")
    assert log.getvalue().count("\n") == 2  # plain lines, without it
