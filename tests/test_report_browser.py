"""The report in a real browser: every chart shows, nothing runs, nothing leaves the page.

Chromium is installed where it is missing and we may; elsewhere these tests are skipped.
"""

import os
import shutil
import subprocess

import pytest
from playwright import sync_api
from study_samples import PAYLOADS, hostile, sample

from expacc.compare.page import write_report

FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
WIDTHS = {"desktop": 1280, "tablet": 768, "phone": 360}


def find_chromium() -> str:
    """The path of a browser; installs Debian's where that is possible, else skips."""
    for _ in range(2):
        for name in ("chromium", "chromium-browser", "google-chrome"):
            if path := shutil.which(name):
                return path
        if os.geteuid() != 0 or not shutil.which("apt-get"):
            pytest.skip("chromium is not installed, and only root with apt-get could install it")
        for words in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
            try:
                done = subprocess.run(
                    ["apt-get", *words], capture_output=True, text=True, timeout=240, check=False
                )
            except subprocess.TimeoutExpired:
                pytest.skip("chromium could not be installed within four minutes")
        if done.returncode:
            pytest.skip(f"chromium could not be installed: {done.stderr.strip()[-200:]}")
    pytest.skip("chromium was installed but is not on the path")


@pytest.fixture(scope="module")
def browser():
    path = find_chromium()
    with sync_api.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    failing = [("focal", "1a")]
    records = {
        "one": sample(noises=(0.0, 0.2), wrong_share=0.03, trials=3, fail=failing),
        "many": sample(tables=tuple("abcde"), trials=1, rows=200, classes=3),
        "hostile": hostile(trials=2),
        "hostile alone": sample(tables=(PAYLOADS[1],), folds="holdout", trials=0, classes=2),
    }
    return {name: write_report(record, folder / name) for name, record in records.items()}


