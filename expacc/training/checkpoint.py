"""What a training run must remember, and its return from a file that may be anyone's.

It is one safetensors file that is replaced at once or not at all: tensors under readable names
("model/0.weight"), everything else as JSON in the file's header. Reading such a file executes
nothing, whoever wrote it.
"""

import importlib.util
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from expacc.files import check_plain, replace_file

VERSION = 1
HEADER = "expacc"


def require_safetensors() -> None:
    """Raise unless the package that reads and writes the files is there."""
    if importlib.util.find_spec("safetensors") is None:
        raise ImportError(
            "checkpoint needs the package safetensors, which is not installed. "
            "Use pip install safetensors."
        )


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write a tree of dicts, lists, tuples, tensors, numbers, texts and None.

    The file at ``path`` is the old one or the new one at every moment, also if the process is
    killed or the power fails.

    Raises:
        TypeError: the tree holds something else.
        ImportError: the package safetensors is missing.
        OSError: the disk is full, the folder read-only or the like.
    """
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {}
    tree = _encode(state, "", tensors)
    header = json.dumps({"version": VERSION, "state": tree}, allow_nan=False)
    replace_file(path, lambda part: save_file(_apart(tensors), part, {HEADER: header}))


def load_state(
    path: Path, accept: Callable[[dict[str, Any]], object] | None = None
) -> dict[str, Any]:
    """Read what ``save_state`` wrote; the tensors are on the CPU.

    Args:
        path: of the file.
        accept: is given the state with tensors that have a shape and no memory; what it does not
            raise for is read. A file can claim any size.

    Raises:
        ValueError: the file is damaged, of another kind or of another version.
        ImportError: the package safetensors is missing.
        OSError: there is no such file, or it cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    check_plain(path)  # a pipe would be waited for
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            tree = _read_tree(path, (file.metadata() or {}).get(HEADER))
            names = {name: name for name in file.keys()}  # noqa: SIM118 - no mapping
            if accept is not None:
                accept(_state(path, tree, lambda name: _outline(file, names[name])))
            # Copies: a mapped file must not change under a running optimiser, nor be changed by it.
            return _state(path, tree, lambda name: _whole(file, names[name]))
    except (SafetensorError, RuntimeError) as error:  # the latter: more than memory can map
        raise _unreadable(path, f"{error}"[:300]) from None


def _outline(file: Any, name: str) -> Tensor:
    part = file.get_slice(name)
    shape = part.get_shape()
    kind = (part[:0] if shape else file.get_tensor(name)).dtype
    return torch.empty(shape, dtype=kind, device="meta")


def _whole(file: Any, name: str) -> Tensor:
    found: Tensor = file.get_tensor(name).clone()
    return found


