"""The pictures say what the numbers say, and the same figure gives the same bytes."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from expacc.report.figures import critical_difference_figure, inline_svg
from expacc.stats import critical_difference

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


def test_bars_on_one_line_do_not_touch(accuracies):
    (axes,) = critical_difference_figure(critical_difference(accuracies, NAMES)).axes
    bars = [line for line in axes.lines if line.get_linewidth() == 4]
    for one in bars:
        for other in bars:
            if one is not other and one.get_ydata()[0] == other.get_ydata()[0]:
                assert one.get_xdata()[1] < other.get_xdata()[0] or (
                    other.get_xdata()[1] < one.get_xdata()[0]
                )
    assert len({bar.get_ydata()[0] for bar in bars}) > 1
