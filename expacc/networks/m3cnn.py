"""M3 of An et al. 2020, "An ensemble of simple CNN models for MNIST", arXiv 2008.10400.

EXACT trains it on MNIST.
"""

from itertools import pairwise

from torch import Tensor, nn

_WIDTHS = tuple(range(32, 177, 16))  # of ten convolutions
_SIDE = 8  # pixels that are left of 28


class M3CNN(nn.Sequential):
    """Ten convolutions of 3×3 without padding, 32 to 176 channels; a normed linear layer.

    Pictures of other sizes than 28 pixels are brought to 28 first.
    """

    def __init__(self, classes: int = 10, channels: int = 1) -> None:
        layers = [
            nn.Sequential(nn.Conv2d(into, out, 3, bias=False), nn.BatchNorm2d(out), nn.ReLU(True))
            for into, out in pairwise((channels, *_WIDTHS))
        ]
        super().__init__(
            _Sized(),
            *layers,
            nn.Flatten(),
            nn.Linear(_WIDTHS[-1] * _SIDE**2, classes, bias=False),
            nn.BatchNorm1d(classes),
        )


class _Sized(nn.Module):
    def forward(self, pictures: Tensor) -> Tensor:
        side = _SIDE + 2 * len(_WIDTHS)
        if pictures.shape[-2:] == (side, side):
            return pictures
        return nn.functional.interpolate(pictures, (side, side), mode="bilinear", antialias=True)
