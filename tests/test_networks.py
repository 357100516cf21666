"""Networks for pictures: the papers' numbers of weights, any size and channels."""

import re

import pytest
import torch
from torch import nn

from expacc import networks

# Network, classes, channels, numbers trained or not, and who counted.
COUNTS = [
    ("fast_cnn", 10, 3, 1_972_792, "airbench94.py of KellerJordan/cifar10-airbench"),
    ("resnet9", 10, 3, 6_573_120, "DAWNBench ResNet of davidcpage/cifar10-fast: 6.6 M"),
    ("m3cnn", 10, 1, 1_124_180, "modelM3.py of ansh941/MnistSimpleCNN"),
    ("wrn-16-4", 10, 3, 2_748_890, "none printed: the blocks of the two below"),
    ("wrn-16-8", 10, 3, 10_961_370, "Zagoruyko and Komodakis, Table 4: 11.0 M"),
    ("wrn-28-10", 10, 3, 36_479_194, "Zagoruyko and Komodakis, Table 4: 36.5 M"),
    ("resnet20", 10, 3, 269_722, "He et al., Table 6: 0.27 M; akamaster/pytorch_resnet_cifar10"),
    ("resnet32", 10, 3, 464_154, "He et al., Table 6: 0.46 M"),
    ("resnet44", 10, 3, 658_586, "He et al., Table 6: 0.66 M"),
    ("resnet110", 10, 3, 1_727_962, "He et al., Table 6: 1.7 M"),
    ("resnet18", 10, 3, 11_173_962, "resnet.py of kuangliu/pytorch-cifar"),
    ("resnet34", 10, 3, 21_282_122, "resnet.py of kuangliu/pytorch-cifar"),
    ("resnet50", 10, 3, 23_520_842, "resnet.py of kuangliu/pytorch-cifar"),
    ("resnet101", 10, 3, 42_512_970, "resnet.py of kuangliu/pytorch-cifar"),
    ("preact_resnet18", 10, 3, 11_171_146, "preact_resnet.py of kuangliu/pytorch-cifar"),
    # kuangliu/pytorch-cifar has 9,128,778 with a stem of 1×1; the paper's is 3×3.
    ("resnext29-2x64d", 10, 3, 9_128_778 + 64 * 3 * 8, "resnext.py of kuangliu/pytorch-cifar"),
    ("resnext29-8x64d", 10, 3, 34_426_698, "Xie et al., Table 7: 34.4 M"),
    ("shufflenet_v2", 10, 3, 1_263_854, "shufflenetv2.py of kuangliu/pytorch-cifar"),
    ("shufflenet_v2-large", 1000, 3, 2_278_604, "torchvision shufflenet_v2_x1_0"),
    ("resnet18-large", 1000, 3, 11_689_512, "torchvision resnet18"),
    ("resnet34-large", 1000, 3, 21_797_672, "torchvision resnet34"),
    ("resnet50-large", 1000, 3, 25_557_032, "torchvision resnet50"),
    ("resnet101-large", 1000, 3, 44_549_160, "torchvision resnet101"),
    ("resnext50-large", 1000, 3, 25_028_904, "torchvision resnext50_32x4d"),
    ("resnext101-large", 1000, 3, 88_791_336, "torchvision resnext101_32x8d"),
]


def made(name, **more):
    with torch.device("meta"):  # no weight is drawn
        return networks.get(name, **more)


@pytest.mark.parametrize(("name", "classes", "channels", "count", "source"), COUNTS)
def test_as_many_weights_as_the_papers(name, classes, channels, count, source):
    network = made(name, classes=classes, channels=channels)
    assert sum(weight.numel() for weight in network.parameters()) == count, source


def test_every_network_is_counted():
    assert {name for name, *_ in COUNTS} == set(networks.NAMES)


@pytest.mark.parametrize("name", networks.NAMES)
@pytest.mark.parametrize(("channels", "size"), [(1, 8), (4, 28), (3, 32)])
def test_pictures_of_any_size_and_channels(name, channels, size):
    network = made(name, classes=7, channels=channels).eval()
    pictures = torch.zeros(2, channels, size, size, device="meta")
    assert network(pictures).shape == (2, 7)


@pytest.mark.parametrize("name", ["fast_cnn", "resnet20", "shufflenet_v2", "m3cnn"])
def test_every_weight_is_reached_by_a_step(name):
    torch.manual_seed(0)
    network = networks.get(name, classes=3, channels=1)
    logits = network(torch.randn(8, 1, 8, 8))
    nn.functional.cross_entropy(logits, torch.arange(8) % 3).backward()
    for key, weight in network.named_parameters():
        if weight.requires_grad:
            assert weight.grad is not None, key
            assert weight.grad.isfinite().all(), key


def test_whitened_patches_are_uncorrelated():
    torch.manual_seed(0)
    network = networks.FastCNN(10, 2)
    mixed = torch.randn(64, 2, 9, 9).cumsum(3) / 3
    network.whiten(mixed)
    with torch.no_grad():
        out = network.patches(mixed).transpose(0, 1).flatten(1)
    half = len(out) // 2
    assert torch.equal(out[:half], -out[half:])
    spread = out[:half] @ out[:half].T / out.shape[1]
    assert torch.allclose(spread, torch.eye(half), atol=0.02)
    assert network.patches.bias.requires_grad
    assert not network.patches.weight.requires_grad


def test_convolutions_begin_as_the_identity():
    weight = networks.FastCNN(10, 3).groups[1].second.weight
    assert torch.equal(weight[:, :, 1, 1], torch.eye(256))
    assert weight.sum() == 256


@pytest.mark.parametrize(
    ("arguments", "piece"),
    [
        ({"name": "resnet19"}, "name must be"),
        ({"name": "resnet20", "classes": 0}, "classes must be"),
        ({"name": "resnet20", "channels": 0}, "channels must be"),
    ],
)
def test_what_cannot_be_made_gets_a_sentence(arguments, piece):
    with pytest.raises(ValueError, match=re.escape(piece)):
        networks.get(**arguments)
