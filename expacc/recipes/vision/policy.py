"""AutoAugment's policy for CIFAR-10 (Cubuk et al. 2019, Table 7), all pictures of a batch at once.

Each picture has one of 25 pairs of operations, each done with its chance and at its strength of 0
to 9. Strengths are those of the authors' code and its descendants; directions are drawn.
"""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from expacc.recipes.vision.change import affine, blend, grey, moved, uniform

_PAIRS = """
Invert .1 0 Contrast .2 6 | Rotate .7 2 TranslateX .3 9 | Sharpness .8 1 Sharpness .9 3
ShearY .5 8 TranslateY .7 9 | AutoContrast .5 0 Equalize .9 0 | ShearY .2 7 Posterize .3 7
Color .4 3 Brightness .6 7 | Sharpness .3 9 Brightness .7 9 | Equalize .6 0 Equalize .5 0
Contrast .6 7 Sharpness .6 5 | Color .7 7 TranslateX .5 8 | Equalize .3 0 AutoContrast .4 0
TranslateY .4 3 Sharpness .2 6 | Brightness .9 6 Color .2 8 | Solarize .5 2 Invert 0 0
Equalize .2 0 AutoContrast .6 0 | Equalize .2 0 Equalize .6 0 | Color .9 9 Equalize .6 0
AutoContrast .8 0 Solarize .2 8 | Brightness .1 3 Color .7 0 | Solarize .4 5 AutoContrast .9 0
TranslateY .9 9 TranslateY .7 9 | AutoContrast .9 0 Solarize .8 3 | Equalize .8 0 Invert .1 0
TranslateY .7 9 AutoContrast .9 0
"""
_STRONGEST = 9
_TURN, _SHEAR, _SHIFT, _LIGHT = 30.0, 0.3, 150 / 331, 0.9  # at the greatest strength
_LEVELS = 255


def _sheared(pictures: Tensor, by: Tensor) -> Tensor:
    lines = torch.eye(2, 3, device=pictures.device).repeat(len(pictures), 1, 1)
    lines[:, 1, 0] = lines[:, 1, 2] = by * _SHEAR  # about the upper left corner
    return moved(pictures, lines, "nearest")


def _placed(pictures: Tensor, turn: Tensor, right: Tensor, down: Tensor) -> Tensor:
    return moved(pictures, affine(pictures, turn=turn, right=right, down=down), "nearest")


def _rotated(pictures: Tensor, by: Tensor) -> Tensor:
    return _placed(pictures, (by * _TURN).deg2rad(), by * 0, by * 0)


def _shifted(axis: int) -> Callable[[Tensor, Tensor], Tensor]:
    def shift(pictures: Tensor, by: Tensor) -> Tensor:
        size = pictures.shape[-1]
        pixels = (by * _SHIFT * size).trunc() * 2 / size
        return _placed(pictures, by * 0, *((pixels, by * 0) if axis else (by * 0, pixels)))

    return shift


def _bright(pictures: Tensor, by: Tensor) -> Tensor:
    return blend(torch.zeros_like(pictures), pictures, 1 + _LIGHT * by)


def _coloured(pictures: Tensor, by: Tensor) -> Tensor:
    return blend(grey(pictures), pictures, 1 + _LIGHT * by)


def _contrasted(pictures: Tensor, by: Tensor) -> Tensor:
    return blend(grey(pictures).mean((2, 3), keepdim=True), pictures, 1 + _LIGHT * by)


def _sharpened(pictures: Tensor, by: Tensor) -> Tensor:
    channels = pictures.shape[1]
    kernel = pictures.new_ones(3, 3)
    kernel[1, 1] = 5
    kernel = (kernel / kernel.sum()).expand(channels, 1, 3, 3)
    smooth = pictures.clone()  # at the edges it stays
    smooth[..., 1:-1, 1:-1] = torch.nn.functional.conv2d(pictures, kernel, groups=channels)
    return blend(smooth, pictures, 1 + _LIGHT * by)


def _posterized(pictures: Tensor, by: Tensor) -> Tensor:
    dropped = (by.abs() * 4).round()  # of eight bits
    step = (2**dropped).view(-1, 1, 1, 1)
    return (levels(pictures) / step).floor() * step / _LEVELS


def _solarized(pictures: Tensor, by: Tensor) -> Tensor:
    bound = (1 - by.abs()).view(-1, 1, 1, 1)
    return torch.where(pictures >= bound, 1 - pictures, pictures)


def _inverted(pictures: Tensor, _: Tensor) -> Tensor:
    return 1 - pictures


def stretched(pictures: Tensor, _: Tensor) -> Tensor:
    """From black to white in every channel."""
    low, high = pictures.amin((2, 3), keepdim=True), pictures.amax((2, 3), keepdim=True)
    span = high - low
    return torch.where(span > 0, (pictures - low) / torch.where(span > 0, span, 1), pictures)


def equalized(pictures: Tensor, _: Tensor) -> Tensor:
    """With a flat histogram in every channel, as the Python Imaging Library does it."""
    level = levels(pictures).long().flatten(2).flatten(0, 1)  # (rows · channels, pixels)
    counts = level.new_zeros(len(level), _LEVELS + 1)
    counts.scatter_add_(1, level, torch.ones_like(level))
    last = counts.gather(1, level.amax(1, keepdim=True))
    step = (level.shape[1] - last) // _LEVELS
    below = counts.cumsum(1) - counts
    table = ((below + step // 2) // step.clamp(min=1)).clamp(max=_LEVELS)
    found = table.gather(1, level).view_as(pictures).to(pictures.dtype) / _LEVELS
    return torch.where((step > 0).view(*pictures.shape[:2], 1, 1), found, pictures)


def levels(pictures: Tensor) -> Tensor:
    """From 0 to 255, whole numbers."""
    return (pictures * _LEVELS).round()


_OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "ShearY": _sheared,
    "TranslateX": _shifted(1),
    "TranslateY": _shifted(0),
    "Rotate": _rotated,
    "Brightness": _bright,
    "Color": _coloured,
    "Contrast": _contrasted,
    "Sharpness": _sharpened,
    "Posterize": _posterized,
    "Solarize": _solarized,
    "Invert": _inverted,
    "AutoContrast": stretched,
    "Equalize": equalized,
}
_NAMES = [*_OPERATIONS]
_WORDS = [pair.split() for line in _PAIRS.strip().splitlines() for pair in line.split("|")]
# (25, 2): which operation, with what chance, how strong.
PAIRS = [[(_NAMES.index(w[i]), float(w[i + 1]), int(w[i + 2])) for i in (0, 3)] for w in _WORDS]


def policy(pictures: Tensor, draw: Generator) -> Tensor:
    """Pictures after a pair of operations each."""
    place = pictures.device
    table = torch.tensor(PAIRS, device=place)
    chosen = torch.randint(len(PAIRS), (len(pictures),), generator=draw, device=place)
    for turn in range(2):
        which, chance, strength = table[chosen, turn].unbind(1)
        done = uniform(pictures, draw, 0.0, 1.0) < chance
        by = strength / _STRONGEST * torch.where(uniform(pictures, draw) < 0, -1.0, 1.0)
        changed = pictures.clone()
        for number in sorted({pair[turn][0] for pair in PAIRS}):
            rows = (done & (which == number)).nonzero().squeeze(1)
            if len(rows):
                operation = _OPERATIONS[_NAMES[number]]
                changed[rows] = operation(pictures[rows], by[rows])
        pictures = changed
    return pictures
