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

# Lowest first; a module may import only from lines above its own.
FLOW = [
    {
        "expacc.files",
        "expacc.stored",
        "expacc.refusals",
        "expacc.plain",
        "expacc.schedules",
        "expacc.ops.formula",
        "expacc.ops.mode",
        "expacc.ops.native_cache",
        "expacc.ops.quadrature",
        "expacc.ops.calm_table",
    },
    {
        "expacc.ops.native",
        "expacc.ops.normal",
        "expacc.ops.slopes",
        "expacc.ops.kernels_normal",
    },
    {"expacc.ops.slopes_near"},
    {"expacc.ops.reference", "expacc.ops.noise", "expacc.ops.calm", "expacc.optim"},
    {"expacc.ops.orthant"},
    {
        "expacc.ops.orthant_node",
        "expacc.ops.eager",
        "expacc.ops.contest",
        "expacc.ops.win",
        "expacc.ops.sampling",
        "expacc.ops.kernels_kinds",
        "expacc.ops.kernels_launch",
        "expacc.ops.kernels_orthant",
        "expacc.ops.kernels_moments",
    },
    {"expacc.ops.kernels_softmax", "expacc.ops.kernels_long", "expacc.ops.kernels_scratch"},
    {"expacc.ops.kernels_exact", "expacc.ops.kernels_folded", "expacc.ops.kernels_rows"},
    {"expacc.ops.kernels_many"},
    {"expacc.ops.kernels_batch"},
    {"expacc.ops.kernels_native"},
    {"expacc.ops.kernels", "expacc.ops.fused_head"},
    {"expacc.ops.kernels_ops"},
    {"expacc.ops"},
    {"expacc.contract"},
    {"expacc.probabilities", "expacc.functional.noise_scale"},
    {"expacc.functional.softmax", "expacc.functional.standardize"},
    {"expacc.functional.exact", "expacc.functional.cost"},
    {"expacc.functional.head"},
    {"expacc.functional"},
    {"expacc.baselines.curves", "expacc.baselines.rivals"},
    {"expacc.baselines"},
    {"expacc.losses", "expacc.centers", "expacc.scheduled"},
    {"expacc"},
    {
        "expacc.data.refusals",
        "expacc.data.options",
        "expacc.data.seeds",
        "expacc.data.preprocess_record",
        "expacc.data.parquet_process",
    },
    {"expacc.data.source", "expacc.data.dialect", "expacc.data.grid"},
    {
        "expacc.data.encodings",
        "expacc.data.numbers",
        "expacc.data.table",
        "expacc.data.limits",
        "expacc.data.cells",
    },
    {"expacc.data.lines", "expacc.data.blocks", "expacc.data.workbook_parts"},
    {"expacc.data.named", "expacc.data.parquet", "expacc.data.arff", "expacc.data.delimited"},
    {
        "expacc.data.columns",
        "expacc.data.preprocess",
        "expacc.data.splits",
        "expacc.data.workbook_cells",
    },
    {"expacc.data.workbook", "expacc.data.sealed"},
    {"expacc.data.reading"},
    {"expacc.data.collections"},
    {"expacc.data"},
    {
        "expacc.training.draws",
        "expacc.training.runs",
        "expacc.training.loss_slopes",
        "expacc.training.checkpoint",
        "expacc.training.distributed",
    },
    {
        "expacc.training.layers",
        "expacc.training.descent",
        "expacc.training.batches",
        "expacc.training.objectives",
        "expacc.training.checks",
        "expacc.training.progress",
        "expacc.training.randomness",
        "expacc.training.resume",
    },
    {"expacc.training.record", "expacc.training.segments", "expacc.training.loaders"},
    {"expacc.training.loop", "expacc.training.stepping"},
    {"expacc.training.epochs"},
    {"expacc.training.network"},
    {"expacc.training"},
    {"expacc.estimator.inputs", "expacc.estimator.settings", "expacc.estimator.calibration"},
    {"expacc.estimator.folds", "expacc.estimator.saving"},
    {"expacc.estimator.fitting"},
    {"expacc.estimator.classifier"},
    {"expacc.estimator.search"},
    {"expacc.estimator"},
    {"expacc.study", "expacc.study.score_table", "expacc.study.sign_flips"},
    {
        "expacc.study.rows",
        "expacc.study.interrupt",
        "expacc.study.lock",
        "expacc.study.store_refusals",
    },
    {"expacc.study.items", "expacc.study.columns", "expacc.study.digests"},
    {"expacc.study.boot", "expacc.study.keeper"},  # programs of their own
    {"expacc.study.store_files"},
    {"expacc.study.store_opening"},
    {"expacc.study.shared", "expacc.study.store"},
    {"expacc.study.local", "expacc.study.cluster"},
    {"expacc.study.engine"},
    {"expacc.study.adjustment", "expacc.study.one_table", "expacc.study.sensitivity"},
    {"expacc.study.rank_tests", "expacc.study.row_tests"},
    {"expacc.study.many_tables"},
    {"expacc.study.stats", "expacc.study.answer", "expacc.study.figures_many"},
    {"expacc.study.record", "expacc.study.protocol", "expacc.study.plain_text"},
    {"expacc.study.loss_names", "expacc.study.pace"},
    {
        "expacc.study.palette",
        "expacc.study.suspects",
        "expacc.study.methods",
        "expacc.study.row_scores",
        "expacc.study.record_checks",
    },
    {"expacc.study.sheet"},
    {"expacc.study.leaderboard_table", "expacc.study.figures"},
    {"expacc.study.leaderboard"},
    {
        "expacc.study.figures_folds",
        "expacc.study.figures_training",
        "expacc.study.figures_predictions",
    },
    {"expacc.study.figures_tables", "expacc.study.report_files", "expacc.study.report_tables"},
    {"expacc.study.report", "expacc.study.terminal"},
    {"expacc.study.parcel", "expacc.study.space", "expacc.study.selection"},
    {"expacc.study.work"},
    {"expacc.study.cost"},
    {"expacc.study.compare"},
    {"expacc.study.forecast", "expacc.study.deploy"},
    {"expacc.study.predictions"},
    {"expacc.recipes", "expacc.recipes.page", "expacc.recipes.sources"},
    {"expacc.recipes.recipe"},
    {"expacc.recipes.mixing_paper", "expacc.recipes.mixing_graph"},
    {
        "expacc.recipes.mixing_arms",
        "expacc.recipes.mixing_tables",
        "expacc.recipes.mixing_scores",
    },
    {
        "expacc.recipes.mixing_steps",
        "expacc.recipes.mixing_charts",
        "expacc.recipes.mixing_details",
        "expacc.recipes.mixing_answer",
    },
    {"expacc.recipes.mixing_lockstep", "expacc.recipes.mixing_page"},
    {"expacc.recipes.mixing_work"},
    {"expacc.recipes.toy_data", "expacc.recipes.integral_cases", "expacc.recipes.cost_network"},
    {
        "expacc.recipes.mixing_gradients_work",
        "expacc.recipes.mixing_gradients_page",
        "expacc.recipes.toy_search",
        "expacc.recipes.toy_charts",
        "expacc.recipes.integral_work",
        "expacc.recipes.integral_charts",
        "expacc.recipes.cost_work",
        "expacc.recipes.cost_charts",
    },
    {
        "expacc.recipes.toy_work",
        "expacc.recipes.toy_charts_blog",
        "expacc.recipes.integral_page",
        "expacc.recipes.cost_page",
    },
    {"expacc.recipes.toy_blog"},
    {"expacc.recipes.toy_page"},
    {"expacc.recipes.exact_pictures", "expacc.recipes.mixing_gradients"},
    {"expacc.recipes.exact_paper"},
    {"expacc.recipes.exact_data", "expacc.recipes.exact_protocol"},
    {"expacc.recipes.exact_noise", "expacc.recipes.exact_rows"},
    {"expacc.recipes.exact_methods", "expacc.recipes.exact_causes", "expacc.recipes.exact_charts"},
    {"expacc.recipes.exact_search"},
    {"expacc.recipes.exact_work"},
    {
        "expacc.recipes.exact_plan",
        "expacc.recipes.exact_page",
        "expacc.recipes.exact_parts_page",
        "expacc.recipes.exact_noise_page",
    },
    {"expacc.recipes.exact_tables"},
    {
        "expacc.recipes.leaky_paper",
        "expacc.recipes.leaky_words",
        "expacc.recipes.leaky_start",
        "expacc.recipes.leaky_digits",
        "expacc.recipes.leaky_trials",
        "expacc.recipes.leaky_lockstep",
        "expacc.recipes.leaky_significance",
    },
    {
        "expacc.recipes.leaky_plateaus",
        "expacc.recipes.leaky_uci",
        "expacc.recipes.leaky_uci_charts",
        "expacc.recipes.leaky_mlp",
        "expacc.recipes.leaky_mlp_charts",
        "expacc.recipes.leaky_logistic",
    },
    {
        "expacc.recipes.leaky_uci_page",
        "expacc.recipes.leaky_mlp_page",
        "expacc.recipes.leaky_logistic_charts",
    },
    {"expacc.recipes.leaky_logistic_page"},
    {"expacc.recipes.leaky"},
    {"expacc.recipes.mixing"},
    {
        "expacc.recipes.registry",
        "expacc.recipes.account",
        "expacc.recipes.machine",
    },
    {"expacc.recipes.page_text", "expacc.recipes.runner"},
    {"expacc.recipes.page_html", "expacc.recipes.page_markdown"},
    {"expacc.recipes.summary"},
    {"expacc.recipes.book"},
    {
        "expacc.commands",
        "expacc.commands.reading",
        "expacc.commands.screen",
        "expacc.commands.streams",
    },
    {"expacc.commands.tables"},
    {"expacc.commands.compare", "expacc.commands.fit"},
    {"expacc.commands.reproduce"},
    {"expacc.cli"},
    {"expacc.__main__"},
]
RANK = {name: rank for rank, names in enumerate(FLOW) for name in names}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> set[str]:
    """The modules that a file imports; ``from expacc import x`` counts as expacc.x if it is one."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            known = {name for name in below if name in RANK}
            found |= known or {node.module}
    return found


SOURCES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_data_flows_one_way(path):
    name = module_name(path)
    assert name in RANK, f"{name} has no place in FLOW: give it one"
    for imported in imports(path):
        if imported.split(".")[0] == "expacc":
            assert RANK[imported] < RANK[name], f"{name} imports {imported}, which is not above it"


# The rooms above the losses may use more, and say so in the extras of pyproject.toml.
EXTRAS = {
    "cli": {"typer"},
    "commands": {"typer", "rich"},
    "data": {"numpy", "sklearn", "pyarrow", "openpyxl", "zstandard"},
    "estimator": {"numpy", "scipy", "sklearn", "safetensors"},
    "recipes": {"numpy", "scipy", "sklearn", "matplotlib", "jinja2", "markupsafe"},
    "study": {
        "numpy",
        "scipy",
        "scikit_posthocs",
        "matplotlib",
        "ray",
        "threadpoolctl",
        "jinja2",
        "markupsafe",
        "rich",
        "sklearn",
    },
    "training": {"numpy", "rich", "safetensors"},
}


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_the_core_needs_torch_only(path):
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    allowed = sys.stdlib_module_names | {"torch", "expacc"} | EXTRAS.get(room, set())
    if path.name.startswith("kernels_"):
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
