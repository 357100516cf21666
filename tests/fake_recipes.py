"""Recipes that take a moment, for the tests of the frame around recipes.

In a module of its own, because workers and the registry import it.
"""

import functools
import os
import time

import numpy as np

from expacc.recipes.page import Claim, Comparison, Grid, Number, Page, Section
from expacc.recipes.recipe import Recipe, Work, data_file, missing_data, need_data
from expacc.runner.items import WorkItem
from expacc.runner.rows import Row

TABLES = ("adult", "car", "wine")
PAPER = {"adult": (85.2, 0.1), "car": (95.2, 0.14), "wine": (99.0, None)}
FAIL, WAIT = "FAKE_RECIPE_FAIL", "FAKE_RECIPE_WAIT"  # environment: a table that fails; seconds


def plan(ask):
    tables = TABLES[:2] if ask.quick else TABLES
    items = tuple(
        WorkItem(f"{table}|{seed}", {"table": table, "seed": seed}, runs=2)
        for table in tables
        for seed in range(ask.seeds or 2)
    )
    shared = {f"{table}/values": np.arange(4.0) + ask.seed for table in tables}
    return Work(items, "fake_recipes:execute", failed_rows, shared, facts={"tables": tables})


def plan_with_data(ask):
    place = need_data(ask.data, "mnist")
    work = plan(ask)
    names = [name for name in ("train-images-idx3-ubyte",) if data_file(place, name) is None]
    lacking = (missing_data("mnist", *names),) if names else ()
    return Work(**{**vars(work), "missing": lacking, "facts": {**work.facts, "place": str(place)}})


def execute(item, shared):
    time.sleep(float(os.environ.get(WAIT, 0)))
    if os.environ.get(FAIL) == item.payload["table"]:
        raise ArithmeticError("the step was not finite")
    wrong = {"adult": 0.0, "car": 3.0, "wine": -5.0}[item.payload["table"]]
    score = PAPER[item.payload["table"]][0] + wrong + 0.1 * item.payload["seed"]
    first = float(shared[f"{item.payload['table']}/values"][0])
    return [
        row(item, loss, metrics={"accuracy": score / 100 + first, "process": float(os.getpid())})
        for loss in ("cross_entropy", "exact")
    ]


def row(item, loss, **more):
    table, seed = item.payload["table"], item.payload["seed"]
    return Row(f"{item.key}|{loss}", item.key, "final", table, loss, "1", seed=seed, **more)


def failed_rows(item, reason):
    return [row(item, loss, failure=reason) for loss in ("cross_entropy", "exact")]


def write(rows, facts):
    assert isinstance(facts["tables"], list)  # as JSON holds it, however fresh
    return page_of(rows, tables=facts["tables"])


def as_it_is(text):
    return text


def page_of(rows, *, tables=TABLES, words=as_it_is):
    """A page with all that a page can have; ``words`` may make any text of it worse."""
    beside = []
    for table in TABLES:
        scores = [
            100 * row.metrics["accuracy"]
            for row in rows
            if row.table == table and row.loss == "exact" and row.failure is None
        ]
        ours = Number(np.mean(scores), float(np.std(scores)), len(scores)) if scores else None
        mean, spread = PAPER[table]
        note = "" if ours or table in tables else "its data was not there"
        for part, theirs in (("test", Number(mean, spread, 5)), ("new", None)):
            labels = (words(table), words("EXACT"), words(part))
            beside.append(Comparison(labels, theirs, ours, words(note)))
    grid = Grid(
        title=words("Every run"),
        head=(words("table"), "accuracy", "loss"),
        rows=tuple(
            (words(row.table), f"{100 * row.metrics.get('accuracy', 0):.2f}", row.loss)
            for row in rows
        ),
        note=words("The best is bold."),
        marked=((0, 1),) if rows else (),
    )
    sections = (
        Section(
            words("Table 1"),
            (words("Accuracy on test rows."), words("Five seeds.")),
            tuple(beside),
            (words("table"), "method", "rows"),
            grids=(grid,),
            charts=(draw(words),),
        ),
        Section(words("In seconds"), unit="s", slack=0.0, beside=(_time(words),)),
        Section(words("Words alone"), (words("Nothing to see."),)),
    )
    return Page(
        words("Accuracy of EXACT"),
        words("EXACT is 2.5 points better."),
        words(f"Of {len(rows)} runs, all were fast."),
        sections,
        (words("We had two seeds."),),
        (
            Claim(words("car is best"), words("95.2"), words("98.2"), True, headline=True),
            Claim(words("wine is best"), words("99"), words("94"), False),
            Claim(words("adult is best"), words("85"), "", None),
        ),
    )


def _time(words):
    return Comparison((words("one run"),), Number(0.00123), Number(3.2e-9, None, 1))


@functools.cache  # drawing takes most of the time of a test
def draw(words):
    from matplotlib.figure import Figure

    from expacc.report.figures import chart
    from expacc.report.words import looks

    look = looks({"exact"})["exact"]

    def picture(width):
        figure = Figure(figsize=(width, 2.6))
        axes = figure.subplots()
        axes.plot(range(5), [1, 3, 2, 5, 4], color=look.colour, marker=look.marker)
        axes.set_xlabel(words("epoch"))
        return figure

    return chart("runs", words("Runs"), words("Higher is better."), words("It rises."), picture)


def _recipe(name, paper="EXACT", make=plan, **more):
    settings = {"shows": "Table 1", "what": "a test of the frame", "needs": (), "minutes": 0.1}
    return Recipe(name, paper, plan=make, write=write, **{**settings, **more})


RECIPES = (
    _recipe("fake-one"),
    _recipe("fake-alone", "mixing", alone=True, minutes=12, shows="Fig. 7, §6.3"),
    _recipe("fake-data", "leaky expected error", plan_with_data, needs=("mnist",)),
)
