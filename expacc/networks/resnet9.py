"""The short residual network of David Page's "How to train your ResNet" (2018): ResNet-9."""

from torch import Tensor, nn

from expacc.networks.start import conv_norm

_SCALE = 1 / 8  # of the logits


class ResNet9(nn.Module):
    """Eight convolutions of 64 to 512 channels with two residual pairs, and a linear layer."""

    def __init__(self, classes: int = 10, channels: int = 3) -> None:
        super().__init__()
        self.parts = nn.Sequential(
            conv_norm(channels, 64),
            conv_norm(64, 128),
            nn.MaxPool2d(2),
            _Added(128),
            conv_norm(128, 256),
            nn.MaxPool2d(2),
            conv_norm(256, 512),
            nn.MaxPool2d(2),
            _Added(512),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
            nn.Linear(512, classes, bias=False),
        )

    def forward(self, pictures: Tensor) -> Tensor:
        """Logits of pictures."""
        return self.parts(pictures) * _SCALE  # type: ignore[no-any-return]


class _Added(nn.Module):
    """Two convolutions whose result is added to their input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(conv_norm(width, width), conv_norm(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)  # type: ignore[no-any-return]
