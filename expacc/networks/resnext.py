"""ResNeXt-29 for CIFAR: Xie et al. 2017, Section 5.3, arXiv 1611.05431."""

from torch import nn

from expacc.networks.resnet import shortcut
from expacc.networks.start import Pooled, Residual, conv_norm

_STEM, _OUT = 64, 256  # channels of the stem, and behind the first stage


def resnext29(cardinality: int, width: int, classes: int = 10, channels: int = 3) -> nn.Module:
    """Three stages of three blocks, whose middle convolution is in groups.

    Args:
        cardinality: how many groups.
        width: channels of a group in the first stage.
        classes: how many logits.
        channels: of the pictures.
    """
    blocks: list[nn.Module] = []
    into = _STEM
    for stage in range(3):
        inner, out = cardinality * width * 2**stage, _OUT * 2**stage
        for block in range(3):
            stride = 2 if stage and not block else 1
            branch = nn.Sequential(
                conv_norm(into, inner, 1),
                conv_norm(inner, inner, 3, stride, cardinality),
                conv_norm(inner, out, 1, relu=False),
            )
            blocks.append(Residual(branch, shortcut(into, out, stride)))
            into = out
    return Pooled(conv_norm(channels, _STEM), *blocks, width=into, classes=classes)
