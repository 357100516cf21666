"""Wide residual networks: Zagoruyko and Komodakis 2016, arXiv 1605.07146."""

from torch import Tensor, nn

from expacc.networks.start import Pooled, conv

_START = 16  # channels, before they are widened


class WideResNet(Pooled):
    """Three stages of pre-activated blocks, 16, 32 and 64 channels times the widening factor.

    Args:
        depth: 6 blocks a stage and 4 layers more: 16, 22, 28, 40.
        factor: how much wider than a thin one.
        classes: how many logits.
        channels: of the pictures.
    """

    def __init__(self, depth: int, factor: int, classes: int = 10, channels: int = 3) -> None:
        blocks: list[nn.Module] = []
        into = _START
        for stage in range(3):
            out = _START * 2**stage * factor
            for block in range((depth - 4) // 6):
                blocks.append(PreActivated(into, out, 2 if stage and not block else 1))
                into = out
        end = (nn.BatchNorm2d(into), nn.ReLU(inplace=True))
        super().__init__(conv(channels, _START), *blocks, *end, width=into, classes=classes)


class PreActivated(nn.Module):
    """Norm, ReLU and convolution, twice; where the width changes the shortcut is activated, too."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(into)
        self.first = conv(into, out, 3, stride)
        self.rest = nn.Sequential(nn.BatchNorm2d(out), nn.ReLU(inplace=True), conv(out, out))
        self.shortcut = None if (into, stride) == (out, 1) else conv(into, out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Features in, features out."""
        active = nn.functional.relu(self.norm(x), inplace=True)
        kept = x if self.shortcut is None else self.shortcut(active)
        return self.rest(self.first(active)) + kept  # type: ignore[no-any-return]
