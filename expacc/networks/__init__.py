"""Networks for pictures, small and readable: one file a family, the papers' numbers of weights.

All take pictures of any size from 8 pixels and any number of channels, and give logits; batch
norms' statistics are all that changes beside the weights.
"""

from collections.abc import Callable, Mapping
from functools import partial

from torch import nn

from expacc.errors import check_choice, check_count
from expacc.networks.fast_cnn import FastCNN
from expacc.networks.m3cnn import M3CNN
from expacc.networks.resnet import preact_resnet18, resnet
from expacc.networks.resnet9 import ResNet9
from expacc.networks.resnet_cifar import resnet_cifar
from expacc.networks.resnext import resnext29
from expacc.networks.shufflenet import ShuffleNetV2
from expacc.networks.wide_resnet import WideResNet

__all__ = ["NAMES", "FastCNN", "get"]

_MADE: Mapping[str, Callable[[int, int], nn.Module]] = {
    "fast_cnn": FastCNN,
    "resnet9": ResNet9,
    "m3cnn": M3CNN,
    "wrn-16-4": partial(WideResNet, 16, 4),
    "wrn-16-8": partial(WideResNet, 16, 8),
    "wrn-28-10": partial(WideResNet, 28, 10),
    "resnet20": partial(resnet_cifar, 20),
    "resnet32": partial(resnet_cifar, 32),
    "resnet44": partial(resnet_cifar, 44),
    "resnet110": partial(resnet_cifar, 110),
    "resnet18": partial(resnet, 18),
    "resnet34": partial(resnet, 34),
    "resnet50": partial(resnet, 50),
    "resnet101": partial(resnet, 101),
    "preact_resnet18": preact_resnet18,
    "resnext29-2x64d": partial(resnext29, 2, 64),
    "resnext29-8x64d": partial(resnext29, 8, 64),
    "shufflenet_v2": ShuffleNetV2,
    # For pictures of 224 pixels:
    "resnet18-large": partial(resnet, 18, large=True),
    "resnet34-large": partial(resnet, 34, large=True),
    "resnet50-large": partial(resnet, 50, large=True),
    "resnet101-large": partial(resnet, 101, large=True),
    "shufflenet_v2-large": partial(ShuffleNetV2, large=True),
    "resnext50-large": partial(resnet, 50, large=True, groups=32, group_width=4),
    "resnext101-large": partial(resnet, 101, large=True, groups=32, group_width=8),
}
NAMES = tuple(_MADE)
LEAST_SIZE = 8  # pixels of a side


def get(name: str, *, classes: int = 10, channels: int = 3) -> nn.Module:
    """Make a network by its name; its weights are drawn by torch's generator.

    Args:
        name: one of ``NAMES``.
        classes: how many logits it gives.
        channels: of the pictures: 3 for colour, 1 for grey.

    Returns:
        A module of (rows, channels, height, width) that returns logits (rows, classes).

    Raises:
        ValueError: there is no such network, or a number is below 1; says which.

    Example:
        >>> network = get("resnet20", classes=100)
        >>> sum(weight.numel() for weight in network.parameters())
        275572
    """
    check_choice("name", name, NAMES)
    check_count("classes", classes)
    check_count("channels", channels)
    return _MADE[name](classes, channels)
