"""*The* list of losses: every law in ``test_contract.py`` runs over it.

Each row names a loss of ``expacc.registry`` and holds the settings to try and two transcriptions
made from the papers alone: one in NumPy over a whole batch, one in mpmath over a single row.
"""

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from expacc import functional
from expacc.registry import SPECS


@dataclass(frozen=True)
class Row:
    """What mpmath knows of one row: u = log p(target), p, 1 - p, and the raw logits."""

    u: mp.mpf
    p: mp.mpf
    error: mp.mpf
    logits: tuple[float, ...]
    target: int

    def rivals(self) -> list[float]:
        return [z for j, z in enumerate(self.logits) if j != self.target and z > -float("inf")]


def exact_row(logits: tuple[float, ...], target: int) -> Row:
    """Softmax of one row in mpmath, from the ratios to the target, so that nothing cancels."""
    true = mp.mpf(logits[target])
    odds = mp.mpf(0)
    for j, z in enumerate(logits):
        if j != target and z > -float("inf"):
            odds += mp.exp(mp.mpf(z) - true)
    return Row(-mp.log1p(odds), 1 / (1 + odds), odds / (1 + odds), logits, target)


def moved_row(row: Row, shift: float = 0.0, scale: float = 1.0) -> Row:
    """The row whose p has scale · log p/(1 - p) + shift for its log p/(1 - p)."""
    if row.error == 0:
        return row
    odds = (row.error / row.p) ** mp.mpf(scale) * mp.exp(-mp.mpf(shift))
    return replace(row, u=-mp.log1p(odds), p=1 / (1 + odds), error=odds / (1 + odds))


def moved_probs(p: np.ndarray, y: np.ndarray, shift: float = 0.0, scale: float = 1.0):
    """The same of a batch; the rivals keep their shares."""
    true = _true(p, y)[:, None]
    own = 1 / (1 + (1 / true - 1) ** scale * np.exp(-shift))
    moved = p * (1 - own) / (1 - true)
    moved[np.arange(len(y)), y] = own[:, 0]
    return moved


MOVES = ({"shift": 2.4}, {"shift": -1.0, "scale": 0.5}, {"scale": 3.0})


def _split(params):
    """Its own numbers, and how p is moved."""
    own = {key: value for key, value in params.items() if key not in ("shift", "scale")}
    return own, {key: params[key] for key in params.keys() - own.keys()}


@dataclass(frozen=True)
class LossRow:
    name: str
    # (probabilities (N, C), labels (N,), logits (N, C), **params)
    numpy: Callable[..., np.ndarray]
    exact: Callable[..., Any] | None  # (Row, **params) -> mpf; None: has a table of its own
    settings: tuple[dict[str, Any], ...] = ({},)
    curve: bool = True  # a function of log p(target) alone
    soft: bool = True  # takes class probabilities and label smoothing
    twice: bool = True  # can be differentiated twice, and in forward mode
    blocks: bool = False  # no curve, and yet with a path of its own for large batches
    logits: bool = True  # of any shape, some of them masked; else features of a linear layer
    gradient_bound: float = np.inf  # of |dL/dlogits|, where the papers give one
    adapt: Callable[..., Tensor] | None = None  # to (logits, target, weight, …)
    ordered: bool = False  # its classes are ranked: of all permutations only the reversal is free

    def __post_init__(self) -> None:
        if not self.curve:
            return
        # A curve is a curve of any p: the same transcriptions, at another.
        numpy, exact = self.numpy, self.exact

        def moved_numpy(p, y, z, **params):
            own, moves = _split(params)
            return numpy(moved_probs(p, y, **moves) if moves else p, y, z, **own)

        def moved_exact(row, **params):
            own, moves = _split(params)
            return exact(moved_row(row, **moves) if moves else row, **own)

        object.__setattr__(self, "numpy", moved_numpy)
        object.__setattr__(self, "exact", moved_exact)
        last = self.settings[-1]
        moves = [{**self.settings[0], **MOVES[0]}, *({**last, **move} for move in MOVES[1:])]
        object.__setattr__(self, "settings", (*self.settings, *moves))

    @property
    def function(self) -> Callable[..., Tensor]:
        return self.adapt or SPECS[self.name].function

    @property
    def module(self) -> type[nn.Module] | None:
        return SPECS[self.name].module


