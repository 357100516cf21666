"""Folds, hold-outs and wrong labels: stratified, recorded, and seeded by name.

Seeds go by name, not by position: adding a table or a loss changes no other run.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from expacc.data.table import Rows, Split, Table
from expacc.plain import check_count


def derive_seed(seed: int, *names: str | int | float) -> int:
    """A seed in [0, 2**63) for one purpose, from the study's seed and the purpose's names.

    >>> derive_seed(0, "car", "folds") == derive_seed(0, "car", "folds")
    True
    >>> derive_seed(0, "car", "folds") == derive_seed(0, "car", "noise")
    False
    """
    if type(seed) is not int or seed < 0:
        raise ValueError(f"seed must be an int >= 0; got {seed!r}.")
    # JSON keeps ("a", "b") and ("ab",) apart, and 1 and "1".
    text = json.dumps([seed, *names], ensure_ascii=True, allow_nan=False)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *names: str | int | float) -> np.random.Generator:
    """A generator for one purpose; PCG64 by name, for default_rng may change."""
    return np.random.Generator(np.random.PCG64(derive_seed(seed, *names)))


@dataclass(frozen=True, eq=False)
class Splits:
    """Splits with how they were made (for the record) and what the user should know."""

    splits: tuple[Split, ...]
    how: dict[str, Any]
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Split]:
        return iter(self.splits)

    def __len__(self) -> int:
        return len(self.splits)


_NO_ROWS: Rows = np.empty(0, np.int64)


def _check_labels(labels: ArrayLike, names: Sequence[str] | None) -> tuple[Rows, list[str]]:
    codes = np.asarray(labels)
    if codes.ndim != 1 or codes.dtype.kind not in "iu" or (codes < 0).any():
        raise ValueError(
            f"labels must be a vector of class numbers >= 0; got {codes.dtype} of shape "
            f"{codes.shape}."
        )
    codes = codes.astype(np.int64, copy=False)
    classes = int(codes.max(initial=-1)) + 1
    return codes, list(names or map(str, range(classes)))


def stratified_folds(
    labels: ArrayLike,
    folds: int,
    repeats: int = 1,
    *,
    seed: int,
    name: str = "",
    classes: Sequence[str] | None = None,
) -> Splits:
    """Deal the rows of each class, shuffled, to ``folds`` parts; each part is the test rows once.

    Part sizes differ by one at most, overall and within each class. A class with fewer rows than
    folds is absent from some test parts, and a class of one row from the training rows of the fold
    that tests it: a note says so, no row is left out.

    Args:
        labels: class numbers.
        folds: parts, 2 or more.
        repeats: how often to deal anew.
        seed: the study's seed.
        name: the table's name, which the generator is seeded with too.
        classes: names for the notes.
    """
    codes, names = _check_labels(labels, classes)
    check_count("folds", folds, 2)
    check_count("repeats", repeats, 1)
    if folds > len(codes):
        raise ValueError(f"folds must be at most the number of rows, {len(codes)}; got {folds}.")
    splits: list[Split] = []
    for repeat in range(repeats):
        deal = _Deal(codes, folds, (seed, name, "folds", folds, repeat))
        splits += [
            DealtSplit.of(f"repeat {repeat + 1}, fold {fold + 1}", deal, fold)
            for fold in range(folds)
        ]
    how = {"kind": "stratified folds", "folds": folds, "repeats": repeats, "seed": seed}
    return Splits(tuple(splits), {**how, "name": name}, _rare_notes(codes, names, folds))


class _Deal:
    """The part of each row, dealt when it is asked for: a plan of a study asks for none."""

    def __init__(self, codes: Rows, folds: int, seed: tuple[Any, ...]) -> None:
        self.rows, self.folds = len(codes), folds
        self._codes, self._seed = codes, seed

    @cached_property
    def part(self) -> NDArray[Any]:
        """The number of each row's part."""
        random = generator(*self._seed)
        order = np.concatenate([random.permutation(group) for group in _by_class(self._codes)])
        form = np.min_scalar_type(self.folds)
        part = np.empty(len(order), form)
        # Dealt in one round over all classes, so that sizes stay even; from a random part, so that
        # a rare class does not always fall to the first.
        turn = (np.arange(self.folds) + random.integers(self.folds)) % self.folds
        part[order] = np.resize(turn.astype(form), len(order))
        return part


