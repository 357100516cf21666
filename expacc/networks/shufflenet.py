"""ShuffleNetV2 1×: Ma et al. 2018, Table 5, arXiv 1807.11164, for small pictures and large."""

import torch
from torch import Tensor, nn

from expacc.networks.resnet import large_stem
from expacc.networks.start import Pooled, conv, conv_norm

_STEM, _LAST = 24, 1024
_STAGES = ((116, 4), (232, 8), (464, 4))  # channels, and units


class ShuffleNetV2(Pooled):
    """Units that split their channels in two, work on a half, and shuffle them.

    Args:
        classes: how many logits.
        channels: of the pictures.
        large: for pictures of 224 pixels.
    """

    def __init__(self, classes: int = 10, channels: int = 3, *, large: bool = False) -> None:
        units: list[nn.Module] = []
        into = _STEM
        for out, count in _STAGES:
            units += [_Unit(into, out), *(_Unit(out, out) for _ in range(count - 1))]
            into = out
        stem = large_stem(channels, _STEM, 3) if large else [conv_norm(channels, _STEM)]
        super().__init__(*stem, *units, conv_norm(into, _LAST, 1), width=_LAST, classes=classes)


class _Unit(nn.Module):
    """With a new width it halves the size, and both halves of the channels are worked on."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        self.split, half = into == out, out // 2
        stride, enters = (1, half) if self.split else (2, into)
        self.branch = nn.Sequential(
            conv_norm(enters, half, 1), *_depthwise(half, stride), conv_norm(half, half, 1)
        )
        if not self.split:
            self.shortcut = nn.Sequential(*_depthwise(into, 2), conv_norm(into, half, 1))

    def forward(self, x: Tensor) -> Tensor:
        if self.split:
            kept, worked = x.chunk(2, dim=1)
        else:
            kept, worked = self.shortcut(x), x
        both = torch.stack([kept, self.branch(worked)], dim=2)
        return both.flatten(1, 2)  # their channels take turns


def _depthwise(width: int, stride: int) -> tuple[nn.Module, nn.Module]:
    return conv(width, width, 3, stride, width), nn.BatchNorm2d(width)
