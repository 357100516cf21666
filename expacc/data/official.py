"""Where data sets come from, and the digests that their files must have.

The digests: MD5 as their authors, or torchvision, publish them; MNIST's SHA-256 are of files that
have these MD5. The prepared UCI tables have none published, and none is pinned.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_MNIST = (
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
)
_FASHION = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
)
_SVHN = ("http://ufldl.stanford.edu/housenumbers/",)
_TORONTO = ("https://www.cs.toronto.edu/~kriz/",)
_IDX = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


@dataclass(frozen=True)
class File:
    """A file to fetch.

    Args:
        name: that it is kept by.
        addresses: with its name each; the first that answers is taken.
        bytes: about how many.
        digest: 'sha256:…' or 'md5:…'; '' where none is known.
    """

    name: str
    addresses: tuple[str, ...]
    bytes: int
    digest: str


@dataclass(frozen=True)
class Official:
    """A data set.

    Args:
        what: it is, in words.
        files: to fetch.
        folder: in which its data lie afterwards.
        unpacked: bytes of the archive's content, about; 0 if there is no archive.
        top: the archive's own name of ``folder``.
    """

    what: str
    files: tuple[File, ...]
    folder: str
    unpacked: int = 0
    top: str = ""


def _files(
    addresses: tuple[str, ...], names: tuple[str, ...], sizes: tuple[int, ...], *digests: str
) -> tuple[File, ...]:
    return tuple(
        File(name, tuple(address + name for address in addresses), size, digest)
        for name, size, digest in zip(names, sizes, digests, strict=True)
    )


def _toronto(name: str, size: int, digest: str) -> tuple[File, ...]:
    return _files(_TORONTO, (name,), (size,), digest)


OFFICIAL: Mapping[str, Official] = {
    "cifar10": Official(
        "CIFAR-10, binary version: 50,000 + 10,000 pictures, 32 × 32, 10 classes",
        _toronto("cifar-10-binary.tar.gz", 170_052_171, "md5:c32a1d4ab5d03f1284b67883e8d87530"),
        "cifar-10-batches-bin",
        184_400_000,
        "cifar-10-batches-bin",
    ),
    "cifar100": Official(
        "CIFAR-100, binary version: 50,000 + 10,000 pictures, 32 × 32, 100 classes",
        _toronto("cifar-100-binary.tar.gz", 168_513_733, "md5:03b5dce01913d631647c71ecec9e9cb8"),
        "cifar-100-binary",
        184_500_000,
        "cifar-100-binary",
    ),
    "mnist": Official(
        "MNIST: 60,000 + 10,000 digits, 28 × 28",
        _files(
            _MNIST,
            _IDX,
            (9_912_422, 28_881, 1_648_877, 4_542),
            "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
        "mnist",
    ),
    "fashion-mnist": Official(
        "Fashion-MNIST: 60,000 + 10,000 pictures of clothes, 28 × 28, 10 classes",
        _files(
            _FASHION,
            _IDX,
            (26_421_880, 29_515, 4_422_102, 5_148),
            "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "md5:25c81989df183df01b3e8a0aad5dffbe",
            "md5:bef4ecab320f06d8554ea6380940ec79",
            "md5:bb300cfdad3c16e7a12a480ee83cd310",
        ),
        "fashion-mnist",
    ),
    "svhn": Official(
        "SVHN, cropped digits: 73,257 + 26,032 pictures, 32 × 32, 10 classes",
        _files(
            _SVHN,
            ("train_32x32.mat", "test_32x32.mat"),
            (182_040_794, 64_275_384),
            "md5:e26dedcc434d2e4c54c9b2d4a06d8373",
            "md5:eb5a983be6a315427106f1b164d9cef3",
        ),
        "svhn",
    ),
    "uci121": Official(
        "121 UCI tables as Klambauer et al. 2017 prepared them, with their folds",
        _files(
            (
                "https://www.bioinf.jku.at/people/klambauer/",
                "http://www.bioinf.jku.at/people/klambauer/",
            ),
            ("data_py.zip",),
            (39_000_000,),
            "",
        ),
        "uci121",
        281_000_000,
        "data",
    ),
}
