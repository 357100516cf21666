"""Fitted trees as a folder: the library's own text of them, and JSON; nothing in it is executed."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from expacc.boosting.boosted import LIBRARIES, BoostedClassifier, import_library
from expacc.files import Between, check_shape, is_sealed, parse_json, read_whole, seal, write_whole
from expacc.plain import UsageError

FORMAT, FACTS, TREES = 1, "model.json", "trees.txt"
FILES = (FACTS, TREES)
LARGEST = {FACTS: 64 << 20, TREES: 4 << 30}  # bytes
_COUNT = Between(1)
_SHAPE = {
    "format": int,
    "class": {"BoostedClassifier"},
    "library": set(LIBRARIES),
    "loss": str,
    "classes": [(str, float, bool)],
    "features": _COUNT,
    "feature_names": ([str], None),
    "prior": [float],
    "rounds": _COUNT,
    "temperature": Between(5e-324, 1e300),
    "bend": Between(5e-324, 1.0),
    "chosen": dict,
    "versions": {str: str},
    "trees_sha256": str,
    "seal?": str,
}


def write_folder(classifier: BoostedClassifier, folder: Path) -> Path:
    """Write a fitted classifier, up to the round that predicts; the facts vouch for the trees."""
    library = import_library(classifier.library)
    trees = trees_of(classifier, classifier.n_iter_)
    names = getattr(classifier, "feature_names_in_", None)
    facts = {
        "format": FORMAT,
        "class": "BoostedClassifier",
        "library": classifier.library,
        "loss": classifier.loss,
        "classes": classifier.classes_.tolist(),
        "features": int(classifier.n_features_in_),
        "feature_names": None if names is None else [str(name) for name in names],
        "prior": classifier.prior_.tolist(),
        "rounds": int(classifier.n_iter_),
        "temperature": classifier.temperature_,
        "bend": classifier.bend_,
        "chosen": classifier.best_params_,
        "versions": {classifier.library: str(library.__version__)},
        "trees_sha256": hashlib.sha256(trees).hexdigest(),
    }
    try:
        check_shape(facts, _SHAPE, "it")
    except ValueError:
        raise TypeError(
            "classes and loss must be text or numbers to be saved; got others."
        ) from None
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / TREES, trees)
    write_whole(folder / FACTS, json.dumps(seal(facts), indent=1, allow_nan=False) + "\n")
    return folder


def trees_of(classifier: BoostedClassifier, rounds: int) -> bytes:
    """The library's own text of the first rounds."""
    if classifier.library == "lightgbm":
        return str(classifier.booster_.model_to_string(num_iteration=rounds)).encode()
    return bytes(classifier.booster_[:rounds].save_raw("json"))


def read_files(folder: Path) -> dict[str, bytes]:
    """The bytes of both files."""
    try:
        return {name: read_whole(folder / name, LARGEST[name]) for name in FILES}
    except FileNotFoundError as error:
        raise UsageError(
            f"{folder} must hold {FACTS} and {TREES}, as BoostedClassifier.save writes them; got "
            f"no {Path(error.filename or TREES).name}."
        ) from None


def build(folder: Path, files: dict[str, bytes]) -> BoostedClassifier:
    """A classifier from the bytes of its files, checked before use."""
    path = folder / FACTS
    try:
        facts = parse_json(files[FACTS])
        check_shape(facts, _SHAPE, "it")
        sound = facts["format"] == FORMAT and is_sealed(facts)
    except (ValueError, TypeError, KeyError):
        sound = False
    if not sound or facts["trees_sha256"] != hashlib.sha256(files[TREES]).hexdigest():
        raise UsageError(
            f"{path} and {TREES} must be as BoostedClassifier.save wrote them; they were changed, "
            "or their writer died. Save the classifier again."
        )
    classifier = BoostedClassifier(facts["library"], facts["loss"])
    classifier.classes_ = np.array(facts["classes"])
    classifier.n_features_in_ = facts["features"]
    if facts["feature_names"] is not None:
        classifier.feature_names_in_ = np.array(facts["feature_names"], dtype=object)
    classifier.prior_ = np.array(facts["prior"], np.float64)
    classifier.n_iter_ = classifier.rounds_ = facts["rounds"]
    classifier.temperature_, classifier.bend_ = facts["temperature"], facts["bend"]
    classifier.best_params_ = facts["chosen"]
    classifier.booster_ = read_trees(facts["library"], files[TREES], folder / TREES)
    count = len(facts["classes"])
    try:
        found = classifier.logits(np.zeros((1, facts["features"])))
        fits = found.shape == (1, count) == (1, len(set(facts["classes"])))
    except Exception:  # whatever a library says of trees that are not for these features
        fits = False
    if not fits or count < 2 or not all(map(math.isfinite, facts["prior"])):
        raise UsageError(f"{folder} must hold files of one model; they differ. Save it again.")
    return classifier


def read_trees(name: str, text: bytes, path: Path) -> Any:
    """The booster that the library makes of such a text."""
    library = import_library(name)
    try:
        if name == "lightgbm":
            return library.Booster(model_str=text.decode())
        booster = library.Booster()
        booster.load_model(bytearray(text))
    except Exception:  # of the library's own kind
        raise UsageError(f"{path} must be a model of {name}; it is damaged.") from None
    return booster
