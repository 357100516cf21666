"""What holds for every recipe of the papers, on small data: its plan, its rows, its page."""

import json
import re
from dataclasses import dataclass, replace

import pytest
from torch import nn
from uci_files import (
    write_cifar,
    write_digits,
    write_halves,
    write_imagenet,
    write_prepared,
    write_tables,
)

from expacc import networks
from expacc.recipes.exact import protocol, toy_work
from expacc.recipes.exact import vision as exact_vision
from expacc.recipes.leaky import cifar as leaky_cifar
from expacc.recipes.leaky import logistic as leaky_logistic
from expacc.recipes.leaky import uci as leaky_uci
from expacc.recipes.mixing import dynamics as mixing_dynamics
from expacc.recipes.mixing import imagenet as mixing_imagenet
from expacc.recipes.mixing import uci as mixing_uci
from expacc.recipes.mixing import vision as mixing_vision
from expacc.recipes.page import Page, answer_of
from expacc.recipes.recipe import Recipe, RecipeOptions, Work, recipes
from expacc.recipes.runner import How, load_result, run_recipe
from expacc.recipes.vision import train
from expacc.runner.items import check_rows, load_executor
from expacc.runner.rows import Row
from expacc.runner.store import Store

ALL = recipes()
RUN = [name for name in ALL if name != "exact-cost"]  # which measures for half a second a part
HERE = How(workers=0, progress=False)


def tiny_network(classes, channels):
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * channels, classes))


@pytest.fixture(scope="module", autouse=True)
def short():
    """Few steps, epochs, starts and rates."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in (
            (protocol, "STEPS", 2),
            (toy_work, "QUICK_STARTS", 2),
            (leaky_uci, "RATES", (1e-2, 1e-1)),
            (leaky_uci, "MIN_EPOCHS", 3),
            (leaky_uci, "PATIENCE", 2),
            (leaky_logistic, "QUICK_EPOCHS", 5),
            (mixing_uci, "QUICK_EPOCHS", 2),
        ):
            patch.setattr(module, name, value)
        for name in ("resnet20", "m3cnn", "shufflenet_v2-large"):  # tests of their own have them
            patch.setitem(networks._MADE, name, tiny_network)
        patch.setattr(exact_vision, "OPTIMIZERS", {"asam": "ASAM"})
        patch.setattr(mixing_dynamics, "FOCI", (0.4,))
        few = {name: mixing_vision.REGULARISED[name] for name in ("colour jitter", "dropout")}
        patch.setattr(mixing_vision, "REGULARISED", few)
        for module, more in (
            (exact_vision, {"epochs": {"mnist": 1}, "test_rows": 10}),
            (leaky_cifar, {"epochs": 1}),
            (mixing_vision, {"epochs": 1}),
            (mixing_dynamics, {"epochs": 2, "sample": 8}),
            (mixing_imagenet, {"size": 32, "networks": ["shufflenet_v2-large"]}),
        ):
            quick = {**module.PROTOCOLS["quick"], "rows": 20, **more}
            patch.setitem(module.PROTOCOLS, "quick", quick)
        yield
    train.flops.cache_clear()  # of the tiny networks


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A --data folder with all that the recipes need."""
    root = write_tables(tmp_path_factory.mktemp("data"))
    for seed, name in enumerate(("pima", "sat47")):
        write_halves(root / "leerr-uci" / name, 90, seed)
    for seed, name in enumerate(("iris", "wine", "mine")):
        write_prepared(root / "uci121" / name, 40, 3, 2, seed)
    write_digits(root / "mnist")
    write_cifar(root / "cifar-10-batches-bin")
    write_imagenet(root / "imagenet")
    return root


@dataclass
class Made:
    """A recipe that was run."""

    recipe: Recipe
    options: RecipeOptions
    work: Work
    rows: list[Row]
    folder: object


@pytest.fixture(scope="module")
def made(data, tmp_path_factory):
    """Each recipe's quick run, done once."""
    done = {}

    def make(name):
        if name not in done:
            options = RecipeOptions(data=data, quick=True, seeds=2)
            work, folder = ALL[name].plan(options), tmp_path_factory.mktemp(name)
            if name == "exact-toy":  # the quickest; every part runs in test_recipes_pictures.py
                quick = ("paper/three", "fixed/three", "slices", "surface")
                kept = [item for item in work.items if item.key.startswith(quick)]
                work = replace(work, items=tuple(kept))
            run_recipe(ALL[name], options, work, folder, HERE)
            with Store.read(folder) as store:
                rows = list(store.rows())
            done[name] = Made(ALL[name], options, work, rows, folder)
        return done[name]

    return make


