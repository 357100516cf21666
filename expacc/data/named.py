"""The built-in tables, as scikit-learn ships them, with their classes by name."""

import hashlib

from expacc.data.errors import need
from expacc.data.grid import Cell, Grid

__all__ = ["NAMED", "read_named"]

NAMED = {
    "iris": "load_iris",
    "wine": "load_wine",
    "breast-cancer": "load_breast_cancer",
    "digits": "load_digits",
}


def read_named(name: str) -> tuple[Grid, str]:
    """A built-in table and the digest of its numbers and classes."""
    datasets = need("sklearn.datasets", f"the built-in table {name!r}")
    bunch = getattr(datasets, NAMED[name])()
    digest = hashlib.sha256(bunch.data.tobytes())
    classes = [str(text) for text in bunch.target_names]
    labels: list[Cell] = [classes[code] for code in bunch.target.tolist()]
    digest.update("\n".join(map(str, labels)).encode())
    columns: list[list[Cell]] = [column.tolist() for column in bunch.data.T]
    names = (*map(str, bunch.feature_names), "class")
    rows = range(1, len(labels) + 1)
    return Grid(name, names, [*columns, labels], rows, declared={}), digest.hexdigest()
