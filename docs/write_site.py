"""Put the pages of the site into build/docs, and its settings into build/mkdocs.yml.

    python docs/write_site.py           # once; `make docs` then builds build/site
    python docs/write_site.py --watch   # again whenever a page changes, for `make docs-serve`

Pages written by hand are copied, with links to files of the repository's root turned to their
pages. Pages of the losses, the papers and the reference are made from the registry, the results
and the docstrings.
"""

import re
import sys
import time
from pathlib import Path

from pages import curve, losses, papers, reference

from expacc.registry import SPECS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
COPIED = (".md", ".svg", ".png", ".css", ".js")
# Files of the root that are pages of the site, too.
FROM_ROOT = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
CURVE = re.compile(r"^<!-- curve (\w+) -->$", re.M)  # where a loss is drawn
SETUP = re.compile(r"^<!-- run\n.*?-->\n\n?", re.M | re.S)  # what a test runs before a block


def text_of(path: Path) -> str:
    """A page written by hand, as the site has it."""
    text = SETUP.sub("", path.read_text(encoding="utf-8"))
    for name, page in FROM_ROOT.items():
        text = re.sub(rf"\]\((?:\.\./)?{re.escape(name)}(#[\w-]+)?\)", rf"]({page}\1)", text)
    text = re.sub(r"\]\(\.\./README\.md(?:#[\w-]+)?\)", "](index.md)", text)
    text = CURVE.sub(lambda found: curve.picture(SPECS[found[1]]), text)
    return text.replace("](docs/", "](") if path.parent == ROOT else text


def navigation(settings: str, present: set[str]) -> str:
    """The settings with the pages that are made, and without those that are not there."""
    lines = []
    for line in settings.splitlines():
        path = re.search(r": ([\w/-]+\.md)$", line)
        if path and path[1] not in present:
            continue
        lines.append(line)
        if line.endswith("All losses: losses.md"):
            for heading, entries in losses.navigation():
                lines.append(f"      - {heading}:")
                lines += [f'          - "{label}": {page}' for label, page in entries]
        if line.endswith("Reference:"):
            lines += [f'      - "{label}": {page}' for label, page in reference.navigation()]
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str | bytes]:
    """Path below build/docs → content."""
    found: dict[str, str | bytes] = {}
    for path in sorted(DOCS.rglob("*")):
        if path.suffix in COPIED:
            name = str(path.relative_to(DOCS))
            found[name] = text_of(path) if path.suffix == ".md" else path.read_bytes()
    found |= {page: text_of(ROOT / name) for name, page in FROM_ROOT.items()}
    found |= losses.pages() | papers.pages() | reference.pages()
    return found


def write(build: Path) -> int:
    """Write what differs, remove what is no page any more; the number of pages that differed."""
    found = {f"docs/{name}": content for name, content in pages().items()}
    present = {name.removeprefix("docs/") for name in found}
    found["mkdocs.yml"] = navigation((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), present)
    changed = 0
    for name, content in found.items():
        data = content if isinstance(content, bytes) else content.encode()
        path = build / name
        if not path.exists() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            changed += 1
    for path in (build / "docs").rglob("*"):
        if path.is_file() and str(path.relative_to(build)) not in found:
            path.unlink()
    return changed


def main(arguments: list[str]) -> None:
    seen: dict[Path, float] = {}
    while True:
        files = [ROOT / name for name in ("mkdocs.yml", *FROM_ROOT)]
        files += [path for path in DOCS.rglob("*") if path.suffix in COPIED]
        times = {path: path.stat().st_mtime for path in files}
        if times != seen:
            print(f"{write(ROOT / 'build')} pages written to build/docs", flush=True)
        if "--watch" not in arguments:
            return
        seen = times
        time.sleep(1)


if __name__ == "__main__":
    main(sys.argv[1:])
