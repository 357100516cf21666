"""Tensors and plain values in one safetensors file that is replaced at once or not at all.

Tensors are stored under readable names ("model/0.weight"), everything else as JSON in the file's
header. Reading such a file executes nothing, whoever wrote it.
"""

import importlib.util
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from expacc.files import check_plain, replace_file

__all__ = ["load_state", "require_safetensors", "save_state"]

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
