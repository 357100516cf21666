"""How weights begin, and the pieces that several families are built of."""

import math

from torch import Tensor, nn


def conv(into: int, out: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """A convolution that keeps the size at stride 1, without bias: a batch norm has one."""
    return nn.Conv2d(into, out, kernel, stride, kernel // 2, groups=groups, bias=False)


def conv_norm(
    into: int, out: int, kernel: int = 3, stride: int = 1, groups: int = 1, *, relu: bool = True
) -> nn.Sequential:
    """Convolution, batch norm and, unless switched off, ReLU."""
    end = [nn.ReLU(inplace=True)] if relu else []
    return nn.Sequential(conv(into, out, kernel, stride, groups), nn.BatchNorm2d(out), *end)


def he_start(network: nn.Module) -> None:
    """Convolutions as in He et al. 2015, by what leaves them; the linear layers' biases are 0."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            fan = module.kernel_size[0] * module.kernel_size[1] * module.out_channels
            nn.init.normal_(module.weight, std=math.sqrt(2 * module.groups / fan))
        elif isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


class Pooled(nn.Sequential):
    """Parts that end in a mean over the picture and a linear layer."""

    def __init__(self, *parts: nn.Module, width: int, classes: int) -> None:
        super().__init__(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))
        he_start(self)


class Residual(nn.Module):
    """ReLU of what the branch adds to its input, brought to size by the shortcut."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.branch = branch
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Logits' way: features in, features out."""
        return nn.functional.relu(self.branch(x) + self.shortcut(x), inplace=True)
