"""A fitted classifier as a folder: safetensors and JSON, so nothing in it is executed."""

import ast
import hashlib
import json
import platform
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import expacc
from expacc.estimator import committee_files
from expacc.files import Between, check_shape, is_sealed, parse_json, read_whole, seal, write_whole
from expacc.plain import UsageError

FORMAT = 1
WEIGHTS, FACTS = "model.safetensors", "model.json"
FILES = (FACTS, WEIGHTS)
LARGEST_FACTS, LARGEST_WEIGHTS = 64 << 20, 8 << 30  # bytes
HEADER = 1 << 20  # bytes of names and shapes before the weights
_KINDS = {"U": str, "i": int, "u": int, "b": bool, "f": float}
_COUNT = Between(1)
NAMES = {"hidden": "hidden_layer_sizes", "folds": "cv", "numbers": "loss_params"}  # old → new
_SHAPE = {
    "format": int,
    "class": str,
    "classes": {"kind": set(_KINDS), "values": list},
    "features": _COUNT,
    "feature_names": ([str], None),
    "layers": [[_COUNT, _COUNT]],
    "committee?": committee_files.SHAPE,
    "temperature": Between(5e-324, 1e300),
    "bend": Between(5e-324, 1.0),
    "chosen": dict,
    "held_out": {str: Between(0.0, 1.0)},
    "iterations?": Between(0),
    "parameters": dict,
    "versions": {str: str},
    "weights_sha256?": str,
    "seal?": str,
}


def cv_results(held_out: Sequence[tuple[dict[str, Any], float]]) -> dict[str, Any]:
    """Settings and their accuracies on held-out rows in the form of scikit-learn's searches."""
    scores = np.array([score for _, score in held_out], np.float64)
    ranks = [1 + int((scores > score).sum()) for score in scores]
    params = [dict(setting) for setting, _ in held_out]
    return {"params": params, "mean_test_score": scores, "rank_test_score": np.array(ranks, int)}


def cv_results_of_names(held_out: Mapping[str, float]) -> dict[str, Any]:
    """The same from the form that files have: a setting as Python writes it, or a loss's name."""
    found = []
    for name, score in held_out.items():
        try:
            setting = ast.literal_eval(name) if name.startswith("{") else None
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            setting = None
        loss = "cross_entropy" if name == "start" else name
        found.append((setting if isinstance(setting, dict) else {"loss": loss}, float(score)))
    return cv_results(found)


def names_of_cv_results(results: Mapping[str, Any]) -> dict[str, float]:
    """The form that files have."""
    scores = results["mean_test_score"].tolist()
    names = ["start" if one == {"loss": "cross_entropy"} else str(one) for one in results["params"]]
    return dict(zip(names, scores, strict=True))


def warn_renamed(old: str, new: str) -> None:
    """Say the name of today, where the caller of a property stands."""
    words = f"{old} is {new} now; the old name goes with the next release."
    warnings.warn(words, DeprecationWarning, stacklevel=3)


def write_folder(classifier: Any, folder: Path) -> Path:
    """Write a fitted classifier; each file appears whole or not at all.

    The facts come last and vouch for the weights: a process that dies between the two leaves a
    folder that is refused, never one with weights of one classifier and classes of another.
    """
    from safetensors.torch import save

    kind = _kind(classifier.classes_)
    facts = {
        "format": FORMAT,
        "class": type(classifier).__name__,
        "classes": {"kind": kind, "values": [_KINDS[kind](c) for c in classifier.classes_]},
        "features": int(classifier.n_features_in_),
        "feature_names": _names(classifier),
        "layers": [list(weight.shape) for weight, _ in classifier.layers_ or ()],
        "temperature": classifier.temperature_,
        "bend": classifier.bend_,
        "chosen": classifier.best_params_,
        "held_out": names_of_cv_results(classifier.cv_results_),
        **({"iterations": classifier.n_iter_} if hasattr(classifier, "n_iter_") else {}),
        "parameters": _parameters(classifier),
        "versions": {
            "expacc": expacc.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }
    tensors = {}
    if classifier.committee_ is not None:
        facts["committee"] = committee_files.committee_facts(
            classifier.committee_, classifier._levels
        )
        tensors = committee_files.committee_tensors(classifier.committee_)
    for place, (weight, bias) in enumerate(classifier.layers_ or ()):
        tensors[f"{place}.weight"] = torch.from_numpy(np.ascontiguousarray(weight))
        tensors[f"{place}.bias"] = torch.from_numpy(np.ascontiguousarray(bias))
    weights = save(tensors)
    facts["weights_sha256"] = hashlib.sha256(weights).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / WEIGHTS, weights)
    write_whole(folder / FACTS, json.dumps(seal(facts), indent=1) + "\n")
    return folder


