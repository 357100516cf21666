"""Networks that vote, in the files of a saved classifier: what to write, what to check."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from expacc.estimator.columns import Columns
from expacc.estimator.committee import Committee, Members
from expacc.estimator.radial import Radial
from expacc.files import Between
from expacc.plain import UsageError

COUNT = Between(1)
SHAPE = {
    "columns": {str: Between(0)},
    "members": [
        {"pieces": bool, "shapes": [[COUNT, COUNT, COUNT]], "votes?": COUNT, "radial?": bool}
    ],
    "levels": {str: list},
}
WHOLE = ("numbers", "valued", "missing", "pieced")  # columns, by their place


def committee_facts(committee: Committee, levels: Mapping[int, Any]) -> dict[str, Any]:
    """For JSON: how many of everything, and the values of categories."""
    return {
        "columns": {name: len(values) for name, values in committee.columns.tensors().items()},
        "members": [
            {
                "pieces": group.pieces,
                "shapes": [list(weight.shape) for weight in group.weights],
                "votes": group.votes,
                "radial": group.radial is not None,
            }
            for group in committee.members
        ],
        "levels": {str(place): _plain(values) for place, values in levels.items()},
    }


def _plain(values: Any) -> list[Any]:
    found = [value.item() if isinstance(value, np.generic) else value for value in values]
    for value in found:
        if type(value) not in (str, int, float, bool):
            raise TypeError(
                f"categories must be text, numbers or booleans to be saved; got {value!r:.60}."
            )
    return found


def committee_tensors(committee: Committee) -> dict[str, Tensor]:
    """For safetensors."""
    found = {
        f"columns.{name}": torch.from_numpy(np.ascontiguousarray(values))
        for name, values in committee.columns.tensors().items()
    }
    for number, group in enumerate(committee.members):
        parts = {str(place): weight for place, weight in enumerate(group.weights)}
        if group.radial is not None:
            parts |= {"factor": group.radial.factor, "center": group.radial.center}
        for name, part in parts.items():
            found[f"member.{number}.{name}"] = torch.from_numpy(np.ascontiguousarray(part))
    return found


def committee_bytes(facts: Mapping[str, Any]) -> int:
    """What their tensors take, at most."""
    counts = facts["columns"]
    inputs = sum(counts.get(name, 0) for name in WHOLE)
    weights = 0
    for each in facts["members"]:
        weights += sum(count * out * into for count, out, into in each["shapes"])
        if each.get("radial") and each["shapes"]:
            weights += inputs * each["shapes"][0][2]
    return int(4 * weights + 8 * sum(counts.values()))


def read_committee(
    facts: Mapping[str, Any], tensors: Mapping[str, Tensor], path: Path, features: int, classes: int
) -> tuple[Committee, dict[int, Any]]:
    """The networks and the values of categories, or a sentence that says what is wrong."""
    parts = {}
    for name in Columns.__dataclass_fields__:
        dtype = torch.int64 if name in WHOLE else torch.float64
        parts[name] = _tensor(
            tensors, f"columns.{name}", (facts["columns"].get(name),), dtype, path
        )
    for name in WHOLE:
        if len(parts[name]) and not 0 <= parts[name].min() <= parts[name].max() < features:
            raise UsageError(f"{path} must name columns below {features}; columns.{name} does not.")
    lengths = {name: len(values) for name, values in parts.items()}
    for whole, *others in (
        ("numbers", "center", "scale"),
        ("valued", "least", "most"),
        ("pieced", "low", "high"),
    ):
        if any(lengths[other] != lengths[whole] for other in others):
            raise UsageError(f"{path} must hold as many of {others} as of {whole}.")
    columns = Columns(**parts)
    members = []
    for number, each in enumerate(facts["members"]):
        into = columns.inputs if each["pieces"] else columns.plain
        weights: list[Any] = []
        radial = None
        if each.get("radial") and each["shapes"]:
            sizes, into = into, each["shapes"][0][2] - 1
            radial = Radial(
                *(
                    _tensor(tensors, f"member.{number}.{name}", shape, torch.float32, path)
                    for name, shape in (("factor", (sizes,)), ("center", (into, sizes)))
                )
            )
        for place, shape in enumerate(each["shapes"]):
            if shape[0] != each["shapes"][0][0] or shape[2] != into + 1:
                raise _misfit(path)
            name = f"member.{number}.{place}"
            weights.append(_tensor(tensors, name, tuple(shape), torch.float32, path))
            into = shape[1]
        if not weights or into != classes:
            raise _misfit(path)
        members.append(Members(each["pieces"], tuple(weights), radial, each.get("votes", 1)))
    if not members:
        raise _misfit(path)
    levels = {}
    for place, values in facts["levels"].items():
        if not place.isascii() or not place.isdigit() or int(place) >= features:
            raise _misfit(path)
        _plain(values)
        levels[int(place)] = np.array(values, dtype=object)
    return Committee(columns, tuple(members)), levels


def _misfit(path: Path) -> UsageError:
    return UsageError(f"{path} must chain networks from its columns to its classes. Save it again.")


def _tensor(
    tensors: Mapping[str, Tensor], name: str, shape: tuple[Any, ...], dtype: Any, path: Path
) -> Any:
    tensor = tensors.get(name)
    if tensor is None or tuple(tensor.shape) != shape or tensor.dtype != dtype:
        raise UsageError(f"{path} must hold {name} of shape {shape} in {dtype}.")
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        raise UsageError(f"{path} must hold finite numbers; {name} does not.")
    return tensor.numpy().copy()
