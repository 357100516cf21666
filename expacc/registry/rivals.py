"""The losses that we compare with: those made against wrong labels, then the classic ones."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from expacc.registry.spec import LossSpec

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["CLASSIC", "ROBUST"]

_REVERSE = -math.log(1e-4)  # as in functional/divergences.py, which needs torch


def _focal_pull(u: "Tensor", n: "Mapping[str, Tensor]") -> "Tensor":
    import torch

    tiny = torch.finfo(u.dtype).tiny
    error = -u.expm1()
    quotient = u.clamp(min=-1e30, max=-tiny) / error.clamp(min=tiny)  # -1 where both vanish
    return error.pow(n["gamma"]) * (1 - n["gamma"] * u.exp() * quotient) * n["alpha"]


def _jensen_shannon_pull(u: "Tensor", n: "Mapping[str, Tensor]") -> "Tensor":
    import torch

    prob, share = u.exp(), n["label_share"]
    odds = u.expm1() / prob.clamp(min=torch.finfo(u.dtype).tiny)
    return prob * (1 - (odds * -share).log1p() / (-share).log1p())


def _asymmetric_pull(u: "Tensor", n: "Mapping[str, Tensor]") -> "Tensor":
    prob = u.exp()
    return prob * (prob + n["a"]).pow(n["q"] - 1)


def _unhinged_pull(u: "Tensor", n: "Mapping[str, Tensor]") -> "Tensor":
    return u.exp() * (n["a"] - 1 - u.expm1()).pow(n["q"] - 1)


def _exponential_pull(u: "Tensor", n: "Mapping[str, Tensor]") -> "Tensor":
    share = u.exp() / n["a"]
    return share * (-share).exp()


ROBUST = (
    LossSpec(
        name="mean_absolute_error",
        label="mean absolute error",
        formula="2·(1 − p)",
        source="Ghosh, Kumar and Sastry 2017; mixing, Eq. 3",
        when="comparator; the expected error under another name",
        family="robust",
        look=("#882255", "#d9699f", "<", "--"),
        slope=lambda u, n: u.exp() * 2,
        for_accuracy=True,
    ),
    LossSpec(
        name="generalized_cross_entropy",
        label="generalised cross entropy",
        formula="(1 − p^q)/q, `truncation`",
        source="Zhang and Sabuncu 2018; mixing, p. 2",
        when="wrong labels, the standard answer",
        family="robust",
        look=("#332288", "#9c8cf0", ">", "-."),
        defaults={"q": 0.7, "truncation": None},
        slope=lambda u, n: (u * n["q"]).exp().where(u > n["truncation"].log(), 0),
        search={"q": (0.1, 1.0, 0.7)},
    ),
    LossSpec(
        name="partially_huberized_cross_entropy",
        label="partially Huberised",
        formula="−u where p ≥ threshold, else 1 − log(threshold) − p/threshold",
        source="Menon et al. 2020",
        when="wrong labels: cross entropy for rows that are believed",
        family="robust",
        look=("#6b4c9a", "#b79ae0", "*", "-."),
        defaults={"threshold": 0.5},
        hundred={"threshold": 0.1},
        slope=lambda u, n: (u.exp() / n["threshold"]).clamp(max=1),
        search={"threshold": (0.02, 0.9, 0.5)},
    ),
    LossSpec(
        name="taylor_cross_entropy",
        label="Taylor cross entropy",
        formula="Σ_{i ≤ terms} (1 − p)^i/i",
        source="Feng et al. 2020",
        when="wrong labels: expected error (1 term) to cross entropy (all)",
        family="robust",
        look=("#cc6677", "#f295a3", ">", "--"),
        defaults={"terms": 2},
        slope=lambda u, n: -((-u.exp()).log1p() * n["terms"]).expm1(),
        counts=("terms",),
        search={"terms": (1.0, 8.0, 2.0)},
        params_of=lambda found: {"terms": round(found["terms"])},
    ),
    LossSpec(
        name="jensen_shannon",
        label="Jensen–Shannon",
        formula="1 − p − (p·log(μ/p) + s/(1 − s)·log μ)/(−log(1 − s)), μ = s + (1 − s)·p, "
        "s = label_share",
        source="Englesson and Azizpour 2021",
        when="wrong labels: cross entropy (s → 0) to expected error (s → 1)",
        family="robust",
        look=("#c98900", "#f0b93a", "*", "-"),
        defaults={"label_share": 0.7},
        hundred={"label_share": 0.3},
        slope=_jensen_shannon_pull,
        search={"label_share": (0.1, 0.9, 0.7)},
    ),
    LossSpec(
        name="reverse_cross_entropy",
        label="reverse cross entropy",
        formula="A·(1 − p), A = −log 1e-4 = 9.2103",
        source="Wang et al. 2019",
        when="comparator; the expected error under another name",
        family="robust",
        look=("#882255", "#d9699f", "8", ":"),
        slope=lambda u, n: u.exp() * _REVERSE,
        for_accuracy=True,
    ),
    LossSpec(
        name="symmetric_cross_entropy",
        label="symmetric cross entropy",
        formula="−ce_weight·u + rce_weight·A·(1 − p), A = 9.2103",
        source="Wang et al. 2019",
        when="comparator; an alias of the mixture",
        family="robust",
        look=("#3f9fd6", "#8fd0f5", "<", "-."),
        defaults={"ce_weight": 0.1, "rce_weight": 1.0},
        hundred={"ce_weight": 6.0, "rce_weight": 0.1},
        slope=lambda u, n: u.exp() * n["rce_weight"] * _REVERSE + n["ce_weight"],
        search={"ce_weight": (0.01, 10.0, 0.1)},
    ),
    LossSpec(
        name="asymmetric_generalized_cross_entropy",
        label="AGCE",
        formula="((a + 1)^q − (a + p)^q)/q",
        source="Zhou et al. 2021",
        when="many wrong labels, few classes",
        family="robust",
        look=("#117733", "#62c281", "P", "-"),
        defaults={"a": 0.6, "q": 0.6},
        slope=_asymmetric_pull,
        search={"a": (0.1, 6.0, 0.6), "q": (0.3, 3.0, 0.6)},
    ),
    LossSpec(
        name="asymmetric_unhinged",
        label="AUL",
        formula="((a − p)^q − (a − 1)^q)/q",
        source="Zhou et al. 2021",
        when="many wrong labels, few classes",
        family="robust",
        look=("#44aa99", "#7fdccb", "X", "-"),
        defaults={"a": 5.5, "q": 3.0},
        slope=_unhinged_pull,
        search={"a": (1.5, 10.0, 5.5), "q": (0.5, 4.0, 3.0)},
    ),
    LossSpec(
        name="asymmetric_exponential",
        label="AEL",
        formula="exp(−p/a) − exp(−1/a)",
        source="Zhou et al. 2021",
        when="many wrong labels, few classes",
        family="robust",
        look=("#999933", "#cdcd6a", "p", "-"),
        defaults={"a": 2.5},
        slope=_exponential_pull,
        search={"a": (0.5, 5.0, 2.5)},
    ),
    LossSpec(
        name="normalized_cross_entropy",
        label="NCE",
        formula="u/Σ_j log p_j",
        source="Ma et al. 2020",
        when="comparator; underfits alone",
        family="robust",
        look=("#332288", "#9c8cf0", "P", ":"),
        slope="normalized_cross_entropy",
    ),
    LossSpec(
        name="normalized_focal",
        label="NFL",
        formula="f(p)/Σ_j f(p_j), f(p) = (1 − p)^gamma·log p",
        source="Ma et al. 2020",
        when="comparator; underfits alone",
        family="robust",
        look=("#6b4c9a", "#b79ae0", "X", ":"),
        defaults={"gamma": 0.5},
        slope="normalized_focal",
        search={"gamma": (0.1, 2.0, 0.5)},
    ),
    LossSpec(
        name="normalized_and_reverse_cross_entropy",
        label="NCE+RCE",
        formula="active_weight·u/Σ_j log p_j + passive_weight·A·(1 − p), A = 9.2103",
        source="Ma et al. 2020",
        when="many wrong labels, few classes",
        family="robust",
        look=("#882255", "#d9699f", "d", "-"),
        defaults={"active_weight": 1.0, "passive_weight": 1.0},
        hundred={"active_weight": 10.0},
        slope="normalized_and_reverse_cross_entropy",
        search={"passive_weight": (0.01, 10.0, 1.0)},
    ),
    LossSpec(
        name="normalized_and_asymmetric_generalized",
        label="NCE+AGCE",
        formula="active_weight·u/Σ_j log p_j + passive_weight·((a + 1)^q − (a + p)^q)/q",
        source="Zhou et al. 2021",
        when="many wrong labels",
        family="robust",
        look=("#117733", "#62c281", "h", "--"),
        defaults={"active_weight": 1.0, "passive_weight": 4.0, "a": 6.0, "q": 1.5},
        hundred={"active_weight": 10.0, "passive_weight": 0.1, "a": 1.8, "q": 3.0},
        slope="normalized_and_asymmetric_generalized",
        search={"passive_weight": (0.01, 10.0, 4.0), "a": (1.0, 10.0, 6.0)},
    ),
    LossSpec(
        name="normalized_and_asymmetric_unhinged",
        label="NCE+AUL",
        formula="active_weight·u/Σ_j log p_j + passive_weight·((a − p)^q − (a − 1)^q)/q",
        source="Zhou et al. 2021",
        when="many wrong labels",
        family="robust",
        look=("#44aa99", "#7fdccb", "*", "--"),
        defaults={"active_weight": 1.0, "passive_weight": 4.0, "a": 6.3, "q": 1.5},
        hundred={"active_weight": 10.0, "passive_weight": 0.015, "a": 6.0, "q": 3.0},
        slope="normalized_and_asymmetric_unhinged",
        search={"passive_weight": (0.01, 10.0, 4.0), "a": (1.5, 10.0, 6.3)},
    ),
    LossSpec(
        name="normalized_and_asymmetric_exponential",
        label="NCE+AEL",
        formula="active_weight·u/Σ_j log p_j + passive_weight·(exp(−p/a) − exp(−1/a))",
        source="Zhou et al. 2021",
        when="many wrong labels",
        family="robust",
        look=("#999933", "#cdcd6a", "<", ":"),
        defaults={"active_weight": 1.0, "passive_weight": 4.0, "a": 5.0},
        hundred={"active_weight": 10.0, "passive_weight": 0.1, "a": 1.5},
        slope="normalized_and_asymmetric_exponential",
        search={"passive_weight": (0.01, 10.0, 4.0), "a": (0.5, 10.0, 5.0)},
    ),
    LossSpec(
        name="active_negative",
        label="ANL-CE",
        formula="active_weight·u/Σ_j log p_j + negative_weight·(1 − h/Σ_j h_j), "
        "h_j = log(max(p_j, floor)/floor)",
        source="Ye et al. 2023",
        when="many wrong labels; its paper adds an L1 penalty of the weights",
        family="robust",
        look=("#cc6677", "#f295a3", "P", "-"),
        defaults={"active_weight": 5.0, "negative_weight": 5.0, "floor": 1e-07},
        hundred={"active_weight": 10.0, "negative_weight": 1.0},
        slope="active_negative",
        search={"negative_weight": (0.1, 10.0, 5.0)},
    ),
    LossSpec(
        name="bi_tempered",
        label="bi-tempered",
        formula="−log_t1 p − (1 − Σ_j p_j^(2 − t1))/(2 − t1), p_j = exp_t2(z_j − λ)",
        source="Amid et al. 2019",
        when="wrong labels and outliers; slow",
        family="robust",
        look=("#3f9fd6", "#8fd0f5", "d", "-"),
        defaults={"t1": 0.8, "t2": 1.2},
        slope="bi_tempered",
        search={"t1": (0.2, 1.0, 0.8), "t2": (1.0, 2.0, 1.2)},
    ),
    LossSpec(
        name="epsilon_softmax",
        label="ε-softmax",
        formula="−ce_weight·log q + mae_weight·2·(1 − p), q = (p + boost·1[y wins])/(1 + boost)",
        source="Wang et al. 2024",
        when="many wrong labels",
        family="robust",
        look=("#c98900", "#f0b93a", "8", "-."),
        defaults={"ce_weight": 0.01, "mae_weight": 5.0, "boost": 100000.0},
        hundred={"ce_weight": 0.1, "mae_weight": 1.0, "boost": 10000.0},
        slope="epsilon_softmax",
        search={"ce_weight": (0.001, 1.0, 0.01)},
    ),
)

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
        concave=False,
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