class Visit:
    """An open page, with every request it made and every message it wrote."""

    def __init__(self, browser, path, *, width=1280, dark=False):
        self.context = browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        self.page = self.context.new_page()
        self.requests, self.messages = [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("dialog", lambda dialog: self.messages.append(dialog.message))
        self.url = path.as_uri()
        self.page.goto(self.url)
        self.page.wait_for_timeout(100)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


CHARTS = {
    "one": {"folds", "differences", "noise"},
    "many": {"tables", "ranks", "profile"},
}


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_shows_and_nothing_is_asked_for(browser, reports, name, width):
    with Visit(browser, reports[name], width=width) as visit:
        shown = visit.page.evaluate(
            """() => [...document.querySelectorAll("main figure")].map(figure => {
                const parts = [...figure.querySelectorAll("svg[role=img], table.confusion")];
                const seen = parts.filter(part => part.getBoundingClientRect().height > 100);
                return [figure.closest("section").id, seen.length];
            })"""
        )
        both = {"columns", "curves", "reliability", "confusion", "search"}
        assert dict(shown) == dict.fromkeys(CHARTS[name] | both, 1)
        assert visit.messages == []
        assert visit.requests == [visit.url]
        sideways = visit.page.evaluate("document.documentElement.scrollWidth")
        assert sideways <= width, "only tables may scroll sideways, within themselves"


def test_letters_in_charts_are_readable_on_a_phone(browser, reports):
    with Visit(browser, reports["one"], width=360) as visit:
        smallest = visit.page.evaluate(
            """() => Math.min(...[...document.querySelectorAll("svg[role=img]")]
                .filter(svg => svg.getBoundingClientRect().width > 0)
                .flatMap(svg => {
                    const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
                    return [...svg.querySelectorAll("text")].map(
                        text => parseFloat(getComputedStyle(text).fontSize) * scale);
                }))"""
        )
    assert smallest >= 11


@pytest.mark.parametrize("width", [1280, 360])
def test_no_text_of_a_chart_is_cut_off(browser, reports, width):
    with Visit(browser, reports["one"], width=width) as visit:
        cut = visit.page.evaluate(
            """() => [...document.querySelectorAll("svg[role=img]")].flatMap(svg => {
                const box = svg.getBoundingClientRect();
                return box.width === 0 ? [] : [...svg.querySelectorAll("text")].filter(text => {
                    const own = text.getBoundingClientRect();
                    return own.left < box.left - 3 || own.right > box.right + 3;
                }).map(text => text.textContent);
            })"""
        )
    assert cut == []


def test_dark_mode_repaints_the_charts(browser, reports):
    colours = {}
    for dark in (False, True):
        with Visit(browser, reports["one"], dark=dark) as visit:
            assert visit.messages == []
            colours[dark] = visit.page.evaluate(
                """() => ({
                    page: getComputedStyle(document.body).backgroundColor,
                    letters: [...new Set([...document.querySelectorAll("#folds .wide text")].map(
                        text => getComputedStyle(text).fill))],
                    marker: getComputedStyle(
                        document.querySelector("#folds .wide use[fill='#0072b2']")).fill,
                })"""
            )

    def light(colour):
        return sum(int(part) for part in colour[4:-1].split(",")) / 3

    assert light(colours[False]["page"]) > 200 > 60 > light(colours[True]["page"])
    assert all(light(colour) < 120 for colour in colours[False]["letters"])
    assert all(light(colour) > 140 for colour in colours[True]["letters"])
    assert colours[False]["marker"] != colours[True]["marker"]


def test_it_prints(browser, reports):
    with Visit(browser, reports["one"], dark=True) as visit:
        visit.page.emulate_media(media="print")
        assert not visit.page.locator("nav.contents").is_visible()
        background = "getComputedStyle(document.body).backgroundColor"
        assert visit.page.evaluate(background) == "rgb(255, 255, 255)"
        assert visit.page.locator("#folds .wide svg").is_visible()
        assert not visit.page.locator("#folds .narrow svg").is_visible()
        assert visit.page.pdf(format="A4").startswith(b"%PDF")


@pytest.mark.parametrize("width", [1280, 360])
def test_thirty_payloads_do_nothing(browser, reports, width):
    assert len(PAYLOADS) >= 30
    with Visit(browser, reports["hostile"], width=width) as visit:
        page = visit.page
        for place in page.locator("summary").all():
            if place.is_visible():
                place.click()
        page.mouse.move(300, 300)
        page.keyboard.press("Tab")
        page.wait_for_timeout(300)
        assert visit.messages == []
        assert visit.requests == [visit.url]
        assert page.url.split("#")[0] == visit.url
        assert page.evaluate("window.hit") is None
        assert page.title() != "hit"
        assert page.evaluate("document.scripts.length") == 0
        assert (
            page.evaluate("document.querySelectorAll('iframe,img,form,object,embed').length") == 0
        )
        words = page.evaluate("document.body.textContent.replace(/\\\\s+/g, ' ')")
        missing = [text for text in PAYLOADS[:29] if " ".join(text.split()) not in words]
        assert missing == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_hostile_table_is_named_in_the_title(browser, reports):
    with Visit(browser, reports["hostile alone"]) as visit:
        assert visit.page.title() == f"{PAYLOADS[1]}: which loss?"
        assert PAYLOADS[1] in visit.page.locator(".eyebrow").inner_text()
        assert visit.messages == []


def test_a_script_would_be_noticed(browser, tmp_path):
    """The test above can fail: the same payload in a page without our care."""
    path = tmp_path / "careless.html"
    path.write_text(f"<title>x</title>{PAYLOADS[0]}")
    with Visit(browser, path) as visit:
        assert visit.messages == ["hit"]
        assert visit.page.evaluate("window.hit") == 1


def test_the_policy_stops_what_escaping_might_miss(browser, reports, tmp_path):
    text = reports["one"].read_text()
    path = tmp_path / "injected.html"
    path.write_text(text.replace("<main>", f"<main>{''.join(PAYLOADS[:3])}{PAYLOADS[6]}", 1))
    with Visit(browser, path) as visit:
        assert visit.page.evaluate("window.hit") is None
        assert any("Content Security Policy" in message for message in visit.messages)
        assert [url for url in visit.requests if url.startswith("http")] == []