def _true(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    return p[np.arange(len(y)), y]


def _mixture_weights(focus=0.0, ce_weight=None, error_weight=None):
    if ce_weight is None and error_weight is None:
        return (0, 1) if focus == 0.5 else (1, 1 / (1 - 2 * focus))
    return (1 if ce_weight is None else ce_weight), (1 if error_weight is None else error_weight)


def _np_mixture(p, y, z, **params):
    ce, error = _mixture_weights(**params)
    return -ce * np.log(_true(p, y)) + error * (1 - _true(p, y))


def _mp_mixture(row, **params):
    ce, error = _mixture_weights(**params)
    ce_part = 0 if ce == 0 else -mp.mpf(ce) * row.u
    return ce_part + mp.mpf(error) * row.error


def _np_hinge(p, y, z, margin=1.0):
    slack = np.maximum(0, margin - z[np.arange(len(y)), y][:, None] + z)
    slack[np.arange(len(y)), y] = 0
    return slack.sum(1) / max(1, z.shape[1] - 1)


def _mp_hinge(row, margin=1.0):
    true, rivals = mp.mpf(row.logits[row.target]), row.rivals()
    slacks = [max(mp.mpf(0), mp.mpf(margin) - (true - mp.mpf(z))) for z in rivals]
    return mp.fsum(slacks) / max(1, len(rivals))


def _np_complement(p, y, z):
    q = p.copy()
    q[np.arange(len(y)), y] = 0
    q /= q.sum(1, keepdims=True)
    return (q * np.log(np.where(q > 0, q, 1))).sum(1)


def _mp_complement(row):
    rivals = row.rivals()
    if len(rivals) < 2:
        return mp.mpf(0)
    top = max(rivals)
    terms = [mp.exp(mp.mpf(z) - top) for z in rivals]
    lead = rivals.index(top)
    rest = mp.fsum(terms[:lead] + terms[lead + 1 :])
    log_total = mp.log1p(rest)  # the leading rival's own term is 1
    logs = [mp.mpf(z) - top - log_total for z in rivals]
    return mp.fsum(mp.exp(value) * value for value in logs)


def _np_mpce(p, y, z):
    return -(p.max(1) - _true(p, y)) * np.log(_true(p, y))


def _mp_mpce(row):
    gap = mp.mpf(max(row.logits)) - mp.mpf(row.logits[row.target])
    return -row.u * row.p * mp.expm1(gap)


def _mp_poly1(row, epsilon=1.0):
    if epsilon >= 0:
        return -row.u + mp.mpf(epsilon) * row.error
    # -u and the error cancel: (1 + epsilon)(-u) - epsilon (e^u - 1 - u), the latter by its series.
    u = row.u
    rest = u * u / 2 * (1 + u / 3 + u * u / 12) if abs(u) < 1e-9 else mp.expm1(u) - u
    return -(1 + mp.mpf(epsilon)) * u - mp.mpf(epsilon) * rest


LOSSES = (
    LossRow(
        "expected_error",
        numpy=lambda p, y, z: 1 - _true(p, y),
        exact=lambda row: row.error,
        gradient_bound=0.25,
    ),
    LossRow(
        "leaky_expected_error",
        numpy=lambda p, y, z, leak=0.1: 1 - _true(p, y) - leak * np.log(_true(p, y)),
        exact=lambda row, leak=0.1: row.error - (mp.mpf(leak) * row.u if leak else 0),
        settings=({}, {"leak": 0.0}, {"leak": 1e-6}, {"leak": 2.0}),
    ),
    LossRow(
        "mixed_expected_error",
        numpy=_np_mixture,
        exact=_mp_mixture,
        settings=(
            {},
            {"focus": 0.3},
            {"focus": 0.5},
            {"ce_weight": 1.0, "error_weight": 0.0},
            {"ce_weight": 0.0, "error_weight": 3.0},
            {"error_weight": 0.25},
        ),
    ),
    LossRow(
        "hinge",
        numpy=_np_hinge,
        exact=_mp_hinge,
        settings=({}, {"margin": 5.0}),
        curve=False,
        soft=False,
        gradient_bound=1.0,
    ),
    LossRow(
        "focal",
        numpy=lambda p, y, z, gamma=2.0, alpha=0.25: (
            -(1 if alpha is None else alpha) * (1 - _true(p, y)) ** gamma * np.log(_true(p, y))
        ),
        exact=lambda row, gamma=2.0, alpha=0.25: (
            -mp.mpf(1 if alpha is None else alpha) * row.error ** mp.mpf(gamma) * row.u
        ),
        settings=(
            {},
            {"gamma": 0.0},
            {"gamma": 0.5},
            {"gamma": 1.0, "alpha": None},
            {"gamma": 5.0},
        ),
    ),
    LossRow(
        "mean_absolute_error",
        numpy=lambda p, y, z: np.abs(np.eye(p.shape[1])[y] - p).sum(1),
        exact=lambda row: 2 * row.error,
        gradient_bound=0.5,
    ),
    LossRow(
        "generalized_cross_entropy",
        numpy=lambda p, y, z, q=0.7, truncation=None: (
            (1 - np.maximum(_true(p, y), truncation or 0) ** q) / q
        ),
        exact=lambda row, q=0.7, truncation=None: (
            -mp.expm1(mp.mpf(q) * max(row.u, mp.log(truncation) if truncation else row.u))
            / mp.mpf(q)
        ),
        settings=({}, {"q": 0.01}, {"q": 0.3}, {"q": 1.0}, {"q": 0.7, "truncation": 0.5}),
    ),
    LossRow(
        "tamed_cross_entropy",
        numpy=lambda p, y, z, taming=0.8: (
            np.log(1 - np.log(_true(p, y)))
            if taming == 1
            else ((1 - np.log(_true(p, y))) ** (1 - taming) - 1) / (1 - taming)
        ),
        exact=lambda row, taming=0.8: (
            mp.log1p(-row.u)
            if taming == 1
            else mp.expm1((1 - mp.mpf(taming)) * mp.log1p(-row.u)) / (1 - mp.mpf(taming))
        ),
        settings=({}, {"taming": 0.0}, {"taming": 0.5}, {"taming": 1}, {"taming": 2.0}),
        gradient_bound=1.0,
    ),
    LossRow(
        "partially_huberized_cross_entropy",
        numpy=lambda p, y, z, threshold=0.5: np.where(
            _true(p, y) >= threshold,
            -np.log(_true(p, y)),
            1 + np.log(1 / threshold) - _true(p, y) / threshold,
        ),
        exact=lambda row, threshold=0.5: (
            -row.u
            if row.p >= mp.mpf(threshold)
            else 1 - mp.log(mp.mpf(threshold)) - row.p / mp.mpf(threshold)
        ),
        settings=({}, {"threshold": 0.1}, {"threshold": 0.001}),
        gradient_bound=1.0,
    ),
    LossRow(
        "complement_entropy",
        numpy=_np_complement,
        exact=_mp_complement,
        curve=False,
        soft=False,
    ),
    LossRow(
        "maximum_probability_cross_entropy",
        numpy=_np_mpce,
        exact=_mp_mpce,
        curve=False,
    ),
    LossRow(
        "poly1_cross_entropy",
        numpy=lambda p, y, z, epsilon=1.0: -np.log(_true(p, y)) + epsilon * (1 - _true(p, y)),
        exact=_mp_poly1,
        settings=({}, {"epsilon": -1.0}, {"epsilon": -0.5}, {"epsilon": 0.0}, {"epsilon": 4.0}),
    ),
)


def _np_jensen_shannon(p, y, z, label_share=0.7):
    """By its definition: two divergences from the mixture, scaled."""
    label, rest = np.eye(p.shape[1])[y], 1 - label_share
    mixed = label_share * label + rest * p
    of_label = -np.log((label * mixed).sum(1))
    of_softmax = (p * np.log(p / mixed)).sum(1)
    return (label_share * of_label + rest * of_softmax) / (-rest * np.log(rest))


def _mp_jensen_shannon(row, label_share=0.7):
    # A class that is not the label has p_j log(p_j / m_j) = -p_j log(1 - share).
    share = mp.mpf(label_share)
    if row.p > mp.mpf("0.5"):
        log_mixed = mp.log1p((share - 1) * row.error)
    else:
        log_mixed = mp.log(share + (1 - share) * row.p)
    own = row.p * (row.u - log_mixed) if row.p else mp.mpf(0)
    others = -row.error * mp.log1p(-share)
    total = -share * log_mixed + (1 - share) * (own + others)
    return total / ((share - 1) * mp.log1p(-share))


def _np_symmetric(p, y, z, ce_weight=0.1, rce_weight=1.0):
    """Cross entropy both ways, zeros of the label replaced by 1e-4 as in the authors' code."""
    label = np.clip(np.eye(p.shape[1])[y], 1e-4, 1)
    return -ce_weight * np.log(_true(p, y)) - rce_weight * (p * np.log(label)).sum(1)


LOSSES += (
    LossRow(
        "taylor_cross_entropy",
        numpy=lambda p, y, z, terms=2: sum((1 - _true(p, y)) ** i / i for i in range(1, terms + 1)),
        exact=lambda row, terms=2: mp.fsum(row.error**i / i for i in range(1, terms + 1)),
        settings=({}, {"terms": 1}, {"terms": 6}),
        gradient_bound=1.0,
    ),
    LossRow(
        "jensen_shannon",
        numpy=_np_jensen_shannon,
        exact=_mp_jensen_shannon,
        settings=({}, {"label_share": 0.001}, {"label_share": 0.3}, {"label_share": 0.99}),
        gradient_bound=1.0,
    ),
    LossRow(
        "reverse_cross_entropy",
        numpy=lambda p, y, z: _np_symmetric(p, y, z, ce_weight=0.0),
        exact=lambda row: -mp.log(mp.mpf(1e-4)) * row.error,
        gradient_bound=2.303,
    ),
    LossRow(
        "symmetric_cross_entropy",
        numpy=_np_symmetric,
        exact=lambda row, ce_weight=0.1, rce_weight=1.0: (
            (-mp.mpf(ce_weight) * row.u if ce_weight else 0)
            - mp.mpf(rce_weight) * mp.log(mp.mpf(1e-4)) * row.error
        ),
        settings=({}, {"ce_weight": 0.0}, {"ce_weight": 6.0, "rce_weight": 0.1}),
    ),
    LossRow(
        "asymmetric_generalized_cross_entropy",
        numpy=lambda p, y, z, a=0.6, q=0.6: ((a + 1) ** q - (a + _true(p, y)) ** q) / q,
        exact=lambda row, a=0.6, q=0.6: (
            -((mp.mpf(a) + 1) ** q) * mp.expm1(q * mp.log1p(-row.error / (mp.mpf(a) + 1))) / q
        ),
        settings=({}, {"a": 6.0, "q": 1.5}, {"a": 0.01, "q": 3.0}),
    ),
    LossRow(
        "asymmetric_unhinged",
        numpy=lambda p, y, z, a=5.5, q=3.0: ((a - _true(p, y)) ** q - (a - 1) ** q) / q,
        exact=lambda row, a=5.5, q=3.0: (
            (mp.mpf(a) - 1) ** q * mp.expm1(q * mp.log1p(row.error / (mp.mpf(a) - 1))) / q
        ),
        settings=({}, {"a": 6.3, "q": 1.5}, {"a": 1.01, "q": 0.5}),
    ),
    LossRow(
        "asymmetric_exponential",
        numpy=lambda p, y, z, a=2.5: np.exp(-_true(p, y) / a) - np.exp(-1 / a),
        exact=lambda row, a=2.5: mp.exp(-1 / mp.mpf(a)) * mp.expm1(row.error / mp.mpf(a)),
        settings=({}, {"a": 0.2}),
    ),
)


# ------------------------------------------------------- divided by their sums over the classes


@functools.cache
def _all_u(logits: tuple[float, ...]) -> tuple[mp.mpf, ...]:
    """log p of every class that is not masked, exact for the largest too."""
    present = [mp.mpf(z) for z in logits if z > -float("inf")]
    top = max(present)
    terms = [mp.exp(z - top) for z in present]
    lead = present.index(top)
    log_total = mp.log1p(mp.fsum(terms[:lead] + terms[lead + 1 :]))
    return tuple(z - top - log_total for z in present)


@functools.cache
def _mp_sum(logits: tuple[float, ...], gamma: float) -> mp.mpf:
    """Of the focal terms of all classes; gamma 0: of their log p."""
    return mp.fsum(_mp_focal(u, gamma) for u in _all_u(logits))


def _mp_focal(u, gamma):
    return (-mp.expm1(u)) ** mp.mpf(gamma) * u if gamma else u


def _mp_part(row, gamma=0.0):
    """f(u_y) / Σ_j f(u_j), 0 where there is no rival."""
    if not row.rivals():
        return mp.mpf(0)
    return _mp_focal(row.u, gamma) / _mp_sum(row.logits, gamma)


def _np_part(values, y):
    return values[np.arange(len(y)), y] / values.sum(1)


def _np_active_negative(p, y, z, active_weight=5.0, negative_weight=5.0, floor=1e-7):
    above = np.log(np.maximum(p, floor)) - np.log(floor)
    return active_weight * _np_part(np.log(p), y) + negative_weight * (1 - _np_part(above, y))


def _mp_active_negative(row, active_weight=5.0, negative_weight=5.0, floor=1e-7):
    least = mp.log(mp.mpf(floor))
    every = [max(u - least, 0) for u in _all_u(row.logits)]
    rivals = mp.fsum(every) - max(row.u - least, 0)
    negative = rivals / mp.fsum(every) if any(every) else mp.mpf(0)
    return mp.mpf(active_weight) * _mp_part(row) + mp.mpf(negative_weight) * negative


def _active_passive(name, passive, active_weight, passive_weight, settings):
    """The row of a sum, from the row of its passive part."""
    (other,) = [row for row in LOSSES if row.name == passive]

    def in_numpy(p, y, z, active_weight=active_weight, passive_weight=passive_weight, **own):
        return active_weight * _np_part(np.log(p), y) + passive_weight * other.numpy(p, y, z, **own)

    def in_mpmath(row, active_weight=active_weight, passive_weight=passive_weight, **own):
        active = mp.mpf(active_weight) * _mp_part(row)
        return active + mp.mpf(passive_weight) * other.exact(row, **own)

    return LossRow(
        name, numpy=in_numpy, exact=in_mpmath, settings=settings, curve=False, blocks=True
    )


LOSSES += (
    LossRow(
        "normalized_cross_entropy",
        numpy=lambda p, y, z: _np_part(np.log(p), y),
        exact=lambda row: _mp_part(row),
        curve=False,
        blocks=True,
    ),
    LossRow(
        "normalized_focal",
        numpy=lambda p, y, z, gamma=0.5: _np_part((1 - p) ** gamma * np.log(p), y),
        exact=lambda row, gamma=0.5: _mp_part(row, gamma),
        settings=({}, {"gamma": 0.0}, {"gamma": 2.0}),
        curve=False,
        blocks=True,
    ),
    LossRow(
        "active_negative",
        numpy=_np_active_negative,
        exact=_mp_active_negative,
        settings=({}, {"active_weight": 1.0, "floor": 0.01}),
        curve=False,
        blocks=True,
    ),
    _active_passive(
        "normalized_and_reverse_cross_entropy",
        "reverse_cross_entropy",
        1.0,
        1.0,
        ({}, {"active_weight": 10.0, "passive_weight": 0.1}),
    ),
    *(
        _active_passive(f"normalized_and_{name}", passive, 1.0, 4.0, (usual, {**usual, **numbers}))
        for name, passive, usual, numbers in (
            (
                "asymmetric_generalized",
                "asymmetric_generalized_cross_entropy",
                {"a": 6.0, "q": 1.5},
                {"active_weight": 10.0, "passive_weight": 0.1, "a": 1.8, "q": 3.0},
            ),
            (
                "asymmetric_unhinged",
                "asymmetric_unhinged",
                {"a": 6.3, "q": 1.5},
                {"active_weight": 0.0, "passive_weight": 1.0},
            ),
            ("asymmetric_exponential", "asymmetric_exponential", {"a": 5.0}, {"a": 0.5}),
        )
    ),
)


# ---------------------------------------------------------------------- another softmax


def _np_bi_tempered(p, y, z, t1=0.8, t2=1.2):
    """The normaliser by bisection between its bounds."""

    def log_t(x, t):
        return np.log(x) if t == 1 else (x ** (1 - t) - 1) / (1 - t)

    def exp_t(x, t):
        return np.exp(x) if t == 1 else (1 + (1 - t) * x) ** (1 / (1 - t))

    low = z.max(1, keepdims=True)
    high = low - log_t(1 / z.shape[1], t2)
    for _ in range(200):
        middle = (low + high) / 2
        short = exp_t(z - middle, t2).sum(1, keepdims=True) > 1
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    q = exp_t(z - middle, t2)
    bregman = (1 - (q ** (2 - t1)).sum(1)) / (2 - t1)
    return -log_t(_true(q, y), t1) - bregman


def _np_epsilon(p, y, z, ce_weight=0.01, mae_weight=5.0, boost=1e5):
    q = p.copy()
    q[np.arange(len(y)), p.argmax(1)] += boost
    label = np.eye(p.shape[1])[y]
    return -ce_weight * np.log(_true(q, y) / (1 + boost)) + mae_weight * np.abs(label - p).sum(1)


def _mp_epsilon(row, ce_weight=0.01, mae_weight=5.0, boost=1e5):
    if row.logits[row.target] >= max(row.logits):
        entropy = -mp.log1p(-row.error / (1 + mp.mpf(boost)))
    else:
        entropy = mp.log1p(mp.mpf(boost)) - row.u
    return mp.mpf(ce_weight) * entropy + 2 * mp.mpf(mae_weight) * row.error


LOSSES += (
    LossRow(
        "bi_tempered",
        numpy=_np_bi_tempered,
        exact=None,  # test_tempered.py
        settings=({}, {"t1": 0.0, "t2": 4.0}, {"t1": 1.0}, {"t2": 1}, {"t1": 1, "t2": 1}),
        curve=False,
    ),
    LossRow(
        "epsilon_softmax",
        numpy=_np_epsilon,
        exact=_mp_epsilon,
        settings=({}, {"ce_weight": 1.0, "mae_weight": 0.0, "boost": 0.5}),
        curve=False,
    ),
)


def _np_exact(p, y, z, sigma=1.0, margin=None, standardize=True, noise="normal", topk=1, log=False):
    """The integral over the true class's noise by adaptive quadrature, rival by rival."""
    from scipy import integrate, stats

    if standardize:
        z = (z - z.mean()) / z.std(ddof=1)
    law = {
        "normal": stats.norm,
        "gumbel": stats.gumbel_r,
        "logistic": stats.logistic,
        "laplace": stats.laplace,
    }[noise]()
    reach = 9 if noise == "normal" else 45
    values = []
    for row, label in zip(z, y, strict=True):
        lead = row[label] - np.delete(row, label)
        lead = (lead if margin is None else np.minimum(lead, margin)) / sigma

        def win(noise_of_true, lead=lead):
            counts = [1.0] + [0.0] * (topk - 1)
            for below in law.cdf(noise_of_true + lead):
                counts = [
                    count * below + (counts[j - 1] * (1 - below) if j else 0)
                    for j, count in enumerate(counts)
                ]
            return law.pdf(noise_of_true) * sum(counts)

        kinks = sorted({0.0, *(-lead[np.abs(lead) < reach])})
        ends = [-reach, *kinks, reach]
        chance = sum(
            integrate.quad(win, a, b, epsabs=1e-14, epsrel=1e-13, limit=200)[0]
            for a, b in itertools.pairwise(ends)
        )
        values.append(-np.log(chance) if log else 1 - chance)
    return np.array(values)


LOSSES += (
    LossRow(
        "exact",
        numpy=_np_exact,
        exact=None,
        settings=tuple(
            {"standardize": False, **params}
            for params in (
                {},
                {"sigma": 0.5, "margin": 1.5},
                {"log": True},
                {"noise": "gumbel", "sigma": 2.0},
                {"noise": "logistic"},
                {"noise": "laplace", "margin": 3.0},
                {"topk": 2},
            )
        ),
        curve=False,
        twice=False,
    ),
)


def _equal_costs(logits, target, weight=None, **options):
    """A mistake costs 3, whichever it is: what no permutation of the classes changes."""
    classes = logits.shape[min(1, logits.ndim - 1)]
    cost = 3 * (1 - torch.eye(classes, dtype=logits.dtype, device=logits.device))
    return functional.expected_cost(logits, target, cost, weight, **options)


def _identity_layer(features, target, weight=None, **options):
    """A layer whose logits are its features."""
    same = torch.eye(features.shape[-1], dtype=features.dtype, device=features.device)
    return functional.linear_mixed_expected_error(
        features, same, None, target, class_weight=weight, chunk_rows=16, **options
    )


LOSSES += (
    LossRow(
        "expected_cost",
        numpy=lambda p, y, z: (3 * (1 - np.eye(p.shape[1]))[y] * p).sum(1),
        exact=None,
        adapt=_equal_costs,
        curve=False,
    ),
)


def _mp_distance(row, power=1.0, sigma=1.0):
    parts = {
        j: mp.exp((mp.mpf(z) - mp.mpf(row.logits[row.target])) / mp.mpf(sigma))
        for j, z in enumerate(row.logits)
        if j != row.target and z > -float("inf")
    }
    costs = mp.fsum(abs(j - row.target) ** mp.mpf(power) * part for j, part in parts.items())
    return costs / (1 + mp.fsum(parts.values()))


def _np_distance(p, y, z, power=1.0, sigma=1.0):
    p = np.exp(z / sigma) / np.exp(z / sigma).sum(1, keepdims=True)
    cost = np.abs(np.subtract.outer(np.arange(p.shape[1]), np.arange(p.shape[1]))) ** power
    return (cost[y] * p).sum(1)


LOSSES += (
    LossRow(
        "expected_distance",
        numpy=_np_distance,
        exact=_mp_distance,
        settings=({}, {"power": 2}, {"power": 1.5, "sigma": 2.0}),
        curve=False,
        ordered=True,
    ),
)
# Losses that make their logits themselves: under the laws of rows (N, C) of finite features.
HEADS = (
    LossRow(
        "linear_mixed_expected_error",
        numpy=_np_mixture,
        exact=None,
        settings=({}, {"focus": 0.5}, {"ce_weight": 0.2, "error_weight": 1.0}),
        adapt=_identity_layer,
        curve=False,
        soft=False,
        logits=False,
    ),
)

CASES = [(row, params) for row in LOSSES for params in row.settings]
CASE_IDS = [
    row.name + "".join(f"-{key}={value}" for key, value in params.items()) for row, params in CASES
]
every_loss = pytest.mark.parametrize(
    "row", LOSSES + HEADS, ids=[row.name for row in LOSSES + HEADS]
)


def every_case(where: Callable[[LossRow], bool] = lambda row: row.logits):
    """Run a test for every loss and setting of the rows ``where`` it applies."""
    cases = {
        row.name + "".join(f"-{key}={value}" for key, value in params.items()): (row, params)
        for row in LOSSES + HEADS
        for params in row.settings
        if where(row)
    }
    return pytest.mark.parametrize(("row", "numbers"), cases.values(), ids=cases)


# ------------------------------------------------------------------------ yes/no labels


@dataclass(frozen=True)
class BinaryRow:
    """A loss of one logit per label: under the laws of ``test_binary.py``.

    ``exact`` is the loss of a yes at z in mpmath; ``sibling`` that of two classes, whose loss of
    logits (0, z) it must equal.
    """

    name: str
    exact: Callable[..., Any]
    sibling: Callable[..., Tensor]
    settings: tuple[dict[str, Any], ...] = ({},)
    gaussian: bool = False

    @property
    def function(self) -> Callable[..., Tensor]:
        return SPECS[self.name].function

    @property
    def module(self) -> type[nn.Module]:
        return SPECS[self.name].module


def _mp_binary_mixture(z, **params):
    ce, error = _mixture_weights(**params)
    odds = mp.exp(-mp.mpf(z))
    return (mp.mpf(ce) * mp.log1p(odds) if ce else 0) + mp.mpf(error) * odds / (1 + odds)


def _mp_binary_exact(z, sigma=1.0, margin=None, log=False):
    lead = min(mp.mpf(z), mp.mpf(margin)) if margin else mp.mpf(z)
    error = mp.erfc(lead / (2 * mp.mpf(sigma))) / 2
    if not log:
        return error
    return -mp.log1p(-error) if lead > 0 else -mp.log(mp.erfc(-lead / (2 * mp.mpf(sigma))) / 2)


def _exact_of_two(logits, target, **options):
    return functional.exact_error(logits, target, standardize=False, **options)


BINARY = (
    BinaryRow(
        "binary_expected_error",
        exact=lambda z: _mp_binary_mixture(z, focus=0.5),
        sibling=functional.expected_error,
    ),
    BinaryRow(
        "binary_leaky_expected_error",
        exact=lambda z, leak=0.1: _mp_binary_mixture(z, ce_weight=leak, error_weight=1),
        sibling=functional.leaky_expected_error,
        settings=({}, {"leak": 0.0}, {"leak": 2.0}),
    ),
    BinaryRow(
        "binary_mixed_expected_error",
        exact=_mp_binary_mixture,
        sibling=functional.mixed_expected_error,
        settings=(
            {},
            {"focus": 0.3},
            {"focus": 0.5},
            {"ce_weight": 1.0, "error_weight": 0.0},
            {"ce_weight": 0.0, "error_weight": 3.0},
        ),
    ),
    BinaryRow(
        "binary_exact",
        exact=_mp_binary_exact,
        sibling=_exact_of_two,
        settings=({}, {"sigma": 0.5}, {"sigma": 2.0, "margin": 1.0}, {"log": True}),
        gaussian=True,
    ),
)


# ----------------------------------------------------------------------- losses of a batch


@dataclass(frozen=True)
class BatchRow:
    """A loss of a whole batch, without a reduction: under the laws of ``test_batch_losses.py``.

    ``numpy`` takes the expected confusion matrix.
    """

    name: str
    numpy: Callable[..., float]
    settings: tuple[dict[str, Any], ...] = ({},)

    @property
    def function(self) -> Callable[..., Tensor]:
        return SPECS[self.name].function

    @property
    def module(self) -> type[nn.Module]:
        return SPECS[self.name].module


def _np_balanced(matrix, weight):
    there = matrix.sum(1) > 0
    recall = np.diag(matrix)[there] / matrix.sum(1)[there]
    return 1 - np.average(recall, weights=weight[there])


def _np_f1(matrix, weight, average="macro"):
    hits, either = 2 * np.diag(matrix), matrix.sum(0) + matrix.sum(1)
    if average == "micro":
        return 1 - (weight * hits).sum() / (weight * either).sum()
    there = matrix.sum(1) > 0
    return 1 - np.average(hits[there] / either[there], weights=weight[there])


BATCH = (
    BatchRow("expected_balanced_error", numpy=_np_balanced),
    BatchRow("expected_f1_error", numpy=_np_f1, settings=({}, {"average": "micro"})),
)


def every_setting(rows):
    """Run a test for every loss and setting of ``rows``."""
    cases = {
        row.name + "".join(f"-{key}={value}" for key, value in params.items()): (row, params)
        for row in rows
        for params in row.settings
    }
    return pytest.mark.parametrize(("row", "numbers"), cases.values(), ids=cases)
