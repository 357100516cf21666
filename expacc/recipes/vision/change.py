"""How pictures are changed each time training sees them, all pictures of a batch at once.

Pictures are numbers from 0 to 1, (rows, channels, height, width), on any device; what comes in at
an edge is black. Random numbers come from the generator given.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Generator, Tensor
from torch.nn.functional import affine_grid, grid_sample

Change = Callable[[Tensor, Generator], Tensor]

_CROP = 4  # pixels
_SHIFT, _TURN = 0.2, 20.0  # of MNIST: share of the side, and degrees
_LIGHT = 0.4  # of brightness, contrast and colour
_ERASED = (0.02, 0.4)  # share of the picture, of half of the pictures
_NARROW = 0.3  # height over width, and width over height, of what is erased


def uniform(pictures: Tensor, draw: Generator, low: float = -1.0, high: float = 1.0) -> Tensor:
    """A number for each picture."""
    found = torch.rand(len(pictures), generator=draw, device=pictures.device)
    return low + (high - low) * found


def moved(pictures: Tensor, matrix: Tensor, mode: str = "bilinear") -> Tensor:
    """Pictures read at the places that an affine map takes theirs to.

    Args:
        pictures: to read.
        matrix: (rows, 2, 3) or (2, 3), of coordinates from −1 to 1.
        mode: 'bilinear' or 'nearest'.
    """
    matrix = matrix.to(pictures).expand(len(pictures), 2, 3)
    grid = affine_grid(matrix, list(pictures.shape), align_corners=False)
    return grid_sample(pictures, grid, mode=mode, align_corners=False)


def affine(pictures: Tensor, *, turn: Tensor, right: Tensor, down: Tensor) -> Tensor:
    """The maps of a turn (radians) and a shift (of half a side), (rows, 2, 3)."""
    cos, sin = turn.cos(), turn.sin()
    lines = [torch.stack([cos, -sin, right], 1), torch.stack([sin, cos, down], 1)]
    return torch.stack(lines, 1).to(pictures)


def shift_turn(pictures: Tensor, draw: Generator) -> Tensor:
    """Turned by at most 20° and shifted by at most a fifth of the side."""
    turn = uniform(pictures, draw) * math.radians(_TURN)
    right, down = (2 * _SHIFT * uniform(pictures, draw) for _ in range(2))
    return moved(pictures, affine(pictures, turn=turn, right=right, down=down))


def turn(pictures: Tensor, draw: Generator) -> Tensor:
    """Turned by at most 20°."""
    angle = uniform(pictures, draw) * math.radians(_TURN)
    still = torch.zeros_like(angle)
    return moved(pictures, affine(pictures, turn=angle, right=still, down=still))


def flip(pictures: Tensor, draw: Generator) -> Tensor:
    """Mirrored with a chance of one half."""
    mirrored = uniform(pictures, draw) < 0
    return torch.where(mirrored[:, None, None, None], pictures.flip(-1), pictures)


def crop(pictures: Tensor, draw: Generator) -> Tensor:
    """Shifted by at most four pixels in either direction."""
    rows, _, height, width = pictures.shape
    padded = torch.nn.functional.pad(pictures, [_CROP] * 4)

    def places(size: int) -> Tensor:
        first = torch.randint(2 * _CROP + 1, (rows, 1), generator=draw, device=pictures.device)
        return first + torch.arange(size, device=pictures.device)

    down, right = places(height)[:, :, None], places(width)[:, None, :]
    row = torch.arange(rows, device=pictures.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[row, down, right].permute(0, 3, 1, 2)


def erase(pictures: Tensor, draw: Generator) -> Tensor:
    """Random erasing (Zhong et al.): noise in a rectangle, in half of the pictures."""
    height, width = pictures.shape[-2:]
    area = uniform(pictures, draw, *_ERASED) * height * width
    edge = math.log(1 / _NARROW)
    shape = (uniform(pictures, draw) * edge).exp().sqrt()
    spans = []
    for size, span in ((height, area.sqrt() * shape), (width, area.sqrt() / shape)):
        span = span.clamp(max=size - 1)
        first = uniform(pictures, draw, 0.0, 1.0) * (size - span)
        at = torch.arange(size, device=pictures.device) + 0.5
        spans.append((at >= first[:, None]) & (at < (first + span)[:, None]))
    inside = spans[0][:, :, None] & spans[1][:, None, :]
    inside = inside & (uniform(pictures, draw) < 0)[:, None, None]
    noise = torch.rand(pictures.shape, generator=draw, device=pictures.device)
    return torch.where(inside[:, None], noise, pictures)


def grey(pictures: Tensor) -> Tensor:
    """One channel of brightness; of pictures without colour themselves."""
    if pictures.shape[1] != 3:
        return pictures.mean(1, keepdim=True)
    weight = pictures.new_tensor([0.299, 0.587, 0.114]).view(3, 1, 1)
    return (pictures * weight).sum(1, keepdim=True)


def blend(other: Tensor, pictures: Tensor, factor: Tensor) -> Tensor:
    """From another picture (0) to the picture (1), and beyond."""
    factor = factor.view(-1, 1, 1, 1)
    return (other + factor * (pictures - other)).clamp(0, 1)


def jitter(pictures: Tensor, draw: Generator) -> Tensor:
    """Brightness, contrast and colour changed by at most 40 %."""
    light, contrast, colour = (1 + _LIGHT * uniform(pictures, draw) for _ in range(3))
    pictures = blend(torch.zeros_like(pictures), pictures, light)
    middle = grey(pictures).mean((2, 3), keepdim=True)
    pictures = blend(middle, pictures, contrast)
    return blend(grey(pictures), pictures, colour)


def _policy(pictures: Tensor, draw: Generator) -> Tensor:
    from expacc.recipes.vision.policy import policy

    return policy(pictures, draw)


CHANGES: Mapping[str, Change] = {
    "shift and turn": shift_turn,
    "turn": turn,
    "flip": flip,
    "crop": crop,
    "erase": erase,
    "jitter": jitter,
    "policy": _policy,
}


def change(pictures: Tensor, names: Sequence[str], draw: Generator) -> Tensor:
    """Pictures after some changes, one after the other.

    >>> change(torch.ones(2, 1, 8, 8), ["flip"], Generator()).shape
    torch.Size([2, 1, 8, 8])
    """
    for name in names:
        pictures = CHANGES[name](pictures, draw)
    return pictures
