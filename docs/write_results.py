"""Write results.md, and the README's table of results, from the rows of `expacc reproduce`."""

import sys
from pathlib import Path

from expacc.files import write_whole
from expacc.recipes.index import folder_of, put_between, readme_section, results_markdown
from expacc.recipes.registry import recipes
from expacc.recipes.runner import has_rows, load_result
from expacc.recipes.summary import summary

DOCS = Path(__file__).resolve().parent


def main(runs: Path, results: Path, readme: Path) -> None:
    found = [
        load_result(one, folder)
        for one in recipes().values()
        if has_rows(folder := folder_of(runs, one.name, quick=False))
    ]
    section = readme_section([summary(result) for result in found])
    write_whole(results, results_markdown(found))
    write_whole(readme, put_between(readme.read_text(encoding="utf-8"), section))
    print(f"{len(found)} of {len(recipes())} recipes → {results.name}, {readme.name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), DOCS / "results.md", DOCS.parent / "README.md")
