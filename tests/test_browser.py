"""The pages of a comparison and of a recipe in a real browser: all of it shows, nothing runs,
nothing leaves the page.

Chromium is installed where it is missing and we may; elsewhere these tests are skipped.
"""

import os
import shutil
import subprocess

import fake_recipes
import pytest
from playwright import sync_api
from study_samples import PAYLOADS, hostile, sample
from test_recipes_frame import hostile_result
from test_recipes_frame import sample as recipe_sample

from expacc.compare.page import write_report
from expacc.recipes.recipe import Failure
from expacc.recipes.results import write_book, write_files

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


@pytest.fixture(scope="module")
def pages(reports, tmp_path_factory):
    """Those of comparisons, of recipes, and the book of recipes."""
    out = tmp_path_factory.mktemp("reproduce")
    whole = recipe_sample(
        command="expacc reproduce fake-one --data " + "long/" * 40,
        machines=("A processor with rather a long name, 2 cores",),
        failures=(Failure("exact on car", "diverged at step 3", 2),),
        missing=("mnist is missing: https://storage.googleapis.com/" + "x" * 80,),
        runs=12,
    )
    write_files(whole, out / "fake-one")
    write_files(hostile_result(), out / "fake-alone")
    known = {one.name: one for one in fake_recipes.RECIPES}
    book = write_book(out, known, left_out={"fake-data": PAYLOADS[0]})
    recipe, bad = (out / name / "page.html" for name in ("fake-one", "fake-alone"))
    return {**reports, "recipe": recipe, "hostile recipe": bad, "book": book}


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
@pytest.mark.parametrize("name", ["one", "many", "hostile", "recipe", "hostile recipe", "book"])
def test_nothing_runs_and_nothing_is_asked_for(browser, pages, name, width):
    """Thirty payloads do nothing, whatever is opened, pointed at and chosen."""
    assert len(PAYLOADS) >= 30
    with Visit(browser, pages[name], width=width) as visit:
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
        inside = "document.querySelectorAll('iframe,img,form,object,embed').length"
        assert page.evaluate(inside) == 0
        sideways = page.evaluate("document.documentElement.scrollWidth")
        assert sideways <= width, "only tables may scroll sideways, within themselves"
        if "hostile" in name:
            words = page.evaluate("document.body.textContent.replace(/\\s+/g, ' ')")
            assert [text for text in PAYLOADS[:29] if " ".join(text.split()) not in words] == []


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_shows(browser, reports, name, width):
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


@pytest.mark.parametrize("name", ["one", "recipe", "book"])
def test_it_prints_as_by_day(browser, pages, name):
    colour = "getComputedStyle(document.body).backgroundColor"
    with Visit(browser, pages[name]) as visit:
        day = visit.page.evaluate(colour)
    with Visit(browser, pages[name], dark=True) as visit:
        assert visit.page.evaluate(colour) != day
        assert visit.messages == []
        visit.page.emulate_media(media="print")
        assert visit.page.evaluate(colour) == "rgb(255, 255, 255)"
        assert not visit.page.locator("nav.contents").is_visible()
        if name == "one":
            assert visit.page.locator("#folds .wide svg").is_visible()
            assert not visit.page.locator("#folds .narrow svg").is_visible()
        assert visit.page.pdf(format="A4").startswith(b"%PDF")


@pytest.mark.parametrize("width", [1280, 360])
def test_the_chart_and_every_verdict_of_a_recipe_show(browser, pages, width):
    with Visit(browser, pages["recipe"], width=width) as visit:
        seen = visit.page.evaluate(
            """() => [...document.querySelectorAll("figure svg[role=img]")]
                .filter(svg => svg.getBoundingClientRect().height > 100).length"""
        )
        assert seen == 1
        places = visit.page.locator("table.beside .verdict").all()
        shown = [place.inner_text() for place in places if place.is_visible()]
        claims = ["holds", "does not hold", "not run"]
        assert shown == [*claims, "within", "new", "above", "new", "below", "new", "below"]
        inside = "e => e.getBoundingClientRect().right <= window.innerWidth"
        assert all(place.evaluate(inside) for place in places), "on a phone, too"


def test_the_book_leads_to_the_page(browser, pages):
    with Visit(browser, pages["book"]) as visit:
        assert PAYLOADS[0] in visit.page.locator("main").inner_text()
        visit.page.get_by_role("link", name="fake-one").click()
        assert visit.page.title() == "Accuracy of EXACT"
        assert visit.page.url == pages["recipe"].as_uri()
        assert visit.messages == []


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
