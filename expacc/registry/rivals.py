"""The losses that we compare with and that were not made against wrong labels."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from expacc.registry.spec import LossSpec

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["CLASSIC"]


def _focal_pull(u: "Tensor", n: "Mapping[str, Tensor]") -> "Tensor":
    import torch

    tiny = torch.finfo(u.dtype).tiny
    error = -u.expm1()
    quotient = u.clamp(min=-1e30, max=-tiny) / error.clamp(min=tiny)  # -1 where both vanish
    return error.pow(n["gamma"]) * (1 - n["gamma"] * u.exp() * quotient) * n["alpha"]


CLASSIC = (
    LossSpec(
        name="hinge",
        label="hinge",
        formula="mean over rivals j of max(0, margin − z_y + z_j)",
        source="EXACT, Eq. 4",
        when="comparator; takes no class probabilities",
        family="classic",
        look=("#c98900", "#f0b93a", "P", "--"),
        defaults={"margin": 1.0},
        slope="hinge",
        search={"margin": (0.1, 5.0, 1.0)},
    ),
    LossSpec(
        name="focal",
        label="focal",
        formula="−alpha·(1 − p)^gamma·u",
        source="Lin et al. 2017; mixing, Eq. 2",
        when="comparator; the opposite of what wrong labels ask for",
        family="classic",
        look=("#3f9fd6", "#8fd0f5", "X", "--"),
        defaults={"gamma": 2.0, "alpha": 0.25},
        slope=_focal_pull,
        search={"gamma": (0.5, 4.0, 2.0)},
    ),
    LossSpec(
        name="tamed_cross_entropy",
        label="tamed cross entropy",
        formula="((1 − u)^(1 − taming) − 1)/(1 − taming)",
        source="Martinez and Stiefelhagen 2018; mixing, Eq. 4",
        when="comparator",
        family="classic",
        look=("#117733", "#62c281", "p", "-."),
        defaults={"taming": 0.8},
        slope=lambda u, n: (1 - u).pow(-n["taming"]),
        search={"taming": (0.2, 1.5, 0.8)},
    ),
    LossSpec(
        name="poly1_cross_entropy",
        label="Poly-1",
        formula="−u + epsilon·(1 − p)",
        source="Leng et al. 2022; mixing, Eq. 12",
        when="comparator; an alias of the mixture",
        family="classic",
        look=("#999933", "#cdcd6a", "h", "-."),
        defaults={"epsilon": 1.0},
        slope=lambda u, n: u.exp() * n["epsilon"] + 1,
        search={"epsilon": (0.3, 5.0, 1.0)},
    ),
    LossSpec(
        name="complement_entropy",
        label="complement entropy",
        formula="Σ over rivals of r·log r, their shares r = p_j/(1 − p)",
        source="Chen et al. 2019; mixing, Eq. 6",
        when="beside cross entropy, never alone; takes no class probabilities",
        family="classic",
        look=("#cc6677", "#f295a3", "8", ":"),
    ),
    LossSpec(
        name="maximum_probability_cross_entropy",
        label="maximum probability",
        formula="−(max_j p_j − p)·u",
        source="Zhou et al. 2019; mixing, Eq. 7",
        when="comparator",
        family="classic",
        look=("#44aa99", "#7fdccb", "d", ":"),
    ),
    LossSpec(
        name="max_mahalanobis_center",
        label="Max-Mahalanobis centers",
        formula="½‖features − centre_y‖²",
        source="Pang et al. 2020, Eq. 8; mixing, Eq. 5",
        when="replaces the last layer",
        family="classic",
        needs="features, and the number of classes",
    ),
)