class DealtSplit(Split):
    """One fold of a deal; its row numbers are made when they are first asked for."""

    _deal: _Deal
    _fold: int

    @classmethod
    def of(cls, name: str, deal: _Deal, fold: int) -> "DealtSplit":
        """Without rows, for now; the usual constructor takes them."""
        split = cls.__new__(cls)
        split.__dict__.update(name=name, _deal=deal, _fold=fold)
        return split

    @cached_property
    def train(self) -> Rows:
        """Rows to learn from."""
        return np.flatnonzero(self._deal.part != self._fold)

    @cached_property
    def validation(self) -> Rows:
        """None: a deal has no such rows."""
        return _NO_ROWS

    @cached_property
    def test(self) -> Rows:
        """Rows to test on."""
        return np.flatnonzero(self._deal.part == self._fold)

    @property
    def train_rows(self) -> int:
        """About how many there are to learn from, told without dealing."""
        return self._deal.rows - self._deal.rows // self._deal.folds

    def renamed(self, name: str) -> Split:
        """The same rows under another name."""
        return DealtSplit.of(name, self._deal, self._fold)


def _by_class(codes: Rows) -> list[Rows]:
    """The rows of each class, in one sort: there may be as many classes as rows."""
    order = np.argsort(codes, kind="stable")
    ends = np.flatnonzero(np.diff(codes[order])) + 1
    return np.split(order, ends)


_MOST_NAMED = 5


def _rare_notes(codes: Rows, names: Sequence[str], folds: int) -> tuple[str, ...]:
    """One line, however many classes have fewer rows than there are folds."""
    counts = np.bincount(codes)
    rare = np.flatnonzero((counts > 0) & (counts < folds))
    if not rare.size:
        return ()
    lone = int((counts[rare] == 1).sum())
    note = f"Warning: {_listed(rare, names, counts)}, fewer than {folds} folds: absent from some"
    note += " test rows"
    if lone:
        one = "" if len(rare) == 1 else f" those of one row ({lone:,})"
        note += f", and{one} from the training rows of the fold that tests it"
    return (note + ".",)


def _listed(rare: Rows, names: Sequence[str], counts: Rows) -> str:
    """Classes with their rows for a line, of many the first."""
    if len(rare) == 1:
        return f"the class {names[rare[0]]!r} has {counts[rare[0]]:,} row(s)"
    some = ", ".join(f"{names[code]!r} {counts[code]:,}" for code in rare[:_MOST_NAMED].tolist())
    more = ", …" if len(rare) > _MOST_NAMED else ""
    return f"{len(rare):,} classes have few rows ({some}{more})"


def five_by_two(
    labels: ArrayLike, *, seed: int, name: str = "", classes: Sequence[str] | None = None
) -> Splits:
    """Five times two halves, stratified: what the 5×2 cv tests are made for.

    >>> splits = five_by_two([0, 0, 1, 1], seed=0)
    >>> len(splits), splits.splits[0].test.tolist() == splits.splits[1].train.tolist()
    (10, True)
    """
    return stratified_folds(labels, 2, 5, seed=seed, name=name, classes=classes)