def words(page: Page) -> str:
    """All that a page says."""
    said = [page.title, page.claim, answer_of(page), *page.deviations]
    said += [text for one in page.claims for text in (one.says, one.paper, one.ours)]
    for section in page.sections:
        said += [section.title, *section.text]
        said += [text for row in section.beside for text in (*row.labels, row.note)]
        for grid in section.grids:
            said += [grid.title, grid.note, *grid.head, *(c for row in grid.rows for c in row)]
            assert {len(row) for row in grid.rows} == {len(grid.head)}, grid.title
        for chart in section.charts:
            said += [chart.title, chart.caption, chart.finding]
            assert "<svg" in chart.wide
            assert "<svg" in chart.narrow
    return "\n".join(said)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("quick", [True, False])
def test_a_plan_repeats_and_its_items_have_keys_of_their_own(name, quick, data):
    first, second = (ALL[name].plan(RecipeOptions(data=data, quick=quick)) for _ in range(2))
    keys = [item.key for item in first.items]
    assert len(set(keys)) == len(keys)
    assert first.items == second.items
    json.dumps([first.facts, [item.payload for item in first.items]])


@pytest.mark.parametrize("name", [name for name, one in ALL.items() if one.needs])
def test_without_data_one_sentence_says_what_to_fetch(name, tmp_path):
    (folder,) = ALL[name].needs
    for data in (None, tmp_path):
        with pytest.raises(ValueError, match=rf"^{folder}.* (is|are) missing: .*https://"):
            ALL[name].plan(RecipeOptions(data=data))
        (tmp_path / folder).mkdir(exist_ok=True)


@pytest.mark.parametrize("name", RUN)
def test_a_recipe_runs_from_files_to_page(name, made):
    one = made(name)
    result = load_result(one.recipe, one.folder)
    assert result.account.failures == ()
    assert result.account.finished
    assert result.account.runs == sum(item.runs for item in one.work.items)
    assert "nan" not in words(result.page)
    assert result.page.deviations
    again, outcome = run_recipe(one.recipe, one.options, one.work, one.folder, HERE)
    assert outcome.done == 0
    assert again.page == result.page


@pytest.mark.parametrize("name", RUN)
def test_an_item_again_gives_the_same_rows(name, made):
    one = made(name)
    item = one.work.items[-1]
    own = load_executor(one.work.executor)(item, one.work.shared)
    check_rows(item.key, own)
    timed = {"cpu_seconds"}
    known = {row.key: {k: v for k, v in row.metrics.items() if k not in timed} for row in one.rows}
    assert own
    for row in own:
        assert {k: v for k, v in row.metrics.items() if k not in timed} == known[row.key]


@pytest.mark.parametrize("name", ALL)
def test_of_nothing_and_of_failed_runs_a_page_shows_no_number(name, data):
    work = ALL[name].plan(RecipeOptions(data=data, quick=True))
    failed = []
    for item in work.items:
        rows = work.failed_rows(item, "RuntimeError: no")
        check_rows(item.key, rows)
        assert {row.failure for row in rows} == {"RuntimeError: no"}
        failed += rows
    for some in ([], failed):
        page = ALL[name].write(some, work.facts)
        assert {one.verdict for one in page.claims} <= {"not run"}
        assert all(row.ours is None for section in page.sections for row in section.beside)
        assert not any(section.charts for section in page.sections)
        assert "nan" not in words(page)


@pytest.mark.parametrize("name", RUN)
def test_a_page_is_written_from_any_part_of_the_rows(name, made):
    """As it is while a study runs; and the order in which rows came does not show."""
    one = made(name)
    rows, facts = one.rows, one.work.facts
    for some in (rows[:1], rows[::3]):
        assert not re.search(r"\bnan\b", words(one.recipe.write(some, facts)))
    first, second = load_result(one.recipe, one.folder).page, one.recipe.write(rows[::-1], facts)
    keys, again = (
        [chart.key for section in page.sections for chart in section.charts]
        for page in (first, second)
    )
    assert len(set(keys)) == len(keys)
    assert keys == again
    assert first.claims == second.claims


@pytest.mark.parametrize("name", ["leerr-uci", "leerr-mnist-mlp", "mixing-uci"])
def test_what_validation_rows_chose_is_tested_once(name, made):
    """Of every cell one setting, of equals the first; a trial is never tested."""
    cells = {}
    for row in made(name).rows:
        shape = row.numbers.get("shape", "")
        cell = (row.table, shape, row.noise, row.fold, row.seed, row.loss)
        cells.setdefault(cell, {"trial": [], "final": []})[row.kind].append(row)
    for cell in cells.values():
        (final,) = cell["final"]
        trials = sorted(cell["trial"], key=lambda row: int(row.key.split("|")[-3]))
        assert len(trials) == len({str(row.numbers) for row in trials})
        best = max(trials, key=lambda row: row.metrics["validation_accuracy"])
        assert final.numbers == best.numbers
        assert final.metrics["validation_accuracy"] == best.metrics["validation_accuracy"]
        assert 0 <= final.metrics["accuracy"] <= 1
        assert all("accuracy" not in row.metrics for row in trials)
