"""Death at any write: the same command again ends as if nothing had happened."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import dying
import fake_recipes
import pytest

from expacc.compare.deploy import Deployed
from expacc.compare.leaderboard import leaderboard, leaderboard_csv
from expacc.compare.study import load_record
from expacc.recipes.runner import load_result
from expacc.runner.store import Store

HERE = Path(__file__).parent


def study_told(folder):
    record = load_record(folder)
    return leaderboard_csv(leaderboard(record)).replace("\r", ""), record.tables["toy"].folds


def recipe_told(folder):
    page = load_result(fake_recipes.RECIPES[0], folder).page
    return page.answer, page.sections[0].beside


TOLD = {"study": study_told, "recipe": recipe_told}


def killed(work, base):
    """Folders by the number of the write before which their process was killed."""
    program = [sys.executable, dying.__file__, work, str(base)]
    path = os.pathsep.join([str(HERE.parent), str(HERE)])
    done = subprocess.run(
        program, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return {int(path.name): path for path in base.iterdir() if path.name.isdecimal()}


@functools.cache
def undisturbed(work, folder):
    getattr(dying, work)(folder)
    return TOLD[work](folder)


@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    return tmp_path_factory.mktemp("undisturbed")


@pytest.mark.parametrize("work", TOLD)
def test_a_death_at_any_write_is_made_good(apart, tmp_path, monkeypatch, work):
    monkeypatch.setattr("expacc.compare.study.EXECUTOR", "dying:execute")
    folders = killed(work, tmp_path)
    assert len(folders) >= 30
    for number, folder in sorted(folders.items()):
        getattr(dying, work)(folder)
        assert TOLD[work](folder) == undisturbed(work, apart / work), f"killed at write {number}"
        with Store.read(folder) as store:
            store.check()


def test_a_death_while_a_model_is_saved_leaves_no_mix(tmp_path):
    """The old one, the new one, or a sentence with the cure."""
    old, new = tmp_path / "before", tmp_path / "new"
    dying.model(old, scale=1.0)
    dying.model(new)

    def answers(folder):
        try:
            return Deployed.load(folder).predict(dying.table())[1].tolist()
        except ValueError as error:
            return "a cure" if str(error).endswith("Fit anew.") else str(error)

    known = [answers(old), answers(new), "a cure"]
    assert known[0] != known[1]
    seen = []
    for _, folder in sorted(killed("model", tmp_path).items()):
        seen.append(known.index(answers(folder)))
        dying.model(folder)
        assert answers(folder) == known[1]
    assert len(seen) > 12
    assert seen[0] == 0
    assert set(seen) == {0, 1, 2}


def test_a_study_without_its_notes_gets_them_again(tmp_path, monkeypatch):
    """As a version before this one could leave it."""
    monkeypatch.setattr("expacc.compare.study.EXECUTOR", "dying:execute")
    planned = dying.plan_study([dying.table()], dying.SETTINGS)
    identity = dying.compare.identity(planned)
    for notes in ({}, {"started": "2026-01-01 10:00 UTC"}):
        folder = tmp_path / f"{len(notes)}"
        Store.open(folder, identity, notes=notes).close()
        dying.study(folder)
        record = load_record(folder)
        assert record.tables["toy"].rows == dying.ROWS
        assert record.started.startswith(notes.get("started", "20"))
