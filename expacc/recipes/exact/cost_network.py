"""Wide ResNets, which the EXACT paper holds its cost against."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["WideResNet", "images"]


class _Block(nn.Module):
    """Two 3×3 convolutions, each after normalisation and ReLU, and a way around them."""

    def __init__(self, channels: int, wider: int, stride: int) -> None:
        super().__init__()
        self.first_norm, self.second_norm = nn.BatchNorm2d(channels), nn.BatchNorm2d(wider)
        self.first = nn.Conv2d(channels, wider, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(wider, wider, 3, padding=1, bias=False)
        changes = stride > 1 or channels != wider
        self.around = nn.Conv2d(channels, wider, 1, stride, bias=False) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        ready = F.relu(self.first_norm(x))
        out: Tensor = self.second(F.relu(self.second_norm(self.first(ready))))
        return out + (x if self.around is None else self.around(ready))


class WideResNet(nn.Module):
    """WRN-depth-width for images of 32 × 32 pixels (Zagoruyko and Komodakis, 2016).

    Args:
        depth: 6 n + 4.
        width: by which the channels 16, 32, 64 are multiplied.
        classes: of the last layer.
    """

    def __init__(self, depth: int, width: int, classes: int) -> None:
        super().__init__()
        channels, parts = 16, []
        for group in range(3):
            wider = 16 * 2**group * width
            for place in range((depth - 4) // 6):
                parts.append(_Block(channels, wider, stride=2 if group and not place else 1))
                channels = wider
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.blocks, self.norm = nn.Sequential(*parts), nn.BatchNorm2d(channels)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of images (rows, 3, 32, 32)."""
        features = F.relu(self.norm(self.blocks(self.stem(x)))).mean((2, 3))
        logits: Tensor = self.head(features)
        return logits


def images(rows: int, device: str) -> Tensor:
    """Noise in the shape of CIFAR's images."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, 3, 32, 32, generator=generator).to(device)
