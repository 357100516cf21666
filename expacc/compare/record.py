"""What a study leaves behind: all that the report, the leaderboard and the suspects are made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expacc.runner.rows import Row

__all__ = ["StudyRecord", "TableFacts"]


@dataclass(frozen=True, eq=False)
class TableFacts:
    """A table of the study, as far as a report needs it.

    Args:
        name: of the table.
        rows: how many.
        features: how many, as the model sees them.
        classes: labels as text, in the order of their numbers.
        labels: the class number that the table gives each row, shape (rows,).
        notes: what was noticed when it was read.
        sha256: of the file.
        target: the name of the column that holds the labels.
        folds: the names of all its folds, as rows carry them; () if they follow from the protocol.
    """

    name: str
    rows: int
    features: int
    classes: tuple[str, ...]
    labels: NDArray[np.int32]
    notes: tuple[str, ...] = ()
    sha256: str = ""
    target: str = ""
    folds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if np.shape(self.labels) != (self.rows,):
            raise ValueError(
                f"labels of {self.name} must hold one class number per row, shape "
                f"({self.rows},); got {np.shape(self.labels)}."
            )


@dataclass(frozen=True, eq=False)
class StudyRecord:
    """A study, running or finished.

    Args:
        settings: what was asked for: 'losses' (names), 'model', 'trials', 'folds' ('5x2', '10',
            '3x10', 'holdout' …), 'seeds' (how many), 'label_noise' (shares), 'seed' …
        tables: name → facts.
        rows: every run so far.
        versions: package → version.
        started: when, in words.
        seconds: how long it took.
        command: what to type to repeat it.
    """

    settings: Mapping[str, Any]
    tables: Mapping[str, TableFacts]
    rows: tuple[Row, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    started: str = ""
    seconds: float = 0.0
    command: str = ""

    @property
    def folds(self) -> str:
        """The protocol, as in the settings."""
        return str(self.settings.get("folds", "5x2"))

    @property
    def noise_levels(self) -> tuple[float, ...]:
        """The shares of replaced training labels, smallest first."""
        asked = self.settings.get("label_noise") or ()
        found = {float(share) for share in asked} | {row.noise for row in self.rows}
        return tuple(sorted(found)) or (0.0,)

    def finals(self, table: str | None = None, *, noise: float | None = None) -> list[Row]:
        """Final and outside runs, failed ones too, in the order of their keys."""
        kept = (
            row
            for row in self.rows
            if row.kind != "trial"
            and (table is None or row.table == table)
            and (noise is None or row.noise == noise)
        )
        return sorted(kept, key=lambda row: row.key)
