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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expacc.compare.leaderboard import leaderboard
from expacc.compare.record import StudyRecord
from expacc.compare.study import Settings, check_device
from expacc.compare.training_budget import MODELS, check_size, trials_for
from expacc.compare.work import FoldTrainer
from expacc.data import Preprocessor, ReadOptions, Table, TrainRows, read_table
from expacc.data.source import table_name
from expacc.estimator import AccuracyClassifier, AccuracyClassifierCV
from expacc.estimator.saving import FILES, build, cv_results, read_files
from expacc.files import check_shape, is_sealed, parse_json, read_whole, seal, write_whole
from expacc.plain import UsageError, check_choice
from expacc.report.words import loss_name
from expacc.runner.items import WorkItem

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
    "sha256": dict.fromkeys(FILES, str),
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

    classifier: AccuracyClassifier
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
        content = {
            "format": FORMAT,
            "version": VERSION,
            "classes": list(self.classes),
            "preprocessor": self.preprocessor.to_json(),
            "options": dict(self.options),
            "facts": dict(self.facts),
            "sha256": {name: _digest(data) for name, data in read_files(folder).items()},
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
        files = read_files(folder)
        for name, data in files.items():
            if content["sha256"][name] != _digest(data):
                raise UsageError(
                    f"{folder / name} must be as expacc fit wrote it; it was changed, or fit was "
                    "stopped while it wrote. Fit anew."
                )
        classifier = build(AccuracyClassifier, folder, files)
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
    classifier: AccuracyClassifier, preprocessor: Preprocessor, table: Table, how: str
) -> Deployed:
    facts = {"table": table.name, "target": table.target.name, "rows": table.rows}
    facts |= {"sha256": table.sha256, "how": how}
    options = {name: one for name, one in table.reading.items() if name not in _OF_A_TABLE}
    return Deployed(classifier, preprocessor, options, facts)


def train_by_choice(
    table: Table, *, model: str = "linear", seed: int = 0, device: str = "cpu"
) -> Deployed:
    """Let ``AccuracyClassifierCV`` choose the loss, and train it on all rows."""
    check_choice("model", model, tuple(MODELS))
    check_device(device)
    check_size(table)
    preprocessor = Preprocessor.fit(table)
    classifier = AccuracyClassifierCV(
        hidden_layer_sizes=MODELS[model], random_state=seed, device=device
    )
    labels = np.array(table.target.classes)[table.target.codes]
    classifier.fit(preprocessor.transform(table, dtype=np.float64), labels)
    return _deployed(classifier, preprocessor, table, "chosen by cross-validation")


def train_loss(
    table: Table,
    loss: str,
    *,
    model: str = "linear",
    trials: int | None = None,
    seed: int = 0,
    device: str = "cpu",
) -> Deployed:
    """Search and train as in a fold of a study, with every row as a training row.

    So what the study measured is the accuracy of this very procedure.
    """
    asked = Settings(losses=(loss,), model=model, trials=trials, seed=seed)  # checks them
    check_size(table)
    count = asked.trials or trials_for(table, asked.model)
    preprocessor = Preprocessor.fit(table)
    codes = np.asarray(table.target.codes)
    rows = np.arange(table.rows)
    features = preprocessor.transform(table)
    wrong = np.zeros(table.rows, np.bool_)
    train = TrainRows(features, codes, table.target.classes, rows, wrong)
    payload = {"table": table.name, "fold": "all rows", "seed": seed}
    payload |= {"losses": list(asked.losses)}  # cross entropy, from which others go on, is there
    payload |= {"model": asked.model, "trials": count, "seeds": 1, "noise": 0.0}
    payload |= {"device": check_device(device)}
    runs = count * len(asked.losses) + 1
    trainer = FoldTrainer(WorkItem(f"{table.name}|all rows", payload, runs), train)
    _, best = trainer.search()
    found = best[loss]
    result = None
    if found is not None:
        final = trainer.final_runs({loss: (loss, found[0])}, seeds=1)
        result, _ = trainer.together(final)[loss, 0]
    if found is None or result is None or result.model is None:
        raise UsageError(
            f"loss must be one that trains on {table.name}; {loss_name(loss)} diverged in every "
            "trial. Use another --loss, or more --trials."
        )
    trial, row, calibration = found
    classifier = AccuracyClassifier(loss, MODELS[model], random_state=seed)
    classifier.classes_ = np.array(table.target.classes)
    classifier.n_features_in_ = preprocessor.width
    classifier.layers_ = [
        (layer.weight.double().cpu().numpy(), layer.bias.double().cpu().numpy())
        for layer in result.model.layers
    ]
    classifier.temperature_ = calibration.temperature
    classifier.bend_ = calibration.bend
    classifier.best_params_ = {"loss": loss, **trial.found}
    score = row.metrics["validation_accuracy"]
    classifier.cv_results_ = cv_results([(classifier.best_params_, score)])
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
