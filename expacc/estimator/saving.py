"""A fitted classifier as a folder: safetensors and JSON, so nothing in it is executed."""

import json
import math
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

import expacc

__all__ = ["read_folder", "write_folder"]

FORMAT = 1
WEIGHTS, FACTS = "model.safetensors", "model.json"
LARGEST_FACTS, LARGEST_WEIGHTS = 64 << 20, 8 << 30  # bytes
_KINDS = {"U": str, "i": int, "u": int, "b": bool, "f": float}


def write_folder(classifier: Any, folder: Path) -> Path:
    """Write a fitted classifier; each file appears whole or not at all."""
    from safetensors.torch import save

    kind = _kind(classifier.classes_)
    facts = {
        "format": FORMAT,
        "class": type(classifier).__name__,
        "classes": {"kind": kind, "values": [_KINDS[kind](c) for c in classifier.classes_]},
        "features": int(classifier.n_features_in_),
        "feature_names": _names(classifier),
        "layers": [list(weight.shape) for weight, _ in classifier.layers_],
        "temperature": classifier.temperature_,
        "bend": classifier.bend_,
        "chosen": classifier.chosen_,
        "held_out": classifier.held_out_,
        "parameters": _parameters(classifier),
        "versions": {
            "expacc": expacc.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }
    tensors = {}
    for place, (weight, bias) in enumerate(classifier.layers_):
        tensors[f"{place}.weight"] = torch.from_numpy(np.ascontiguousarray(weight))
        tensors[f"{place}.bias"] = torch.from_numpy(np.ascontiguousarray(bias))
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / WEIGHTS, save(tensors))
    _replace(folder / FACTS, (json.dumps(facts, indent=1) + "\n").encode())
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
        value = list(value) if isinstance(value, tuple) else value
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            continue
        kept[name] = value
    return kept


def _replace(path: Path, data: bytes) -> None:
    fresh = path.with_name(path.name + ".part")
    with open(fresh, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)


def read_folder(cls: type, folder: Path) -> Any:
    """A classifier as ``write_folder`` left it, or a sentence that says what is wrong."""
    facts = _read_facts(folder / FACTS)
    classifier = cls()
    try:
        known = classifier.get_params(deep=False)
        parameters = {name: value for name, value in facts["parameters"].items() if name in known}
        if "hidden" in parameters:
            parameters["hidden"] = tuple(parameters["hidden"])
        classifier.set_params(**parameters)
        kind, values = facts["classes"]["kind"], facts["classes"]["values"]
        if kind not in _KINDS or not all(type(value) is _KINDS[kind] for value in values):
            raise ValueError("classes")
        classifier.classes_ = np.array(values)
        classifier.n_features_in_ = int(facts["features"])
        if facts["feature_names"] is not None:
            if len(facts["feature_names"]) != facts["features"]:
                raise ValueError("feature_names")
            classifier.feature_names_in_ = np.array(facts["feature_names"], dtype=object)
        classifier.temperature_ = float(facts["temperature"])
        if not (math.isfinite(classifier.temperature_) and classifier.temperature_ > 0):
            raise ValueError("temperature")
        classifier.bend_ = float(facts["bend"])
        if not 0 < classifier.bend_ <= 1:
            raise ValueError("bend")
        classifier.chosen_, classifier.held_out_ = dict(facts["chosen"]), dict(facts["held_out"])
        shapes = [(int(out), int(into)) for out, into in facts["layers"]]
    except (KeyError, TypeError, ValueError, AttributeError) as wrong:
        raise ValueError(
            f"{folder / FACTS} must be as AccuracyClassifier.save wrote it; {wrong} is not. "
            "Save the classifier again."
        ) from None
    _check_shapes(shapes, classifier, folder)
    classifier.layers_ = _read_weights(folder / WEIGHTS, shapes)
    return classifier


def _read_facts(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path.parent} must hold {FACTS}, as AccuracyClassifier.save writes it.")
    if path.stat().st_size > LARGEST_FACTS:
        raise ValueError(f"{path} must be at most {LARGEST_FACTS} bytes; it is larger.")
    try:
        facts = json.loads(path.read_bytes())
        version = facts["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{path} must be JSON with a format number; it is damaged.") from None
    if version != FORMAT:
        raise ValueError(
            f"{path} must be of format {FORMAT}; it is of {version!r}. "
            "Use the version of expacc that wrote it, or a newer one."
        )
    return dict(facts)


def _check_shapes(shapes: list[tuple[int, int]], classifier: Any, folder: Path) -> None:
    widths = [classifier.n_features_in_, *(out for out, _ in shapes)]
    chained = bool(shapes) and all(
        into == before for (_, into), before in zip(shapes, widths[:-1], strict=True)
    )
    if not chained or widths[-1] != len(classifier.classes_) or len(classifier.classes_) < 2:
        raise ValueError(
            f"{folder / FACTS} must chain its layers from features to classes; got {shapes}."
        )


def _read_weights(path: Path, shapes: list[tuple[int, int]]) -> list[tuple[Any, Any]]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    if not path.is_file():
        raise ValueError(f"{path.parent} must hold {WEIGHTS}; it does not.")
    if path.stat().st_size > LARGEST_WEIGHTS:
        raise ValueError(f"{path} must be at most {LARGEST_WEIGHTS} bytes; it is larger.")
    try:
        tensors = load(path.read_bytes())
    except (SafetensorError, ValueError, KeyError, TypeError):
        raise ValueError(f"{path} must be a safetensors file; it is damaged.") from None
    layers = []
    for place, (out, into) in enumerate(shapes):
        pair = []
        for name, shape in ((f"{place}.weight", (out, into)), (f"{place}.bias", (out,))):
            tensor = tensors.get(name)
            if tensor is None or tuple(tensor.shape) != shape or tensor.dtype != torch.float64:
                raise ValueError(f"{path} must hold {name} of shape {shape} in float64.")
            if not bool(torch.isfinite(tensor).all()):
                raise ValueError(f"{path} must hold finite numbers; {name} does not.")
            pair.append(tensor.numpy().copy())
        layers.append((pair[0], pair[1]))
    return layers
