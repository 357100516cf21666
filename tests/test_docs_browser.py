"""The built site in a real browser: nothing is fetched, nothing overflows, by day and by night."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import write_site
from pages import links
from playwright import sync_api
from test_browser import FLAGS, Visit, find_chromium

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = (
    *("losses/leaky_expected_error", "index", "papers", "losses/jensen_shannon", "which-loss"),
    *("start-table", "report", "reference/training", "reference/cli", "losses"),
)


def build(folder: Path, *command: str) -> Path:
    write_site.write(folder)
    subprocess.run(
        [sys.executable, "-m", *command, "--strict", "-f", str(folder / "mkdocs.yml")],
        env={**os.environ, "PYTHONPATH": f"{DOCS}:{DOCS.parent}"},
        check=True,
        capture_output=True,
    )
    return folder / "site"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return build(tmp_path_factory.mktemp("site"), "zensical", "build")


@pytest.fixture(scope="module")
def browser():
    path = find_chromium()
    with sync_api.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield running
        running.close()


@pytest.mark.parametrize(
    ("width", "dark", "pages"),
    [
        (1280, False, PAGES[:2]),
        (390, True, PAGES[:3]),
        pytest.param(1280, True, PAGES, marks=pytest.mark.slow),
        pytest.param(390, False, PAGES, marks=pytest.mark.slow),
    ],
)
def test_pages_show(browser, site, width, dark, pages):
    for name in pages:
        with Visit(browser, site / f"{name}.html", width=width, dark=dark) as visit:
            page = visit.page
            outside = [url for url in visit.requests if not url.startswith(("file:", "blob:"))]
            assert not outside
            assert not visit.messages
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{name} is {wide} px too wide at {width}"
            assert page.locator("h1").first.bounding_box()["height"] > 20
            for formula in page.locator("math").all():
                assert formula.bounding_box()["height"] > 12
            if name == "losses/leaky_expected_error":
                line = page.locator(".curve .loss").first
                colour = line.evaluate("line => getComputedStyle(line).stroke")
                assert colour == ("rgb(255, 143, 71)" if dark else "rgb(213, 94, 0)")
                below = page.evaluate("getComputedStyle(document.body).backgroundColor")
                assert (int(below.split("(")[1].split(",")[0]) < 60) == dark


def test_no_link_leads_nowhere(site):
    assert links.broken(site) == []


def test_search_works_from_the_disk(browser, site):
    with Visit(browser, site / "losses" / "hinge.html") as visit:
        visit.page.keyboard.press("Control+k")
        visit.page.wait_for_timeout(200)
        visit.page.keyboard.type("bi-tempered")
        visit.page.get_by_text("heavy tails").first.wait_for(timeout=10_000)
        assert not visit.messages


@pytest.mark.slow
def test_material_builds_it_too(tmp_path):
    assert (build(tmp_path, "mkdocs", "build") / "losses" / "hinge.html").exists()
