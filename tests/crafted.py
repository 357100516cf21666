"""A small real study, and ways to change what lies in its store: for the tests of stores."""

import contextlib
import json
import random
import shutil
import sqlite3

from expacc.compare.leaderboard import leaderboard, leaderboard_csv, leaderboard_json
from expacc.compare.study import Settings, load_record, plan_study, run_study
from expacc.compare.suspects import suspects, suspects_csv
from expacc.data import read_table
from expacc.runner.store_tables import digests, write_digests

SMALL = Settings(losses=("hinge",), trials=1, folds="2", seeds=1)
NASTY = (
    *(None, True, -1, 0, 3, 10**30, -(2**63), 0.5, -0.5, 1e308, float("nan"), float("inf")),
    *("", "x", "iris", "1", "\ud800", "\x1b[31m", "9" * 400, [], {}, [[]], [None], {"a": 1}),
    *([1e400], {"rows": "x"}, [2**70]),
)


def make_study(folder):
    study = plan_study([read_table("iris")], SMALL)
    run_study(study, folder, workers=0, progress=False, command="expacc compare iris")
    return study


@contextlib.contextmanager
def changing(folder, *, sealed=True, source=None):
    """The file of a study for any SQL; digests are made again unless it is left unsealed."""
    if source is not None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source, folder)
    with contextlib.closing(sqlite3.connect(folder / "study.sqlite", isolation_level=None)) as file:
        yield file
        if sealed:
            file.execute("DELETE FROM digests")
            write_digests(file, digests(file))


def as_version_1(folder):
    with changing(folder, sealed=False) as file:
        file.execute("DROP TABLE digests")
        file.execute("PRAGMA user_version = 1")
        file.execute("VACUUM")


def one_sentence(error, most):
    """The words of a refusal, which are one sentence."""
    sentence = str(error)
    assert "\n" not in sentence
    assert 20 < len(sentence) < most, sentence
    assert sentence.endswith(".")
    return sentence


def told(folder):
    """All that a study says, or the sentence with which it is refused."""
    try:
        record = load_record(folder)
        board = leaderboard(record)
        found = [suspects(record, table) for table in record.tables]
        texts = (leaderboard_json(record, board), leaderboard_csv(board))
        return (*texts, suspects_csv(record, found))
    except (ValueError, OSError) as error:
        return one_sentence(error, 900)


def flipped(data, generator):
    """The bytes with one bit, anywhere in them, turned round."""
    data = bytearray(data)
    data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
    return bytes(data)


def mutated(value, generator):
    """A copy of a JSON value with one part, anywhere in it, replaced, dropped or renamed."""
    value = json.loads(json.dumps(value))
    parent, key, node = None, None, value
    while isinstance(node, dict | list) and node and generator.random() < 0.8:
        parent = node
        key = generator.choice(list(node) if isinstance(node, dict) else range(len(node)))
        node = node[key]
    if parent is None:
        return generator.choice(NASTY)
    act = generator.random()
    if act < 0.1:
        del parent[key]
    elif act < 0.2 and isinstance(parent, dict):
        parent[generator.choice(["", "x", "rows", "é" * 300])] = parent.pop(key)
    else:
        parent[key] = generator.choice(NASTY)
    return value


def seeded(seed):
    return random.Random(seed)
