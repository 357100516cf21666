"""What stands in the documents works: Python runs, commands and their options are there."""

import functools
import itertools
import re
import shlex
import tomllib
import warnings
from pathlib import Path

import pytest
import typer
from pages import losses, papers

from expacc.cli.app import app
from expacc.recipes.recipe import recipes
from expacc.registry import choose_losses

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [*sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("*.md"))]
}
# A fenced block, or what a page runs before one: <!-- run … -->.
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$|^<!-- run\n(.*?)^-->$", re.M | re.S)
SPAN = re.compile(r"(?<!`)`((?:expacc|make|python|pip|torchrun) [^`\n]+)`")
# Networks that vote, a compiler, a whole study.
SLOW = {f"docs/{name}.md" for name in ("wrong-labels", "classifier", "kernels", "networks")}
BEFORE = {  # page → what runs before its blocks, where no comment says it
    "docs/classifier.md": "from sklearn.datasets import load_iris\n"
    "X, y = load_iris(return_X_y=True)\nX_new = X[:5]"
}
ELSEWHERE = {"docs/frameworks.md": "test_frameworks.py"}  # page → who runs its blocks


def blocks(text: str, *languages: str) -> list[str]:
    return [
        found[4] or re.sub(rf"^{found[1]}", "", found[3], flags=re.M)
        for found in BLOCK.finditer(text)
        if found[4] or found[2] in languages
    ]


PROGRAMS = {
    name: code
    for name, text in PAGES.items()
    if name not in ELSEWHERE and (code := blocks(text, "python", "py"))
}


def test_others_run_the_rest():
    for page in PAGES.keys() & ELSEWHERE.keys():
        assert page.split("/")[-1] in (ROOT / "tests" / ELSEWHERE[page]).read_text()


@pytest.mark.parametrize(
    "page",
    [pytest.param(one, marks=[pytest.mark.slow] * (one in SLOW)) for one in PROGRAMS],
)
def test_python_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = {"__name__": "__main__"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for place, code in enumerate([BEFORE.get(page, ""), *PROGRAMS[page]]):
            exec(compile(code, f"{page}, block {place}", "exec"), known)


@functools.cache
def options() -> dict[str, set[str]]:
    commands = typer.main.get_command(app).commands
    return {
        name: {flag for one in command.params for flag in [*one.opts, *one.secondary_opts]}
        for name, command in commands.items()
    }


def wrong_with(line: str) -> str:
    """What is wrong with a command; '' if nothing, or if it is none of ours."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return ""
    words = words[: next((k for k, word in enumerate(words) if word in ("|", ">", "…")), None)]
    if words[:2] == ["python", "-m"] or len(words) < 2:
        return ""
    program, first, rest = words[0].split("/")[-1], words[1], words[2:]
    flags = [word.split("=")[0] for word in rest if re.match(r"-{1,2}[a-z]", word)]
    if program == "expacc" and first.islower() and not first.startswith("-"):
        if first not in options():
            return f"{first} is no command"
        unknown = [flag for flag in flags if flag not in options()[first] | {"--help"}]
        losses = dict(itertools.pairwise(rest)).get("--losses", "")
        if losses.islower():
            choose_losses(losses.split(","))
        if first == "reproduce" and rest[:1] and re.fullmatch("[a-z]+-[a-z-]+", rest[0]):
            unknown += [rest[0]] * (rest[0] not in recipes())
        return f"{unknown} is not there" if unknown else ""
    if program == "make" and re.fullmatch("[a-z-]+", first):
        found = re.search(rf"^{first}:", (ROOT / "Makefile").read_text(), re.M)
        return "" if found else f"{first} is no target"
    if program == "python" and first.endswith(".py") and "/" in first:
        path = ROOT / first
        if not path.exists():
            return f"{first} is not there"
        return "".join(flag for flag in flags if flag not in path.read_text())
    if program == "pip" and (extra := re.search(r"(?:\.|expacc)\[(\w+)\]", line)):
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        return "" if extra[1] in extras["optional-dependencies"] else f"{extra[1]} is no extra"
    return ""


MADE = losses.pages() | papers.pages()  # of the site alone


@pytest.mark.parametrize("page", [*PAGES, *MADE])
def test_commands_are_there(page):
    text = PAGES.get(page) or MADE[page]
    lines = [line for block in blocks(text, "", "sh", "bash") for line in block.splitlines()]
    for line in [*lines, *SPAN.findall(text)]:
        assert not wrong_with(line.strip()), line


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page):
    for link in re.findall(r"\]\((?!https?:)([\w./-]+\.\w+)(?:#[\w-]+)?\)", PAGES[page]):
        made = link.startswith(("losses/", "reference/")) or link == "papers.md"
        if not (made and page.startswith("docs/")):
            assert ((ROOT / page).parent / link).exists(), link


def test_a_wrong_command_is_noticed():
    for line in (
        "expacc comparre x",
        "expacc compare x --lossess a",
        "make dmeo",
        "python docs/x.py",
        "pip install '.[all]'",
        "expacc reproduce exact-tyo",
    ):
        assert wrong_with(line)
    with pytest.raises(ValueError, match="fokal"):
        wrong_with("expacc compare x.csv --losses fokal")
