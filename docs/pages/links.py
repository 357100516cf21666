"""Links of a built site that lead nowhere: pages, files and anchors; nothing outside is asked.

python docs/pages/links.py build/site
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LINKS = {"a": "href", "link": "href", "img": "src", "script": "src", "source": "src"}


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        link = found.get(_LINKS.get(tag, ""))
        if link is not None:
            self.links.append(link)
            if (tag != "a" and urlsplit(link).scheme in ("http", "https")) or link.startswith("//"):
                self.fetched.append(link)


def broken(site: Path) -> list[str]:
    """A line for each link that leads nowhere, and each that a page would fetch from elsewhere."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    found = []
    for path, page in sorted(pages.items()):
        where = path.relative_to(site)
        found += [f"{where} fetches {link}" for link in page.fetched]
        for link in dict.fromkeys(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            aim = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            aim = aim / "index.html" if aim.is_dir() else aim
            if not aim.exists():
                found.append(f"{where} → {link}: there is no such page")
            elif parts.fragment and unquote(parts.fragment) not in pages.get(aim, page).anchors:
                found.append(f"{where} → {link}: there is no such place")
    return found


if __name__ == "__main__":
    site = Path(sys.argv[1]).resolve()
    lines = broken(site)
    print("\n".join(lines) or f"{len(list(site.rglob('*.html')))} pages, no broken link")
    sys.exit(1 if lines else 0)
