"""The house keeps its order: data flows one way, every loss is listed, documented and shown."""

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
import write_losses
from losses import BATCH, BINARY, HEADS, LOSSES

import expacc
from expacc import functional, registry, stats
from expacc.registry import SPECS
from expacc.registry.spec import MOVES
from expacc.training import objective_of

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "expacc"

# Lowest first: a room imports from those above it and from its own line, never from below.
ROOMS = [
    {"errors", "plain", "schedules", "files"},
    {"ops"},
    {"contract", "probabilities", "optim"},
    {"functional", "baselines"},
    {"registry", "losses", "centers", "scheduled", "logit_clip", "early_learning", "expacc"},
    {"data"},
    {"training", "networks"},
    {"estimator"},
    {"boosting", "integrations"},
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
    later = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda) if at_start else ()
    nodes: list[ast.AST] = [ast.parse(path.read_text())]
    found: set[str] = set()
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (below & MODULES.keys()) or {str(node.module)}
        nodes += [below for below in ast.iter_child_nodes(node) if not isinstance(below, later)]
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
    "boosting": {"numpy", "scipy", "sklearn", "lightgbm", "xgboost"},
    "cli": {"typer", "rich"},
    "compare": {"numpy", "scipy", "matplotlib", "rich", "safetensors", "sklearn", "threadpoolctl"},
    "data": {"PIL", "numpy", "pyarrow", "python_calamine", "sklearn", "zstandard"},
    "estimator": {"numpy", "scipy", "sklearn", "safetensors"},
    "integrations": {
        *("lightning", "mlflow", "pytorch_lightning", "skorch", "transformers", "wandb"),
    },
    "recipes": {"PIL", "markdown_it", "markupsafe", "matplotlib", "numpy", "scipy", "sklearn"},
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


def test_a_comparison_is_few_files_and_leaves_torch_to_its_workers():
    code = (
        "import sys; from expacc.cli import main; main(['compare', 'iris', '--dry-run']);"
        "import expacc.compare.page, expacc.runner.local, expacc.training.progress;"
        "ours = [m for n, m in sys.modules.items() if n.startswith('expacc.')];"
        "ours = [m.__name__ for m in ours if not hasattr(m, '__path__')];"
        "assert 'torch' not in sys.modules; assert len(ours) <= 45, ours"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


# ------------------------------------------------------------------- a loss is told once

CHOICES = [SPECS[name] for name in expacc.list_losses()]  # of the trainer and of compare
NAMED = {room: getattr(expacc, room) for room in ("functional", "baselines", "schedules")}
PUBLIC = {
    f"{where}.{name}": getattr(module, name)
    for where, module in {
        "expacc": expacc,
        "expacc.registry": registry,
        "stats": stats,
        **NAMED,
    }.items()
    for name in module.__all__
    if callable(getattr(module, name)) and name != "Schedule"
    if module is not stats or name[0].islower()  # its results are described by their fields
}
LOSSES_DOCUMENTED = [
    *(getattr(functional, name) for name in functional.__all__),
    *(getattr(expacc, name) for name in expacc.__all__ if name.endswith("Loss")),
]


def test_every_loss_has_a_spec_and_a_row():
    functions = {spec.function_name for spec in SPECS.values() if spec.function}
    assert functions - {"cross_entropy"} == set(functional.__all__)
    modules = {spec.module_name for spec in SPECS.values() if spec.module} - {"CrossEntropyLoss"}
    public = {name for name in expacc.__all__ if name.endswith("Loss")}
    assert modules == public - {"ScheduledLoss"}
    others = {"cross_entropy", "max_mahalanobis_center"}  # torch's; features: test_centers.py
    assert {row.name for row in LOSSES + HEADS + BINARY + BATCH} == SPECS.keys() - others
    assert set(expacc.baselines.__all__) < set(functional.__all__)


@pytest.mark.parametrize("spec", SPECS.values(), ids=lambda spec: spec.name)
def test_specs_are_complete(spec):
    assert all((spec.label, spec.formula, spec.source, spec.when))
    assert spec.function or spec.module
    if spec.needs:
        return
    arguments = inspect.signature(spec.function).parameters
    for name, start in spec.defaults.items():  # a schedule, or where the function starts
        assert callable(start) or arguments[name].default == start
    assert spec.options == {name: arguments[name].default for name in spec.options}
    found = {name: low for name, (low, _, _) in spec.search.items()}
    for params in (spec.params_of(found), *spec.polish):
        assert params.keys() - set(MOVES) <= {*spec.defaults, *spec.options}
        objective_of(spec.name, params)
    for low, high, usual in spec.search.values():
        assert low <= usual <= high
    day, night, marker, dash = spec.look
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in (day, night))
    assert marker
    assert dash


