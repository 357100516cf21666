"""A recipe's page and the book in a real browser: all of it shows, nothing runs, nothing leaves."""

import fake_recipes
import pytest
from playwright import sync_api
from study_samples import PAYLOADS
from test_recipes_frame import hostile_result, sample
from test_report_browser import FLAGS, WIDTHS, Visit, find_chromium

from expacc.recipes.recipe import Failure
from expacc.recipes.results import write_book, write_files


@pytest.fixture(scope="module")
def browser():
    path = find_chromium()
    with sync_api.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    out = tmp_path_factory.mktemp("reproduce")
    known = {one.name: one for one in fake_recipes.RECIPES}
    whole = sample(
        command="expacc reproduce fake-one --data " + "long/" * 40,
        machines=("A processor with rather a long name, 2 cores",),
        failures=(Failure("exact on car", "diverged at step 3", 2),),
        missing=("mnist is missing: https://storage.googleapis.com/" + "x" * 80,),
        runs=12,
    )
    write_files(whole, out / "fake-one")
    write_files(hostile_result(), out / "fake-alone")
    book = write_book(out, known, left_out={"fake-data": PAYLOADS[0]})
    return {
        "page": out / "fake-one/page.html",
        "hostile": out / "fake-alone/page.html",
        "book": book,
    }


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("name", ["page", "book", "hostile"])
def test_it_shows_and_asks_for_nothing(browser, pages, name, width):
    with Visit(browser, pages[name], width=width) as visit:
        page = visit.page
        for place in page.locator("summary").all():
            place.click()
        page.mouse.move(300, 300)
        page.keyboard.press("Tab")
        page.wait_for_timeout(200)
        assert visit.messages == []
        assert visit.requests == [visit.url]
        assert page.evaluate("window.hit") is None
        assert page.title() != "hit"
        assert page.evaluate("document.scripts.length") == 0
        inside = "document.querySelectorAll('iframe,img,form,object,embed,base').length"
        assert page.evaluate(inside) == 0
        sideways = page.evaluate("document.documentElement.scrollWidth")
        assert sideways <= width, "only tables may scroll sideways, within themselves"


@pytest.mark.parametrize("width", [1280, 360])
def test_the_chart_and_every_verdict_show(browser, pages, width):
    with Visit(browser, pages["page"], width=width) as visit:
        seen = visit.page.evaluate(
            """() => [...document.querySelectorAll("figure svg[role=img]")]
                .filter(svg => svg.getBoundingClientRect().height > 100).length"""
        )
        assert seen == 1
        shown = [
            place.inner_text()
            for place in visit.page.locator("table.beside .verdict").all()
            if place.is_visible()
        ]
        claims = ["holds", "does not hold", "not run"]
        assert shown == [*claims, "within", "new", "above", "new", "below", "new", "below"]
        inside = "e => e.getBoundingClientRect().right <= window.innerWidth"
        places = visit.page.locator("table.beside .verdict").all()
        assert all(place.evaluate(inside) for place in places), "on a phone, too"


def test_hostile_words_are_all_there_as_words(browser, pages):
    with Visit(browser, pages["hostile"]) as visit:
        words = visit.page.evaluate("document.body.textContent.replace(/\\\\s+/g, ' ')")
    assert [text for text in PAYLOADS[:29] if " ".join(text.split()) not in words] == []


@pytest.mark.parametrize("name", ["page", "book"])
def test_dark_mode_and_print(browser, pages, name):
    colour = "getComputedStyle(document.body).backgroundColor"
    with Visit(browser, pages[name]) as visit:
        day = visit.page.evaluate(colour)
    with Visit(browser, pages[name], dark=True) as visit:
        assert visit.page.evaluate(colour) != day
        assert visit.messages == []
        visit.page.emulate_media(media="print")
        assert visit.page.evaluate(colour) == "rgb(255, 255, 255)"
        assert not visit.page.locator("nav.contents").is_visible()
        assert visit.page.pdf(format="A4").startswith(b"%PDF")


def test_the_book_leads_to_the_page(browser, pages):
    with Visit(browser, pages["book"]) as visit:
        assert PAYLOADS[0] in visit.page.locator("main").inner_text()
        visit.page.get_by_role("link", name="fake-one").click()
        assert visit.page.title() == "Accuracy of EXACT"
        assert visit.page.url == pages["page"].as_uri()
        assert visit.messages == []
