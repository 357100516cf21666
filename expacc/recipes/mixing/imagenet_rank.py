"""One run of mixing-imagenet, in a process of its own or as one of torchrun's.

torchrun --standalone --nproc-per-node=8 imagenet_rank.py ask.json result.json
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset, Subset

from expacc import networks
from expacc.files import write_whole
from expacc.recipes.sweep import Ask
from expacc.recipes.vision.train import falling, loss_of, optimizer_of
from expacc.training import fit
from expacc.training.loaders import find_device, find_ranks
from expacc.training.randomness import seed_of

_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_AREA, _SHAPE = (0.08, 1.0), (3 / 4, 4 / 3)  # of random crops
_TRIES = 10
_WHOLE = 256 / 224  # a test picture's shorter side, over that of its central crop


def pictures_of(folder: Path, rows: int | None = None) -> list[tuple[str, int]]:
    """Files of a folder of class folders with their class, or so many of them, evenly."""
    classes = sorted(one.name for one in folder.iterdir() if one.is_dir())
    whole = [
        (str(path), number)
        for number, name in enumerate(classes)
        for path in sorted((folder / name).iterdir())
        if path.is_file() and not path.name.startswith(".")
    ]
    step = 1 if rows is None else max(1, len(whole) // rows)
    return whole[::step][:rows]


class Pictures(Dataset[tuple[Tensor, int]]):
    """Pictures that are decoded when they are asked for.

    Args:
        files: with their classes.
        size: pixels of a side.
        training: crop and flip at random, by torch's global generator.
    """

    def __init__(self, files: list[tuple[str, int]], size: int, *, training: bool) -> None:
        self._files, self._size, self._training = files, size, training

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        import numpy as np
        from PIL import Image

        path, label = self._files[row]
        try:
            with Image.open(path) as image:
                image.draft("RGB", (2 * self._size, 2 * self._size))
                shown = image.convert("RGB")
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise ValueError(f"{path} must be a picture; it cannot be read: {error}.") from None
        box = self._random_box(*shown.size) if self._training else self._middle(*shown.size)
        cut = shown.resize((self._size, self._size), Image.Resampling.BILINEAR, box)
        found = torch.from_numpy(np.array(cut)).permute(2, 0, 1).float() / 255
        if self._training and torch.rand(()) < 0.5:
            found = found.flip(-1)
        mean, deviation = (torch.tensor(one).view(3, 1, 1) for one in (_MEAN, _DEVIATION))
        return (found - mean) / deviation, label

    def _middle(self, width: int, height: int) -> tuple[float, float, float, float]:
        side = min(width, height) / _WHOLE
        left, top = (width - side) / 2, (height - side) / 2
        return left, top, left + side, top + side

    def _random_box(self, width: int, height: int) -> tuple[float, float, float, float]:
        """A crop of random area and shape; the largest square if none fits."""
        for _ in range(_TRIES):
            area, shape, x, y = torch.rand(4).tolist()
            area = width * height * (_AREA[0] + area * (_AREA[1] - _AREA[0]))
            low, high = (math.log(one) for one in _SHAPE)
            shape = math.exp(low + shape * (high - low))
            wide, tall = math.sqrt(area * shape), math.sqrt(area / shape)
            if wide <= width and tall <= height:
                left, top = x * (width - wide), y * (height - tall)
                return left, top, left + wide, top + tall
        side = min(width, height)
        left, top = (width - side) / 2, (height - side) / 2
        return left, top, left + side, top + side


def train(ask: Ask) -> dict[str, Any]:
    """Train, test on all ranks together, and give what the row keeps."""
    device = find_device(ask["device"])
    ranks = find_ranks(device)
    root, size = Path(ask["folder"]), ask["size"]
    training = pictures_of(root / "train", ask["rows"])
    testing = pictures_of(root / "val", ask["test_rows"])
    how: dict[str, Any] = {"num_workers": ask["readers"], "pin_memory": device.type == "cuda"}
    shuffled = DataLoader(
        Pictures(training, size, training=True), ask["batch"], shuffle=True, **how
    )
    seed = seed_of(ask["seed"], f"imagenet/{ask['repeat']}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = networks.get(ask["network"], classes=ask["classes"])
    network.to(device)
    optimizer = optimizer_of("sgd", network, ask["rate"], ask["weight_decay"])
    half = device.type == "cuda"
    result = fit(
        network,
        shuffled,
        loss_of(ask["loss"], ask["epochs"]),
        epochs=ask["epochs"],
        optimizer=optimizer,
        scheduler=LambdaLR(optimizer, falling(ask, ask["rate"])),
        device=device,
        precision="bfloat16" if half else "float32",
        channels_last=True,
        checkpoint=ask["checkpoint"],
        seed=seed,
        progress=False,
    )
    own = Subset(
        Pictures(testing, size, training=False), range(ranks.rank, len(testing), ranks.world)
    )
    correct = torch.zeros((), device=device)
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=half):
        for inputs, labels in DataLoader(own, ask["batch"], **how) if len(own) else ():
            correct += (network(inputs.to(device)).argmax(1) == labels.to(device)).sum()
    accuracies = [one.accuracy for one in result.history]
    return {
        "leads": ranks.leads,
        "accuracy": float(ranks.sum(correct)) / len(testing),
        "train_accuracy": accuracies,
        "train_loss": [one.loss for one in result.history],
    }


if __name__ == "__main__":
    found = train(json.loads(Path(sys.argv[1]).read_text()))
    if found["leads"]:
        write_whole(Path(sys.argv[2]), json.dumps(found))
