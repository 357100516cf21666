"""The winner at work: train it on every row, save it as a folder, predict with it anywhere.

The folder holds what ``AccuracyClassifier.save`` writes (safetensors and JSON) and ``table.json``:
how the table was read and preprocessed, its digest, and the digests of the other two files. Nothing
in it is executed.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from expacc.compare.leaderboard import leaderboard
from expacc.compare.models import BOOSTED, in_python
from expacc.compare.record import StudyRecord
from expacc.compare.settings import Settings
from expacc.compare.standing import model_text
from expacc.compare.study import check_device
from expacc.compare.training_budget import MODELS, check_size, trials_for
from expacc.compare.work import trainer_of
from expacc.data import Preprocessor, ReadOptions, Table, TrainRows, read_table
from expacc.data.source import table_name
from expacc.estimator import AccuracyClassifier, AccuracyClassifierCV
from expacc.estimator.saving import build, read_files
from expacc.files import check_shape, is_sealed, parse_json, read_whole, seal, write_whole
from expacc.plain import UsageError
from expacc.report.words import loss_name
from expacc.runner.items import WorkItem

if TYPE_CHECKING:
    from expacc.boosting import BoostedClassifier

FACTS = "table.json"
FORMAT, VERSION = "expacc table model", 1
LARGEST = 256 << 20  # bytes of table.json
_SHAPE = {
    "format": str,
    "version": int,
    "classes": [str],
    "preprocessor": dict,
    "options": dict,
    "facts": dict,
    "sha256": {str: str},
    "trees?": bool,
    "seal?": str,
}
BLOCK = 1 << 25  # values of features that are in memory at a time
# Options that a model does not keep.
_OF_A_TABLE = ("target", "sheet", "numeric", "categorical", "text", "drop", "text_columns")


@dataclass(frozen=True, eq=False)
class Deployed:
    """A classifier with all it needs to read a table.

    Attributes:
        classifier: fitted on preprocessed features.
        preprocessor: from a table's columns to features.
        options: how the training table was read, where that was not the default.
        facts: the training table's name, rows and digest, for people.
    """

    classifier: "AccuracyClassifier | BoostedClassifier"
    preprocessor: Preprocessor
    options: Mapping[str, Any]
    facts: Mapping[str, Any]

    def reading(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Options to read a new table with: the training table's, unless others are given."""
        return {**self.options, **given}

    def read(self, data: str | Path, **given: Any) -> Table:
        """A new table, its columns found by name and read as in training."""
        return read_table(data, like=self.preprocessor.schema, **self.reading(given))

    def predict(self, table: Table) -> tuple[list[str], NDArray[np.float64]]:
        """The class of each row, and calibrated probabilities in the order of ``classes``."""
        labels: list[str] = []
        chances = [np.empty((0, len(self.classes)))]
        step = max(1, BLOCK // max(1, self.preprocessor.width))
        for start in range(0, table.rows, step):
            rows = np.arange(start, min(start + step, table.rows))
            features = self.preprocessor.transform(table, rows, dtype=np.float64)
            try:
                labels += map(str, self.classifier.predict(features))
                chances.append(self.classifier.predict_proba(features))
            except UsageError as error:
                if start == 0:
                    raise
                raise UsageError(f"In the rows from {start} on: {error}") from None
        return labels, np.concatenate(chances)

    @property
    def classes(self) -> tuple[str, ...]:
        """Labels as written in the training table."""
        return tuple(map(str, self.classifier.classes_))

    def save(self, folder: str | Path) -> Path:
        """Write the folder; ``table.json`` comes last and vouches for the rest."""
        folder = self.classifier.save(folder)
        trees = not isinstance(self.classifier, AccuracyClassifier)
        content = {
            "format": FORMAT,
            "version": VERSION,
            "classes": list(self.classes),
            "preprocessor": self.preprocessor.to_json(),
            "options": dict(self.options),
            "facts": dict(self.facts),
            "sha256": {name: _digest(data) for name, data in _files(folder, trees).items()},
            **({"trees": True} if trees else {}),
        }
        write_whole(folder / FACTS, json.dumps(seal(content), indent=1, allow_nan=False) + "\n")
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> "Deployed":
        """Read what ``save`` wrote, checked before use.

        Raises:
            ValueError: the folder is no saved model, or a file of it is missing or damaged.
        """
        folder = Path(folder)
        content = _read_facts(folder / FACTS)
        trees = content.get("trees", False)
        files = _files(folder, trees)
        for name, data in files.items():
            if content["sha256"].get(name) != _digest(data):
                raise UsageError(
                    f"{folder / name} must be as expacc fit wrote it; it was changed, or fit was "
                    "stopped while it wrote. Fit anew."
                )
        classifier = _build(folder, files, trees)
        try:
            preprocessor = Preprocessor.from_json(content["preprocessor"])
        except ValueError as error:
            raise UsageError(str(error)) from None
        found = cls(classifier, preprocessor, _options(content["options"]), content["facts"])
        if list(found.classes) != content["classes"] or (
            preprocessor.width != classifier.n_features_in_
        ):
            raise UsageError(f"{folder} must hold files of one model; they differ. Fit anew.")
        if not is_sealed(content):
            raise _damaged(folder / FACTS)
        return found


def _files(folder: Path, trees: bool) -> dict[str, bytes]:
    """The files of a network, or of boosted trees, whose library may not be there."""
    if trees:
        from expacc.boosting.saving import read_files as read_trees

        return read_trees(folder)
    return read_files(folder)


def _build(
    folder: Path, files: dict[str, bytes], trees: bool
) -> "AccuracyClassifier | BoostedClassifier":
    if trees:
        from expacc.boosting.saving import build as build_trees

        return build_trees(folder, files)
    found: AccuracyClassifier = build(AccuracyClassifier, folder, files)
    return found


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read_facts(path: Path) -> dict[str, Any]:
    try:
        data = read_whole(path, LARGEST)
    except FileNotFoundError:
        raise UsageError(
            f"{path.parent} must be a folder that expacc fit wrote; it has no {FACTS}."
        ) from None
    try:
        content = parse_json(data)
        known = content["format"] == FORMAT and content["version"] == VERSION
    except (ValueError, KeyError, TypeError):
        raise _damaged(path) from None
    if not known:
        raise UsageError(f"{path} must be a {FORMAT} of version {VERSION}. Update expacc.")
    try:
        check_shape(content, _SHAPE, "it")
    except ValueError:
        raise _damaged(path) from None
    return dict(content)


def _damaged(path: Path) -> UsageError:
    return UsageError(f"{path} must be as expacc fit wrote it; it is damaged. Fit anew.")


def _options(found: Mapping[str, Any]) -> dict[str, Any]:
    """Options from JSON, which knows no tuples, checked by ``ReadOptions``."""
    known = {field.name for field in fields(ReadOptions)} - set(_OF_A_TABLE)
    if not set(found) <= known:
        odd = sorted(set(found) - known)[0]
        raise UsageError(f"the saved options must be those of a table; got {odd!r:.40}. Fit anew.")
    try:
        ReadOptions(**found)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the saved options must be those of a table; {error} Fit anew.") from None
    return dict(found)


def _deployed(
    classifier: "AccuracyClassifier | BoostedClassifier",
    preprocessor: Preprocessor,
    table: Table,
    how: str,
) -> Deployed:
    facts = {"table": table.name, "target": table.target.name, "rows": table.rows}
    facts |= {"sha256": table.sha256, "how": how}
    options = {name: one for name, one in table.reading.items() if name not in _OF_A_TABLE}
    return Deployed(classifier, preprocessor, options, facts)


def train_by_choice(table: Table, *, device: str = "cpu", **asked: Any) -> Deployed:
    """Train the networks that vote; of a model that is asked for, the loss that does best.

    Args:
        table: whose rows are trained on.
        device: where to train.
        **asked: of ``Settings``: the model and the seed.
    """
    settings = Settings(**asked)
    if settings.model not in MODELS:
        raise UsageError(f"--model {settings.model} must come with --loss or --from; got neither.")
    check_device(device)
    check_size(table)
    preprocessor = Preprocessor.fit(table)
    same: dict[str, Any] = {"random_state": settings.seed, "device": device}
    classifier: AccuracyClassifier = AccuracyClassifier(**same)
    how = "the best of the small networks that vote"
    if {"model", "hidden", "dropout"} & {*asked}:
        classifier = AccuracyClassifierCV(
            hidden_layer_sizes=settings.hidden or (), dropout=settings.dropout, **same
        )
        how = "chosen by cross-validation"
    labels = np.array(table.target.classes)[table.target.codes]
    classifier.fit(preprocessor.transform(table, dtype=np.float64), labels)
    return _deployed(classifier, preprocessor, table, how)


def train_loss(table: Table, loss: str, *, device: str = "cpu", **asked: Any) -> Deployed:
    """Search and train as in a fold of a study, with every row as a training row.

    So what the study measured is the accuracy of this very procedure.

    Args:
        table: whose rows are trained on.
        loss: its name.
        device: where to train.
        **asked: of ``Settings``: the model, the trials and the seed.

    Raises:
        UsageError: the loss diverged, or the model cannot be saved.
    """
    settings = Settings(losses=(loss,), **asked)
    if settings.model not in (*MODELS, *BOOSTED):
        raise UsageError(
            "model must be linear, mlp, lightgbm or xgboost to be saved; only a pickle holds a "
            f"fitted {model_text(settings.model)}. In Python: {in_python(settings.model, loss)}"
        )
    check_size(table)
    count = settings.trials or trials_for(table, settings.model, settings.hidden)
    preprocessor = Preprocessor.fit(table)
    codes = np.asarray(table.target.codes)
    rows = np.arange(table.rows)
    features = preprocessor.transform(table)
    wrong = np.zeros(table.rows, np.bool_)
    train = TrainRows(features, codes, table.target.classes, rows, wrong)
    # Of networks the losses go on from cross entropy, which settings have beside each.
    losses = list(settings.losses) if settings.model in MODELS else [loss]
    payload: dict[str, Any] = {"table": table.name, "fold": "all rows", "seed": settings.seed}
    payload |= {"losses": losses}
    payload |= {"model": settings.model, "trials": count, "seeds": 1, "noise": 0.0}
    payload |= {"device": check_device(device), **settings.network}
    runs = count * len(losses) + 1
    trainer = trainer_of(WorkItem(f"{table.name}|all rows", payload, runs), train)
    _, best = trainer.search()
    classifier = None
    if (found := best[loss]) is not None:
        trial, row, calibration = found
        classifier = trainer.deployable(loss, trial, row)
    if found is None or classifier is None:
        raise UsageError(
            f"loss must be one that trains on {table.name}; {loss_name(loss)} diverged in every "
            "trial. Use another --loss, or more --trials."
        )
    classifier.classes_ = np.array(table.target.classes)[classifier.classes_]
    classifier.n_features_in_ = preprocessor.width
    classifier.temperature_, classifier.bend_ = calibration.temperature, calibration.bend
    classifier.best_params_ = {"loss": loss, **row.numbers}
    return _deployed(classifier, preprocessor, table, f"best of {count} trials")


def reading_of(record: StudyRecord, data: str | Path) -> dict[str, Any]:
    """How a study read a table, its target by name: of the file's own name, or its only one."""
    name = table_name(Path(data).absolute())
    facts = record.tables.get(name)
    if facts is None and len(record.tables) == 1:
        facts = next(iter(record.tables.values()))
    return {} if facts is None else {**facts.reading, "target": facts.target}


def winner_of(record: StudyRecord, table: Table) -> str:
    """The loss that a finished study recommends for a table, which must be one of its own."""
    same = [
        facts
        for facts in record.tables.values()
        if (facts.sha256, facts.target) == (table.sha256, table.target.name)
        and facts.features == len(table.columns)
    ]
    if not same:
        raise UsageError(
            f"DATA must be a table of the study, the same file read alike; {table.name!r} with "
            f"target {table.target.name!r} and {len(table.columns)} feature(s) is not. It has: "
            f"{', '.join(repr(name) for name in record.tables)}."
        )
    board = leaderboard(record).board(same[0].name)
    if board is None or not board.answer.choice:
        raise UsageError(
            f"--from must be a finished study; {same[0].name!r} has no answer yet. Run its "
            "command again to finish it, or name a --loss."
        )
    names = {loss_name(loss): loss for loss in record.settings["losses"]}
    return str(names[board.answer.choice])
