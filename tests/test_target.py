"""Which column is taken for the target where nobody says: on tables of every kind."""

import pickle

import pytest
from family import CASES

from expacc.cli import main
from expacc.cli.screen import Screen
from expacc.data import read_table
from expacc.data.target import TargetError


@pytest.fixture
def write(tmp_path):
    def write(content, name="cars.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize("name", CASES)
def test_the_right_column_or_a_question(write, name):
    case = CASES[name]
    path = write(case.content())
    if case.target:
        table = read_table(path, **case.options)
        assert table.target.name == case.target
    else:
        with pytest.raises(TargetError) as caught:
            read_table(path, **case.options)
        found = caught.value
        assert case.doubt in found.doubt
        assert [one.name for one in found.candidates][:1] == ([case.first] if case.first else [])
        assert "\n" not in str(found)
        assert pickle.loads(pickle.dumps(found)).candidates == found.candidates
        if not case.first:
            return
        table = read_table(path, target=case.first, **case.options)
        assert dict(found.candidates[0].classes) == table.target.counts()
    assert {entry.name for entry in table.dropped} >= {*case.out}


def test_the_command_line_lists_candidates_with_commands_or_asks(
    write, tmp_path, monkeypatch, capsys
):
    write(CASES["titanic"].content(), "titanic.csv")
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "titanic.csv", "--repeats", "3"]) == 2
    said = capsys.readouterr().err
    assert "1  Survived: 0 " in said
    assert "expacc compare titanic.csv --repeats 3 --target Survived" in said
    monkeypatch.setattr(Screen, "can_ask", True)
    for typed, taken in (("1", "Survived"), ("Pclass", "Pclass"), ("12", ""), ("", "")):
        monkeypatch.setattr(Screen, "ask", lambda *_, typed=typed: typed)
        assert main(["inspect", "titanic.csv"]) == (0 if taken else 2)
        said = capsys.readouterr()
        assert f"target '{taken}'" in said.out or ("target must be" in said.err and not taken)


UNSURE = {
    "two labels": ("a,label_coarse,label_fine", lambda i: f"{i / 7},{i % 2},{i % 4}", {}),
    "class first, no names": (None, lambda i: f"{1 + i % 3},{i / 7},{i % 5 / 3},{1 + i % 2}", {}),
    "wine": (None, lambda i: f"{1 + i % 3},{i / 7},{i % 5},{i % 9},{i * 31}", {}),
}


@pytest.mark.parametrize("name", UNSURE)
def test_a_question_rather_than_the_last_column(write, name):
    header, line, options = UNSURE[name]
    text = "\n".join([*([header] if header else []), *map(line, range(60))]) + "\n"
    with pytest.raises(TargetError) as caught:
        read_table(write(text), header=header is not None, **options)
    assert caught.value.candidates[0].name == ("label_coarse" if header else "column 1")
