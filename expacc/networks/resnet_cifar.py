"""The thin residual networks for CIFAR of He et al. 2016, Section 4.2: 16, 32 and 64 channels."""

from torch import Tensor, nn

from expacc.networks.start import Pooled, Residual, conv_norm

_WIDTHS = (16, 32, 64)


def resnet_cifar(depth: int, classes: int = 10, channels: int = 3) -> nn.Module:
    """A stem, three stages of blocks of two convolutions, and a linear layer: 20, 32, 44 … 110."""
    blocks: list[nn.Module] = []
    into = _WIDTHS[0]
    for out in _WIDTHS:
        for _ in range((depth - 2) // 6):
            stride = out // into
            branch = nn.Sequential(conv_norm(into, out, 3, stride), conv_norm(out, out, relu=False))
            blocks.append(Residual(branch, _Padded(out - into, stride)))
            into = out
    return Pooled(conv_norm(channels, _WIDTHS[0]), *blocks, width=into, classes=classes)


class _Padded(nn.Module):
    """Option A: every second pixel, and zeros in the new channels, half of them on either side."""

    def __init__(self, more: int, stride: int) -> None:
        super().__init__()
        self.more, self.stride = more, stride

    def forward(self, x: Tensor) -> Tensor:
        if not self.more:
            return x
        thin = x[:, :, :: self.stride, :: self.stride]
        return nn.functional.pad(thin, (0, 0, 0, 0, self.more // 2, self.more // 2))
