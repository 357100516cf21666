"""The fastest network that reaches 94 % on CIFAR-10: Jordan 2024, airbench94, arXiv 2404.00498."""

import torch
from torch import Tensor, nn

_GROUPS = (64, 256, 256)
_PATCH = 2
_ROWS = 5000  # pictures that whitening looks at
_SCALE = 1 / 9  # of the logits
_SMALLEST = 5e-4  # is added to a variance before its root divides


class FastCNN(nn.Module):
    """Whitened patches of 2×2 pixels, three groups of two convolutions, GELU, scaled logits.

    The whitening is not trained: ``whiten`` sets it from training pictures, and without it it is
    random directions. Convolutions begin as the identity, and the norms' gain stays 1.

    Args:
        classes: how many logits.
        channels: of the pictures.
        widths: of the groups.

    Example:
        >>> network = FastCNN(10, 1).eval()
        >>> network(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self, classes: int = 10, channels: int = 3, widths: tuple[int, ...] = _GROUPS
    ) -> None:
        super().__init__()
        directions = channels * _PATCH**2
        self.patches = nn.Conv2d(channels, 2 * directions, _PATCH)
        self.patches.weight.requires_grad_(False)
        start = torch.empty(directions, directions)
        self._set_patches(nn.init.orthogonal_(start))
        nn.init.zeros_(self.patches.bias)  # type: ignore[arg-type]
        widths = (2 * directions, *widths)
        self.groups = nn.ModuleList(map(_Group, widths, widths[1:]))
        self.head = nn.Linear(widths[-1], classes, bias=False)

    def whiten(self, pictures: Tensor) -> None:
        """Make patches of these pictures uncorrelated and of variance 1.

        Args:
            pictures: (rows, channels, height, width) as the network will see them; the first 5,000
                are looked at.
        """
        shown = pictures[:_ROWS].to(self.patches.weight)
        patches = nn.functional.unfold(shown, _PATCH).transpose(1, 2).flatten(0, 1)
        values, vectors = torch.linalg.eigh(patches.double().T @ patches.double() / len(patches))
        whitening = vectors.flip(1).T / (values.flip(0)[:, None] + _SMALLEST).sqrt()
        self._set_patches(whitening.to(self.patches.weight))

    def _set_patches(self, directions: Tensor) -> None:
        """Every direction, and its opposite: what a GELU takes of one it leaves of the other."""
        both = torch.cat([directions, -directions]).view_as(self.patches.weight)
        with torch.no_grad():
            self.patches.weight.copy_(both)

    def forward(self, pictures: Tensor) -> Tensor:
        """Logits of pictures."""
        x = nn.functional.gelu(self.patches(pictures))
        for group in self.groups:
            x = group(x)
        return self.head(x.amax((2, 3))) * _SCALE  # type: ignore[no-any-return]


class WhitenedCNN(FastCNN):
    """The same, whitened by the first batch that it is trained on: so never by rows to test.

    Args:
        classes: how many logits.
        channels: of the pictures.
        widths: of the groups.
    """

    def __init__(
        self, classes: int = 10, channels: int = 3, widths: tuple[int, ...] = _GROUPS
    ) -> None:
        super().__init__(classes, channels, widths)
        self._whitened = False
        self.register_load_state_dict_post_hook(_is_whitened)  # type: ignore[no-untyped-call]

    def forward(self, pictures: Tensor) -> Tensor:
        """Logits of pictures."""
        if self.training and not self._whitened:
            self.whiten(pictures)
            self._whitened = True
        return super().forward(pictures)


def _is_whitened(network: nn.Module, _: object) -> None:
    network._whitened = True  # type: ignore[assignment] # as weights that are loaded are


class _Group(nn.Module):
    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        self.first, self.second = (_dirac(width, out) for width in (into, out))
        self.norms = nn.ModuleList(_norm(out) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if min(x.shape[-2:]) > 1:  # of 8 pixels two are left after two groups
            x = nn.functional.max_pool2d(x, 2)
        x = nn.functional.gelu(self.norms[0](x))
        return nn.functional.gelu(self.norms[1](self.second(x)))


def _dirac(into: int, out: int) -> nn.Conv2d:
    layer = nn.Conv2d(into, out, 3, padding=1, bias=False)
    nn.init.dirac_(layer.weight[: min(into, out)].detach())
    return layer


def _norm(width: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(width, eps=1e-12, momentum=0.4)
    norm.weight.requires_grad_(False)
    return norm
