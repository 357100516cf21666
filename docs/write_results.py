"""Write docs/results/NAME.json, results.md and the README's results from stored rows.

Rows that were made from a tree with uncommitted changes are refused: nobody could make them again.
"""

import sys
from pathlib import Path

from expacc.files import write_whole
from expacc.recipes.recipe import recipes
from expacc.recipes.results import (
    as_json,
    content_of,
    folder_of,
    portable,
    put_between,
    read_content,
    readme_section,
    refuse_unclean,
    results_markdown,
)
from expacc.recipes.runner import has_rows, load_result

DOCS = Path(__file__).resolve().parent


def main(runs: Path, docs: Path, readme: Path) -> int:
    refused = 0
    for one in recipes().values():
        folder = folder_of(runs, one.name, quick=False)
        if not has_rows(folder):
            continue
        content = portable(content_of(load_result(one, folder)))
        if reason := refuse_unclean(content):
            print(reason)
            refused += 1
        else:
            (docs / "results").mkdir(exist_ok=True)
            write_whole(docs / "results" / f"{one.name}.json", as_json(content))
    known = [read_content(docs / "results" / f"{name}.json") for name in recipes()]
    found = [content for content in known if content is not None]
    write_whole(docs / "results.md", results_markdown(found))
    write_whole(readme, put_between(readme.read_text(encoding="utf-8"), readme_section(found)))
    print(f"{len(found)} of {len(known)} recipes → results.md, {readme.name}; {refused} refused")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), DOCS, DOCS.parent / "README.md"))
