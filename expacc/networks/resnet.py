"""The wide family of residual networks, of 64 to 512 channels, for small pictures and for large.

He et al. 2016, Table 1, and ResNeXt of Xie et al. 2017; for 32 pixels with a 3×3 convolution in
place of the 7×7 one and its pooling, as is usual; and PreAct ResNet-18 of He et al. 2016b.
"""

from collections.abc import Callable, Iterator
from functools import partial

from torch import nn

from expacc.networks.start import Pooled, Residual, conv, conv_norm
from expacc.networks.wide_resnet import PreActivated

_BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
_WIDTHS = (64, 128, 256, 512)
_EXPANSION = 4  # of a bottleneck's width

Made = Callable[[int, int, int], nn.Module]  # of channels in, width, stride


def resnet(
    depth: int,
    classes: int = 10,
    channels: int = 3,
    *,
    large: bool = False,
    groups: int = 1,
    group_width: int = 64,
) -> nn.Module:
    """ResNet-18, -34, or with bottlenecks -50, -101.

    Args:
        depth: one of those.
        classes: how many logits.
        channels: of the pictures.
        large: for pictures of 224 pixels, as ImageNet's.
        groups: of the middle convolution of a bottleneck; ResNeXt has 32.
        group_width: channels of a group, in the first stage.
    """
    bottleneck = partial(_bottleneck, groups=groups, scale=groups * group_width / _WIDTHS[0])
    made, expansion = (_basic, 1) if depth < 50 else (bottleneck, _EXPANSION)
    blocks = _stages(made, _BLOCKS[depth], expansion)
    width = _WIDTHS[-1] * expansion
    stem = large_stem(channels, _WIDTHS[0], 7) if large else [conv_norm(channels, _WIDTHS[0])]
    return Pooled(*stem, *blocks, width=width, classes=classes)


def preact_resnet18(classes: int = 10, channels: int = 3) -> nn.Module:
    """ResNet-18 with norm and ReLU before every convolution, and none before the mean."""
    blocks = _stages(PreActivated, _BLOCKS[18], 1)
    return Pooled(conv(channels, _WIDTHS[0]), *blocks, width=_WIDTHS[-1], classes=classes)


def large_stem(channels: int, width: int, kernel: int) -> list[nn.Module]:
    """What makes 56 pixels of 224."""
    return [conv_norm(channels, width, kernel, 2), nn.MaxPool2d(3, 2, 1)]


def _stages(made: Made, counts: tuple[int, ...], expansion: int) -> Iterator[nn.Module]:
    into = _WIDTHS[0]
    for stage, (width, count) in enumerate(zip(_WIDTHS, counts, strict=True)):
        for block in range(count):
            yield made(into, width, 2 if stage and not block else 1)
            into = width * expansion


def _basic(into: int, width: int, stride: int) -> nn.Module:
    branch = nn.Sequential(conv_norm(into, width, 3, stride), conv_norm(width, width, relu=False))
    return Residual(branch, shortcut(into, width, stride))


def _bottleneck(into: int, width: int, stride: int, *, groups: int, scale: float) -> nn.Module:
    inner, out = round(width * scale), width * _EXPANSION
    branch = nn.Sequential(
        conv_norm(into, inner, 1),
        conv_norm(inner, inner, 3, stride, groups),
        conv_norm(inner, out, 1, relu=False),
    )
    return Residual(branch, shortcut(into, out, stride))


def shortcut(into: int, out: int, stride: int) -> nn.Module:
    """The input itself, or where its shape changes its projection."""
    if (into, stride) == (out, 1):
        return nn.Identity()
    return conv_norm(into, out, 1, stride, relu=False)