def test_looks_differ():
    """Fourteen colours can be told apart: beyond, marker and dash tell losses of one colour."""
    for place in (2, 3):
        assert len({(spec.look[0], spec.look[place]) for spec in CHOICES}) == len(CHOICES)
    nights = {spec.look[:2] for spec in CHOICES}
    assert len({day for day, _ in nights}) == len({night for _, night in nights}) == len(nights)
    ours = [spec.look[0] for spec in CHOICES if spec.family in ("reference", "ours")]
    others = {spec.look[0] for spec in CHOICES if spec.family not in ("reference", "ours")}
    assert len({*ours}) == len(ours)
    assert not others & {*ours}


@pytest.mark.parametrize("path", ["docs/losses.md", "expacc/__init__.pyi"])
def test_what_is_made_of_the_specs_is_current(path):
    assert (ROOT / path).read_text() == write_losses.WRITTEN[path](), "run docs/write_losses.py"


def test_get_loss():
    loss = expacc.get_loss("leaky_expected_error", leak=0.2, reduction="sum")
    assert isinstance(loss, expacc.LeakyExpectedErrorLoss)
    assert (loss.leak, loss.reduction) == (0.2, "sum")
    for spec in CHOICES:
        assert type(expacc.get_loss(spec.name)) is spec.module
    assert isinstance(expacc.get_loss("exact_error"), expacc.ExactLoss)
    for name, arguments, error, piece in (
        ("leaky_expected_eror", {}, ValueError, "Did you mean 'leaky_expected_error'?"),
        ("nothing", {}, ValueError, "Names: cross_entropy, exact,"),
        ("focal", {"gama": 1.0}, TypeError, "got 'gama'. Did you mean 'gamma'?"),
        ("hinge", {"sigma": 1.0}, TypeError, "It takes: weight, ignore_index,"),
        ("expected_cost", {}, ValueError, "needs a matrix of costs. Call expacc.functional."),
        ("focal", {"gamma": -1.0}, ValueError, "gamma must be finite and >= 0; got -1.0."),
    ):
        with pytest.raises(error, match=re.escape(piece)):
            expacc.get_loss(name, **arguments)


def sections(thing, headings):
    """The docstring cut at its headings, each of which it has, in this order."""
    text = inspect.getdoc(thing)
    places = [text.find(f"\n{heading}:\n") for heading in headings]
    assert -1 not in places, f"{headings[places.index(-1)]} is missing"
    assert places == sorted(places)
    return {
        heading: text[low:high]
        for heading, low, high in zip(headings, places, [*places[1:], None], strict=True)
    }


@pytest.mark.parametrize("thing", PUBLIC.values(), ids=PUBLIC)
def test_public_names_have_arguments_results_and_an_example(thing):
    arguments = list(inspect.signature(thing).parameters)
    made = inspect.isclass(thing) and not issubclass(thing, torch.nn.Module)  # it returns itself
    headings = {"Args": bool(arguments), "Returns": not made, "Example": True}
    found = sections(thing, [heading for heading, has in headings.items() if has])
    assert ">>>" in found["Example"]
    for name in arguments:
        assert re.search(rf"^    (\*\*)?{name}: ", found["Args"], re.M), f"{name} is not described"


@pytest.mark.parametrize("thing", LOSSES_DOCUMENTED, ids=lambda thing: thing.__name__)
def test_losses_are_documented_in_full(thing):
    if thing is expacc.ScheduledLoss:
        return
    headings = ["Definition", "Gradient", "Args", "Returns", "Raises", "Example", "Reference"]
    sections(thing, headings)
    first = inspect.getdoc(thing).splitlines()[0]
    assert first.startswith("Compute ")
    assert first.endswith(".")


@pytest.mark.parametrize("thing", [expacc.ASAM, expacc.GradientNormalizer])
def test_optimizers_are_documented_in_full(thing):
    sections(thing, ["Definition", "Args", "Raises", "Example", "Reference"])


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_files_stay_small(path):
    assert len(path.read_text().splitlines()) <= 400


def test_the_readme_is_read_at_a_sitting():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 140


def test_the_wheel_brings_every_file():
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    patterns = tools["setuptools"]["package-data"]["expacc"]
    for path in PACKAGE.rglob("*.*"):
        if path.suffix not in (".py", ".pyc"):
            known = [path.relative_to(PACKAGE).match(pattern) for pattern in patterns]
            assert any(known), f"{path} is in no pattern of package-data"


def test_nothing_is_skipped_for_want_of_a_package():
    """What a test needs is in the extra ``dev``: a hole in the tests must not look like success."""
    for path in sorted((ROOT / "tests").glob("test_*.py")):
        wanted = set(re.findall(r'^[^"]*importorskip\("(\w+)', path.read_text(), re.M))
        assert wanted <= {"resource"}, f"{path.name} is skipped without {wanted}"
