"""The house keeps its order: data flows one way, every loss is listed, documented and shown."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from losses import LOSSES

import expacc
from expacc import baselines, functional

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "expacc"

# Lowest first: a room imports from those above it and from its own line, never from below.
ROOMS = [
    {"errors", "plain", "schedules", "files", "stored"},
    {"ops"},
    {"contract", "probabilities", "optim"},
    {"functional", "baselines"},
    {"losses", "centers", "scheduled", "expacc"},
    {"data"},
    {"training"},
    {"estimator"},
    {"runner"},
    {"stats"},
    {"report"},
    {"compare"},
    {"recipes"},
    {"cli", "__main__"},
    {"study"},  # old import paths, for one release
]
RANK = {name: rank for rank, names in enumerate(ROOMS) for name in names}
SOURCES = sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in SOURCES}


def room(name: str) -> str:
    return (name.split(".")[1:2] or ["expacc"])[0]


def imports(path: Path, *, at_start: bool = False) -> set[str]:
    """The modules that a file imports; ``from expacc import x`` counts as expacc.x if it is one.

    ``at_start`` leaves out what a function imports when it is called.
    """
    tree = ast.parse(path.read_text())
    found: set[str] = set()
    nodes = [tree] if at_start else []
    walk = [] if at_start else list(ast.walk(tree))
    while nodes:
        node = nodes.pop()
        walk.append(node)
        nodes += [
            below
            for below in ast.iter_child_nodes(node)
            if not isinstance(below, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        ]
    for node in walk:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (below & MODULES.keys()) or {str(node.module)}
    return found


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_data_flows_one_way(path):
    name = module_name(path)
    own = room(name)
    assert own in RANK, f"{own} has no place in ROOMS: give it one"
    for imported in imports(path):
        if imported.split(".")[0] == "expacc":
            assert RANK[room(imported)] <= RANK[own], f"{name} imports {imported} from below"


def test_no_module_imports_itself_by_way_of_others():
    graph = {name: imports(path, at_start=True) & MODULES.keys() for name, path in MODULES.items()}
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, f"a cycle: {' → '.join((*way[way.index(name) :], name))}"
        if name not in done:
            for imported in graph[name]:
                visit(imported, (*way, name))
            done.add(name)

    for name in graph:
        visit(name, ())


# The rooms above the losses may use more, and say so in the extras of pyproject.toml.
EXTRAS = {
    "cli": {"typer", "rich"},
    "compare": {"numpy", "scipy", "matplotlib", "rich", "sklearn"},
    "data": {"numpy", "sklearn", "pyarrow", "python_calamine", "zstandard"},
    "estimator": {"numpy", "scipy", "sklearn", "safetensors"},
    "recipes": {"numpy", "scipy", "sklearn", "matplotlib", "jinja2", "markupsafe"},
    "report": {"numpy", "matplotlib", "jinja2", "markupsafe"},
    "runner": {"numpy", "ray", "threadpoolctl"},
    "stats": {"numpy", "scipy", "scikit_posthocs"},
    "training": {"numpy", "rich", "safetensors"},
}


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_the_core_needs_torch_only(path):
    extras = EXTRAS.get(room(module_name(path)), set())
    allowed = sys.stdlib_module_names | {"torch", "expacc"} | extras
    if path.parent.name == "triton":
        allowed |= {"triton"}  # imported at the first kernel, not before
    assert {name.split(".")[0] for name in imports(path)} <= allowed


def test_import_brings_nothing_but_torch():
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['sklearn', 'scipy', 'pandas', 'matplotlib', "
        "'rich', 'triton'])); from expacc import *"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def public_functions():
    return {
        name: getattr(module, name) for module in (functional, baselines) for name in module.__all__
    }


def public_modules():
    return {name for name in expacc.__all__ if name.endswith("Loss")} - {"ScheduledLoss"}


def test_every_loss_is_in_the_list():
    others = {"expected_cost"}  # takes a cost matrix: test_exact.py
    assert {row.name for row in LOSSES} == set(public_functions()) - others
    listed = {row.module.__name__ for row in LOSSES}
    assert listed == public_modules() - {"MaxMahalanobisCenterLoss"}  # in test_centers.py


def test_every_loss_is_in_the_readme_table():
    table = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("|")]
    for name in set(public_functions()) | public_modules():
        assert any(f"`{name}`" in line for line in table), (
            f"{name} is missing in the README's table"
        )


DOCUMENTED = [*public_functions().values(), expacc.MaxMahalanobisCenterLoss]


@pytest.mark.parametrize("thing", DOCUMENTED, ids=lambda thing: thing.__name__)
def test_docstrings_have_all_sections(thing):
    text = inspect.getdoc(thing)
    headings = ["Definition", "Gradient", "Args", "Returns", "Raises", "Example", "Reference"]
    places = [text.find(f"\n{heading}:\n") for heading in headings]
    assert -1 not in places
    assert places == sorted(places)
    assert ">>>" in text
    first = text.splitlines()[0]
    assert first.startswith("Compute ")
    assert first.endswith(".")
    arguments = text[places[2] : places[3]]
    for name in inspect.signature(thing).parameters:
        assert re.search(rf"^    {name}: ", arguments, re.M), f"{name} is not described"


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_files_stay_small(path):
    assert len(path.read_text().splitlines()) <= 400