def holdout(
    labels: ArrayLike,
    share: float,
    *,
    seed: int,
    name: str = "",
    classes: Sequence[str] | None = None,
) -> Splits:
    """Hold out ``share`` of the rows, stratified; a class of one row stays in training."""
    codes, names = _check_labels(labels, classes)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise ValueError(f"share must lie in (0, 1); got {share!r}.")
    total = round(share * len(codes))
    if not 1 <= total < len(codes):
        raise ValueError(f"share must leave rows on both sides of {len(codes)}; got {share}.")
    random = generator(seed, name, "holdout", share)
    groups = [random.permutation(group) for group in _by_class(codes)]
    sizes = np.array([len(group) for group in groups])
    # Largest remainders make the shares add up; every class keeps a row for training.
    exact = sizes * (total / len(codes))
    take = np.minimum(np.floor(exact).astype(np.int64), sizes - 1)
    left = total - int(take.sum())
    for place in np.argsort(take - exact, kind="stable").tolist():
        if left > 0 and take[place] < sizes[place] - 1:
            take[place] += 1
            left -= 1
    if not take.sum():
        raise ValueError(
            f"share must leave a row to test; got {share} of {len(codes)} rows in "
            f"{len(groups)} classes."
        )
    test = np.sort(np.concatenate([group[:n] for group, n in zip(groups, take, strict=True)]))
    train = np.setdiff1d(np.arange(len(codes)), test)
    counts = np.bincount(codes)
    rare = np.unique(codes)[take == 0]
    few = "too few for the test rows"
    notes = (f"Warning: {_listed(rare, names, counts)}, {few}.",) if rare.size else ()
    how = {"kind": "holdout", "share": share, "seed": seed, "name": name}
    return Splits((Split("holdout", train, _NO_ROWS, test),), how, notes)


def given_splits(table: Table) -> Splits:
    """The splits that came with a table, checked: within range, no row on both sides."""
    if not table.given:
        raise ValueError(f"{table.name} must come with splits for this; it has none.")
    for split in table.given:
        _check_given(table, split)
    codes = table.target.codes
    gone = {}
    for split in table.given:
        absent = np.setdiff1d(codes[split.test], codes[split.train])
        if absent.size:
            gone[split.name] = absent
    notes = []
    if gone:
        name, absent = next(iter(gone.items()))
        names = ", ".join(repr(table.target.classes[code]) for code in absent[:10].tolist())
        names += ", …" if absent.size > 10 else ""
        more = f" (and {len(gone) - 1} more split(s) lack some)" if len(gone) > 1 else ""
        notes = [f"Warning: {name}: no training row has the class(es) {names}{more}."]
    how = {"kind": "given", "folds": len(table.given), "name": table.name}
    return Splits(table.given, how, tuple(notes))


def _check_given(table: Table, split: Split) -> None:
    rows = np.concatenate([split.train, split.validation, split.test])
    if not split.train.size or not split.test.size:
        raise ValueError(f"{split.name} of {table.name} must have training and test rows.")
    if rows.min() < 0 or rows.max() >= table.rows or len(np.unique(rows)) < len(rows):
        raise ValueError(
            f"{split.name} of {table.name} must hold each of {table.rows} rows once at most."
        )


def flip_labels(
    labels: ArrayLike, share: float, *, classes: int, seed: int, name: str = ""
) -> tuple[Rows, NDArray[np.bool_]]:
    """Replace the labels of ``share`` of the rows by *another* class, each other one as likely.

    The share is that of labels that are actually wrong: round(share × rows) rows, drawn without
    replacement. (A label redrawn from all classes would stay right in 1 of C cases.)

    Returns:
        The labels, and which of them are wrong.
    """
    codes, _ = _check_labels(labels, None)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
        raise ValueError(f"share must lie in [0, 1); got {share!r}.")
    check_count("classes", classes, 2)
    if codes.max(initial=0) >= classes:
        raise ValueError(f"classes must exceed every label; got {classes} and {codes.max()}.")
    random = generator(seed, name, "label noise", share)
    wrong = np.zeros(len(codes), np.bool_)
    wrong[random.permutation(len(codes))[: round(share * len(codes))]] = True
    # A step of 1 to C-1 around the circle of classes reaches each other class equally often.
    steps = random.integers(1, classes, size=len(codes))
    return np.where(wrong, (codes + steps) % classes, codes), wrong