def _read_tree(path: Path, text: str | None) -> Any:
    """What stands in the header in place of the state."""
    if text is None:
        raise _unreadable(path, f"a safetensors file without the header {HEADER!r}")
    try:
        header = json.loads(text)
        version, tree = header["version"], header["state"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _unreadable(path, f"a header that breaks off with {error!r}"[:200]) from None
    if version != VERSION:
        raise ValueError(
            f"checkpoint {path} must have version {VERSION}; got {version!r:.20}. "
            f"Read it with the expacc that wrote it, or start anew with resume=False."
        )
    return tree


def _state(path: Path, tree: Any, tensor: Callable[[Any], Tensor]) -> dict[str, Any]:
    try:
        state = _decode(tree, tensor)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unreadable(path, f"a header that breaks off with {error!r}"[:200]) from None
    if not isinstance(state, dict):
        raise _unreadable(path, f"a header with a {type(state).__name__} in it")
    return state


def _unreadable(path: Path, got: str) -> ValueError:
    return ValueError(
        f"checkpoint {path} must be a complete file that expacc wrote; got: {got.rstrip('.')}. "
        f"Delete it, or start anew with resume=False."
    )


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that share no memory, as the format wants: tied weights are written twice."""
    seen: set[int] = set()
    result = {}
    for name, tensor in tensors.items():
        place = tensor.untyped_storage().data_ptr()
        result[name] = tensor.clone() if place in seen else tensor
        seen.add(place)
    return result


def _encode(value: object, path: str, tensors: dict[str, Tensor]) -> object:
    """JSON in which every dict has one key, the kind: no value can be taken for another."""

    def inner(key: object, item: object) -> object:
        return _encode(item, f"{path}/{key}" if path else str(key), tensors)

    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": str(value)}
    if type(value) in (Tensor, torch.nn.Parameter) and value.layout == torch.strided:  # type: ignore[attr-defined]
        tensors[path] = value.detach().cpu().contiguous()  # type: ignore[attr-defined]
        return {"tensor": path}
    if isinstance(value, list):
        return [inner(index, item) for index, item in enumerate(value)]
    if isinstance(value, tuple):
        return {"tuple": [inner(index, item) for index, item in enumerate(value)]}
    if isinstance(value, dict) and all(type(key) in (str, int) for key in value):
        kind = "counter" if isinstance(value, Counter) else "dict"  # torch's MultiStepLR counts
        return {kind: [[key, inner(key, item)] for key, item in value.items()]}
    raise TypeError(
        f"{path or 'state'} must consist of tensors, numbers, texts, lists and dicts to be saved; "
        f"got {type(value).__name__}."
    )


def _pairs(items: Iterable[Any], tensor: Callable[[Any], Tensor]) -> dict[Any, Any]:
    return {key: _decode(item, tensor) for key, item in items}


def _decode(value: Any, tensor: Callable[[Any], Tensor]) -> Any:
    if isinstance(value, list):
        return [_decode(item, tensor) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    match kind:
        case "tensor":
            return tensor(content)
        case "float" if content in ("nan", "inf", "-inf"):
            return float(content)
        case "tuple":
            return tuple(_decode(item, tensor) for item in content)
        case "dict":
            return _pairs(content, tensor)
        case "counter":
            return Counter(_pairs(content, tensor))
    raise KeyError(kind)


FILE = "checkpoint.safetensors"
MOST_NUMBERS = 1 << 20  # of a tensor that is no weight: a schedule, a count


@dataclass(frozen=True)
class EpochRecord:
    """What an epoch came to.

    Attributes:
        epoch: its number, from 1.
        loss: the mean training loss over its rows, as the weights changed.
        accuracy: the share of its training rows that were right at their turn.
        validation_loss: on the validation loader at the end of the epoch; None without one.
        validation_accuracy: likewise.
        seconds: wall time, validation included.
        watched: name → accuracy on what ``fit`` was asked to watch.
    """

    epoch: int
    loss: float
    accuracy: float
    validation_loss: float | None
    validation_accuracy: float | None
    seconds: float
    watched: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Position:
    """How far a run is.

    Attributes:
        epoch: epochs that are complete.
        step: optimiser steps done in the epoch after those.
        seconds: spent on that epoch.
        sums: its loss, correct, counted and rows so far; None at its start.
        history: the complete epochs.
        best: the weights of the best epoch, where they are wanted.
    """

    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    sums: Tensor | None = None
    history: list[EpochRecord] = field(default_factory=list)
    best: dict[str, Any] | None = None

    def best_epoch(self) -> int | None:
        """The first epoch with the highest validation accuracy; None without validation."""
        scored = [record for record in self.history if record.validation_accuracy is not None]
        if not scored:
            return None
        return max(scored, key=lambda r: (r.validation_accuracy or 0.0, -r.epoch)).epoch


class RunCheckpoint:
    """The parts of a run that have a state, saved together.

    Args:
        folder: where the file is.
        identity: what must be equal for two runs to be the same run, by name.
        parts: everything with ``state_dict`` and ``load_state_dict``, by name.
    """

    def __init__(self, folder: Path, identity: dict[str, Any], parts: dict[str, Any]) -> None:
        self.path = folder / FILE
        self._identity, self._parts = identity, parts

    def prepare(self) -> None:
        """Make the folder and ask for the package now, not after the first hours of training."""
        require_safetensors()
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def save(self, position: Position) -> None:
        """Replace the file."""
        state: dict[str, Any] = {name: part.state_dict() for name, part in self._parts.items()}
        state["identity"] = self._identity
        history = [asdict(record) for record in position.history]
        state["position"] = {**vars(position), "history": history}
        save_state(self.path, state)

    def load(self) -> Position | None:
        """Set all parts as they were; None if there is no file.

        Raises:
            ValueError: the file is damaged, or of another run.
        """
        if check_plain(self.path) is None:
            return None
        state = load_state(self.path, self._accept)
        try:
            for name, part in self._parts.items():
                part.load_state_dict(state[name])
            return _position(state["position"])
        except Exception as error:
            raise self._refused(error) from None

    def _accept(self, outline: dict[str, Any]) -> None:
        """Raise unless a state of these shapes can be of this run, before any of it is read."""
        try:
            self._compare(outline)
        except Exception as error:
            raise self._refused(error) from None

    def _refused(self, error: Exception) -> ValueError:
        """The parts complain in many ways about a state that is not theirs."""
        first = (str(error).strip().splitlines() or [""])[0][:300]
        reason = first if isinstance(error, _Mismatch) else f"{type(error).__name__}: {first}"
        return ValueError(
            f"checkpoint {self.path} must come from this same run; got {reason.rstrip('.')}. "
            f"Give another folder, or start anew with resume=False."
        )

    def _compare(self, state: dict[str, Any]) -> None:
        """Raise unless the state can belong to this run; nothing is changed yet."""
        for name, here in self._identity.items():
            there = state["identity"].get(name)
            if there != here:
                raise _Mismatch(f"{name} {there!r} there and {here!r} here")
        _compare_names("part", {*self._parts, "identity", "position"}, set(state))
        for name, part in self._parts.items():
            saved = state[name]
            if not isinstance(saved, dict):
                raise _Mismatch(f"{type(saved).__name__} as state of the {name}")
            if isinstance(part, nn.Module):
                _compare_weights(name, part.state_dict(), saved)
            elif isinstance(part, Optimizer):
                _compare_optimizer(part, saved)
            else:  # a scheduler takes every name as an attribute: none may hide a method
                _compare_names(f"number of the {name}", set(part.state_dict()), set(saved))
                _check_small(name, saved)
        best = state["position"]["best"]
        if best is not None:
            _compare_weights("best", self._parts["model"].state_dict(), best)
        _check_small("position", {**state["position"], "best": None})


class _Mismatch(Exception):
    """Two states that cannot belong to one run."""


def _position(saved: dict[str, Any]) -> Position:
    history = [EpochRecord(**record) for record in saved.pop("history")]
    position = Position(**saved, history=history)
    if not (type(position.epoch) is int and type(position.step) is int):
        raise _Mismatch("a position that is not a number")
    if min(position.epoch, position.step) < 0 or len(history) != position.epoch:
        raise _Mismatch(f"epoch {position.epoch} with {len(history)} records")
    if position.sums is not None and position.sums.shape != (4,):
        raise _Mismatch(f"sums of shape {tuple(position.sums.shape)}")
    return position


def _compare_names(what: str, here: set[str], there: set[str]) -> None:
    different = sorted(map(str, here ^ there))
    if different:
        raise _Mismatch(f"{what} {different[0]!r} on one side only")


def _check_small(name: str, value: object) -> None:
    """Raise for tensors of a size that nothing but weights has."""
    if isinstance(value, Tensor) and value.numel() > MOST_NUMBERS:
        raise _Mismatch(f"a tensor of {value.numel():,} numbers as state of the {name}")
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            _check_small(name, part)


def _compare_weights(name: str, here: dict[str, Any], there: dict[str, Any]) -> None:
    _compare_names(name, set(here), set(there))
    for key, value in here.items():
        if not isinstance(value, Tensor):
            _check_small(name, there[key])
            continue
        saved = there[key]
        if not isinstance(saved, Tensor):
            raise _Mismatch(f"{type(saved).__name__} as {name} {key!r}")
        if (saved.shape, saved.dtype) != (value.shape, value.dtype):
            raise _Mismatch(
                f"{name} {key!r} of shape {tuple(saved.shape)}, {saved.dtype} there and "
                f"{tuple(value.shape)}, {value.dtype} here"
            )


def _compare_optimizer(optimizer: Optimizer, saved: dict[str, Any]) -> None:
    """Groups with the same keys, and states that a parameter of this shape can have."""
    groups = optimizer.state_dict()["param_groups"]
    if [set(group) for group in groups] != [set(group) for group in saved["param_groups"]]:
        raise _Mismatch("other parameter groups in the optimizer")
    _check_small("optimizer's groups", saved["param_groups"])
    shapes = [p.shape for group in optimizer.param_groups for p in group["params"]]
    for index, state in saved["state"].items():
        for key, value in state.items():
            if isinstance(value, Tensor) and not _spreads(value, shapes[index]):
                raise _Mismatch(
                    f"optimizer {key!r} of shape {tuple(value.shape)} for a parameter of shape "
                    f"{tuple(shapes[index])}"
                )


def _spreads(value: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether the value can be broadcast to the shape: momentum, a count, a factored moment."""
    try:
        value.expand(shape)
    except RuntimeError:
        return False
    return True
