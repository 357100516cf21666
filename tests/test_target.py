"""Which column is taken for the target where nobody says: on tables of every kind."""

import pickle

import pytest
from family import CASES

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
        table = read_table(path, target=case.first, **case.options)
        assert dict(found.candidates[0].classes) == table.target.counts()
    assert {entry.name for entry in table.dropped} >= {*case.out}
