"""Tables as people have them, all the way: a study, its suspects, a model, predictions."""

import csv
import io

import pytest
from family import CASES

from expacc.cli import main
from expacc.compare.leaderboard import leaderboard
from expacc.compare.page import report_html
from expacc.compare.study import Settings, plan_study, run_study
from expacc.compare.suspects import suspects, suspects_csv
from expacc.data import Preprocessor, read_table
from expacc.report.words import LOGISTIC, MAJORITY

TINY = Settings(losses=("hinge",), trials=1, folds="holdout", seeds=1, references="fast")
STUDIED = ("titanic", "mails", "dates", "reviews", "a name twice", "Latin-1", "glass")


@pytest.mark.parametrize("name", STUDIED)
def test_a_study_a_model_and_predictions(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    case = CASES[name]
    path = tmp_path / "t.csv"
    path.write_bytes(case.content())
    target = case.target or case.first
    table = read_table(path, target=target, **case.options)
    fitted = Preprocessor.fit(table)
    assert sum(map(len, fitted.places.values())) == fitted.width
    record, _ = run_study(plan_study([table], TINY), "study", workers=0, progress=False)
    board = leaderboard(record)
    assert not board.failures
    assert target in board.answer.sentence
    (one,) = board.boards
    assert {LOGISTIC, MAJORITY} < {entry.loss for entry in one.entries}
    assert one.matters is not None
    assert {*one.matters.importance} == {column.name for column in table.columns}
    with open(path, newline="", encoding=case.encoding) as file:
        rows = list(csv.reader(file, delimiter=case.sign))
    place = len(rows[0]) - 1 if case.target else rows[0].index(target) if target in rows[0] else 0
    for line in csv.DictReader(io.StringIO(suspects_csv(record, [suspects(record, "t")]))):
        assert rows[int(line["line"]) - 1][place] == line["given"]
    assert target in report_html(record, board, [suspects(record, "t")])
    assert main(["fit", "t.csv", "--from", "study", "-o", "model", "--quiet"]) == 0
    assert main(["predict", "model", "t.csv", "-o", "p.parquet", "--quiet"]) == 0
    text = path.read_text(encoding=case.encoding)
    header = "" if case.options.get("header") is False else text.partition("\n")[0] + "\n"
    (tmp_path / "none.csv").write_text(header, encoding=case.encoding)
    assert main(["predict", "model", "none.csv"]) == 0
    (only,) = capsys.readouterr().out.splitlines()[-1:]
    assert only.count("probability ") == len(table.target.classes)