def _kind(classes: Any) -> str:
    kinds = {"O": "U", "S": "U"}
    kind = kinds.get(classes.dtype.kind, classes.dtype.kind)
    if kind not in _KINDS or (kind == "U" and not all(isinstance(c, str) for c in classes)):
        raise TypeError(
            f"classes must be text, numbers or booleans to be saved; got {classes.dtype}."
        )
    return str(kind)


def _names(classifier: Any) -> list[str] | None:
    names = getattr(classifier, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _parameters(classifier: Any) -> dict[str, Any]:
    """Those that JSON can hold; a loss object or a generator is named, not kept."""
    kept = {}
    for name, value in classifier.get_params(deep=False).items():
        if name in NAMES:  # goes with the next release
            continue
        value = list(value) if isinstance(value, tuple) else value
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            continue
        kept[name] = value
    return kept


def read_folder(cls: type, folder: Path) -> Any:
    """A classifier as ``write_folder`` left it, or a sentence that says what is wrong."""
    return build(cls, folder, read_files(folder))


def read_files(folder: Path) -> dict[str, bytes]:
    """The bytes of both files, each of a size that can be."""
    limits = {FACTS: LARGEST_FACTS, WEIGHTS: LARGEST_WEIGHTS}
    found: dict[str, bytes] = {}
    for name in FILES:
        try:
            if name == WEIGHTS:  # as many numbers as the facts speak of, before they are read
                limits[name] = min(limits[name], _size(_read_facts(folder, found[FACTS])))
            found[name] = read_whole(folder / name, limits[name])
        except FileNotFoundError:
            raise UsageError(
                f"{folder} must hold {name}, as AccuracyClassifier.save writes it."
            ) from None
    return found


def _size(facts: dict[str, Any]) -> int:
    votes = committee_files.committee_bytes(facts["committee"]) if "committee" in facts else 0
    return HEADER + votes + sum(8 * int(out * into + out) for out, into in facts["layers"])


def build(cls: type, folder: Path, files: dict[str, bytes]) -> Any:
    """A classifier from the bytes of its files."""
    facts = _read_facts(folder, files[FACTS])
    classifier = cls()
    try:
        known = classifier.get_params(deep=False)
        parameters = {NAMES.get(name, name): v for name, v in facts["parameters"].items()}
        parameters = {name: value for name, value in parameters.items() if name in known}
        if isinstance(parameters.get("hidden_layer_sizes"), list):
            parameters["hidden_layer_sizes"] = tuple(parameters["hidden_layer_sizes"])
        classifier.set_params(**parameters)
        classifier.classes_ = np.array(facts["classes"]["values"])
    except (TypeError, ValueError, OverflowError) as wrong:
        raise _misfit(folder, wrong) from None
    classifier.n_features_in_ = facts["features"]
    if facts["feature_names"] is not None:
        classifier.feature_names_in_ = np.array(facts["feature_names"], dtype=object)
    classifier.temperature_ = float(facts["temperature"])
    classifier.bend_ = float(facts["bend"])
    classifier.best_params_ = facts["chosen"]
    classifier.cv_results_ = cv_results_of_names(facts["held_out"])
    if "iterations" in facts:  # older folders do not say
        classifier.n_iter_ = facts["iterations"]
    shapes = [(out, into) for out, into in facts["layers"]]
    _check_shapes(shapes, classifier, folder, "committee" in facts)
    found = hashlib.sha256(files[WEIGHTS]).hexdigest()
    if facts.get("weights_sha256", found) != found:  # older folders do not say
        raise UsageError(
            f"{folder / WEIGHTS} must be the file that {FACTS} was written with; it was changed, "
            "or its writer died. Save the classifier again."
        )
    tensors = _read_tensors(folder / WEIGHTS, files[WEIGHTS])
    classifier.committee_, classifier.layers_, classifier._levels = None, None, {}
    if "committee" in facts:
        classifier.committee_, classifier._levels = committee_files.read_committee(
            facts["committee"],
            tensors,
            folder / WEIGHTS,
            classifier.n_features_in_,
            len(classifier.classes_),
        )
    else:
        classifier.layers_ = _layers(folder / WEIGHTS, tensors, shapes)
    return classifier


def _misfit(folder: Path, wrong: object) -> UsageError:
    return UsageError(
        f"{folder / FACTS} must be as AccuracyClassifier.save wrote it; {wrong!s:.200} "
        "Save the classifier again."
    )


def _read_facts(folder: Path, data: bytes) -> dict[str, Any]:
    path = folder / FACTS
    try:
        facts = parse_json(data)
        version = facts["format"]
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{path} must be JSON with a format number; it is damaged.") from None
    if version != FORMAT:
        raise UsageError(
            f"{path} must be of format {FORMAT}; it is of {version!r:.20}. "
            "Use the version of expacc that wrote it, or a newer one."
        )
    try:
        check_shape(facts, _SHAPE, "it")
        kind, values = facts["classes"]["kind"], facts["classes"]["values"]
        for value in values:
            check_shape(value, _KINDS[kind], "a class")
        if len(facts["feature_names"] or ()) not in (0, facts["features"]):
            raise UsageError("feature_names must be one a feature.")
        if not is_sealed(facts):
            raise UsageError("it was changed.")
    except ValueError as wrong:
        raise _misfit(folder, wrong) from None
    return dict(facts)


def _check_shapes(
    shapes: list[tuple[int, int]], classifier: Any, folder: Path, votes: bool
) -> None:
    widths = [classifier.n_features_in_, *(out for out, _ in shapes)]
    classes = classifier.classes_
    chained = all(into == before for (_, into), before in zip(shapes, widths[:-1], strict=True))
    chained = chained and widths[-1] == len(classes) if shapes else votes
    different = len(set(classes.tolist())) == len(classes) >= 2
    if not chained or not different:
        raise UsageError(
            f"{folder / FACTS} must chain its layers from features to different classes; "
            f"got {str(shapes)[:200]} for {len(classes)}."
        )


def _read_tensors(path: Path, data: bytes) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return dict(load(data))
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError):
        raise UsageError(f"{path} must be a safetensors file; it is damaged.") from None


def _layers(
    path: Path, tensors: Mapping[str, torch.Tensor], shapes: list[tuple[int, int]]
) -> list[tuple[Any, Any]]:
    layers = []
    for place, (out, into) in enumerate(shapes):
        pair = []
        for name, shape in ((f"{place}.weight", (out, into)), (f"{place}.bias", (out,))):
            tensor = tensors.get(name)
            if tensor is None or tuple(tensor.shape) != shape or tensor.dtype != torch.float64:
                raise UsageError(f"{path} must hold {name} of shape {shape} in float64.")
            if not bool(torch.isfinite(tensor).all()):
                raise UsageError(f"{path} must hold finite numbers; {name} does not.")
            pair.append(tensor.numpy().copy())
        layers.append((pair[0], pair[1]))
    return layers
