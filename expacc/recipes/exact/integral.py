"""The integrals of exact-integral: their values to rounding, and how estimates are held to them."""

import functools
import math
import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import log_ndtr
from torch import Tensor

from expacc.ops.sampling import genz_orthant_prob, log_derivative_orthant_prob
from expacc.probabilities import orthant_prob
from expacc.recipes.exact import INTEGRAL
from expacc.recipes.page import Claim, Comparison, Number, Page, Section
from expacc.recipes.paper import Layout
from expacc.recipes.recipe import RecipeOptions, Work, failed_row, final_row
from expacc.report.panels import Line, Panel, power, powers
from expacc.report.words import NONE, looks
from expacc.runner.items import Shared, WorkItem
from expacc.runner.rows import Row

MEAN = (1.0, 2.0, 0.5, 10.0, 6.0, -3.0, -4.0, 5.0, 1.0, 0.0)  # Appendix C


@dataclass(frozen=True)
class Case:
    """P(all margins positive), the margins being N(m, I + 11ᵀ).

    Args:
        name: in keys.
        title: for people.
        margins: m, the lead of the true class over each rival in units of σ.
        about: what it stands for.
    """

    name: str
    title: str
    margins: tuple[float, ...]
    about: str


def _drawn(rivals: int) -> tuple[float, ...]:
    """Leads among standard normal logits."""
    draw = random.Random(16)
    own, *others = (draw.gauss(0, 1) for _ in range(rivals + 1))
    return tuple(round(own - other, 3) for other in others)


CASES = {
    case.name: case
    for case in (
        Case("paper", "the paper's", MEAN, "Appendix C, its numbers taken for the margins"),
        Case(
            "paper-logits",
            "the paper's as logits",
            tuple(MEAN[3] - other for i, other in enumerate(MEAN) if i != 3),
            "Appendix C, its numbers taken for ten logits of which the largest is the true one",
        ),
        Case("level", "ten level classes", (0.0,) * 9, "as training begins, σ large"),
        Case("drawn", "16 drawn classes", _drawn(15), "standard normal logits, σ = 1"),
        Case("ahead", "well ahead", (4.0,) * 9, "a row that is right, σ small"),
        Case("behind", "far behind", (-10.0,) * 9, "a row that is wrong, σ small"),
    )
}


@dataclass(frozen=True)
class Truth:
    """A case's value and gradient.

    Args:
        value: P.
        gradient: ∂P/∂m.
        doubt: how much the value changes, relatively, when every second node is left out.
    """

    value: float
    gradient: tuple[float, ...]
    doubt: float


def truth(margins: tuple[float, ...]) -> Truth:
    """The trapezoid rule with very many nodes over ∫ φ(z) ∏ Φ(z + m_i) dz, float64.

    Independent of this library's own rule: no mode, no map, no torch. The integrand is analytic and
    falls like a Gaussian, so that the rule converges faster than any power of the distance.
    """
    z, step = np.linspace(-40.0, 40.0, 20_001), 80.0 / 20_000  # z[1] - z[0] would lose digits
    log_phi = -0.5 * z**2 - 0.5 * math.log(2 * math.pi)
    shifted = z[:, None] + np.array(margins)
    log_cdf = log_ndtr(shifted)
    integrand = log_phi + log_cdf.sum(1)
    scale = integrand.max()
    weights = np.exp(integrand - scale)
    total, coarse = weights.sum() * step, weights[::2].sum() * 2 * step
    log_density = -0.5 * shifted**2 - 0.5 * math.log(2 * math.pi)
    gradient = (weights[:, None] * np.exp(log_density - log_cdf)).sum(0) * step * np.exp(scale)
    return Truth(
        value=float(total * np.exp(scale)),
        gradient=tuple(float(part) for part in gradient),
        doubt=float(abs(total - coarse) / total),
    )


CLIP = 5.0  # of the authors' code
CELLS = 1 << 22  # numbers in a buffer of the sampler, 32 MiB
Estimate = Callable[..., Tensor]  # of margins, samples and a generator
_PRECISIONS = {"ours": torch.float64, "ours32": torch.float32}
SAMPLES = tuple(2**power for power in range(11))  # 1 … 1024
REPEATS, QUICK_REPEATS = 1000, 100
IN_ORDER = ("paper", "paper-logits", "drawn")  # cases in which the order of the rivals matters
PAPERS_TRUTH = 1_000_000  # samples


def plan(ask: RecipeOptions) -> Work:
    """Every method on every case; the many small numbers of samples together."""
    samples = SAMPLES[:8] if ask.quick else SAMPLES
    repeats = ask.seeds or (QUICK_REPEATS if ask.quick else REPEATS)
    # The few large ones each on its own.
    cut = [[n for n in samples if n < 128], *([n] for n in samples if n >= 128)]
    parts: list[tuple[str, str, list[int], object, int]] = []
    for case in ["paper", "level"] if ask.quick else list(CASES):
        parts += [(case, method, list(samples), "", 1) for method in _PRECISIONS]
        for method in ("log_derivative", "genz", *(["genz_given"] if case in IN_ORDER else [])):
            parts += [(case, method, some, some[-1], repeats) for some in cut]
    if not ask.quick:
        parts += [("paper", one, [PAPERS_TRUTH], "truth", 1) for one in ("genz_given", "genz")]
    items = []
    for case, method, sizes, name, times in parts:
        asked = {"case": case, "seed": ask.seed, "repeats": times}
        key = f"{case}/{method}" + (f"/{name}" if name else "")
        items.append(WorkItem(key, {**asked, "method": method, "samples": sizes}))
    facts = {"repeats": repeats, "quick": ask.quick}
    return Work(tuple(items), "expacc.recipes.exact.integral:execute", failed_row, facts=facts)


def execute(item: WorkItem, shared: Shared) -> list[Row]:
    """The rows of one method on one case: one per number of samples in the payload."""
    case, method = CASES[item.payload["case"]], item.payload["method"]
    if method in _PRECISIONS:
        return [_ours(item, case, method, nodes) for nodes in item.payload["samples"]]
    return [_sampled(item, case, method, samples) for samples in item.payload["samples"]]


def _row(item: WorkItem, case: Case, method: str, samples: int, errors: dict[str, float]) -> Row:
    exact = truth(case.margins)
    return final_row(
        item,
        f"{samples}",
        table=case.name,
        loss=method,
        numbers={"samples": samples, "repeats": item.payload["repeats"]},
        metrics={
            **errors,
            "value": exact.value,
            "gradient_norm": math.hypot(*exact.gradient),
            "doubt": exact.doubt,
        },
    )


def _ours(item: WorkItem, case: Case, method: str, nodes: int) -> Row:
    margins = torch.tensor(case.margins, dtype=_PRECISIONS[method], requires_grad=True)
    value = orthant_prob(margins, nodes=nodes)
    (gradient,) = torch.autograd.grad(value, margins)
    # The truth is that of the margins as the dtype has them.
    exact = truth(tuple(margins.double().tolist()))
    off = gradient.double() - torch.tensor(exact.gradient, dtype=torch.float64)
    errors = {
        "value_rmse": abs(value.item() - exact.value),
        "gradient_rmse": off.square().mean().sqrt().item(),
        "value_mean": value.item(),
    }
    return _row(item, case, method, nodes, errors)


_SAMPLERS: dict[str, Estimate] = {
    "log_derivative": log_derivative_orthant_prob,  # Monte Carlo
    "genz_given": functools.partial(genz_orthant_prob, clip=CLIP, sort=False),
    "genz": functools.partial(genz_orthant_prob, clip=CLIP, sort=True),  # as released
}


def _sampled(item: WorkItem, case: Case, method: str, samples: int) -> Row:
    """Root mean square errors over repeats, each with random numbers of its own."""
    repeats = int(item.payload["repeats"])
    estimate = _SAMPLERS[method]
    # A stream of its own for each row, whatever the other rows are.
    stream = f"{item.payload['seed']}/{item.key}/{samples}"
    generator = torch.Generator().manual_seed(zlib.crc32(stream.encode()))
    exact = truth(case.margins)
    gradient_truth = torch.tensor(exact.gradient, dtype=torch.float64)
    margins = torch.tensor(case.margins, dtype=torch.float64)
    rivals = len(case.margins)
    per_repeat = samples * rivals * (rivals + 1)
    block, pieces = max(1, CELLS // per_repeat), max(1, per_repeat // CELLS)
    value_square = gradient_square = value_sum = 0.0
    done = 0
    while done < repeats:
        rows = min(block, repeats - done)
        values, gradients = _in_pieces(
            estimate, margins.expand(rows, -1), samples, pieces, generator
        )
        value_square += (values - exact.value).square().sum().item()
        gradient_square += (gradients - gradient_truth).square().sum().item()
        value_sum += values.sum().item()
        done += rows
    errors = {
        "value_rmse": math.sqrt(value_square / repeats),
        "gradient_rmse": math.sqrt(gradient_square / (repeats * rivals)),
        "value_mean": value_sum / repeats,
    }
    return _row(item, case, method, samples, errors)


def _in_pieces(
    estimate: Estimate, margins: Tensor, samples: int, pieces: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Value and gradient with so many samples, as the mean of several with fewer: less memory."""
    leaf = margins.clone().requires_grad_()
    value, gradient = torch.zeros(len(margins)).double(), torch.zeros(margins.shape).double()
    for piece in range(pieces):
        share = samples * (piece + 1) // pieces - samples * piece // pieces
        part = estimate(leaf, samples=share, generator=generator)
        (slope,) = torch.autograd.grad(part.sum(), leaf)
        value += part.detach() * (share / samples)
        gradient += slope * (share / samples)
    return value, gradient


# ----------------------------------------------------------------------------------------- the page

SAMPLERS = ("genz_given", "genz")
PAPERS = {"paper": "as margins", "paper-logits": "as logits"}  # two readings of Appendix C
DIGITS = 1e-10  # of a gradient
MOST = 1024  # samples; what has more is there to be the truth
LOWEST = 1e-19  # what is 0 is drawn here
METHODS = {
    "log_derivative": "Monte Carlo, log-derivative",
    "genz_given": "Genz, rivals as given",
    "genz": "Genz, rivals sorted",
    "ours": "ours, float64",
    "ours32": "ours, float32",
}
# The loss whose colour a method has, its dash and marker.
_STYLES = (
    ("leaky_expected_error", "-", "D"),
    ("mixed_expected_error", "--", "v"),
    ("mixed_expected_error", "-", "^"),
    ("exact", "-", "o"),
    ("exact", "--", "s"),
)
_LOOK = looks({loss for loss, _, _ in _STYLES} | {"cross_entropy", "hinge", "focal"})

BySize = Mapping[str, Mapping[int, Row]]  # method → samples → row


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    found: dict[str, dict[str, dict[int, Row]]] = {}
    for row in rows:
        if row.failure is None:
            by_method = found.setdefault(row.table, {})
            by_method.setdefault(row.loss, {})[int(row.numbers["samples"])] = row
    cases = {
        name: {m: dict(sorted(found[name][m].items())) for m in METHODS if m in found[name]}
        for name in CASES
        if name in found
    }
    layout = Layout("exact", "exact-integral", {"repeats": 0, **INTEGRAL, **facts})
    paper, sections = cases.get("paper", {}), []
    if paper:
        panels = {"value_rmse": "the integral", "gradient_rmse": "its gradient"}
        drawn = [
            _errors(paper, metric, 1.0, title, "root mean square error")
            for metric, title in panels.items()
        ]
        charts = layout.panels("integral-errors", drawn)
        truths = [
            (METHODS[m], f"{n:,}", f"{row.metrics['value_rmse'] / row.metrics['value']:.1e}",
             f"{row.metrics['doubt']:.0e}")
            for m in SAMPLERS for n, row in paper.get(m, {}).items() if n > MOST
        ]  # fmt: skip
        sections = [
            layout.section("samples", beside=_samples(cases), charts=charts),
            layout.section("orders", beside=_orders(paper), grids=[layout.grid("truth", truths)]),
        ]
    return layout.page((*sections, _all_cases(layout, cases)), [_claim(layout, paper)])


def needed_samples(found: BySize, method: str, metric: str) -> float | None:
    """Samples of Monte Carlo that make up for one of ``method``: the ratio of their mean squares.

    Each mean square falls like 1/N, so that all N together say what one sample is worth: N times
    the mean square, weighted by the number of samples drawn.
    """
    squares = []
    for name in ("log_derivative", method):
        rows = [row for n, row in found.get(name, {}).items() if n <= MOST]
        sizes = [(int(r.numbers["samples"]), int(r.numbers["repeats"])) for r in rows]
        draws = sum(samples * repeats for samples, repeats in sizes)
        if not draws:
            return None
        both = zip(rows, sizes, strict=True)
        squares.append(sum(r.metrics[metric] ** 2 * n**2 * times for r, (n, times) in both) / draws)
    return squares[0] / squares[1] if squares[1] > 0 else None


def _next_power(value: float) -> float:
    """The power of two that is enough, as in the paper's figure."""
    return 2.0 ** math.ceil(math.log2(value)) if value > 1 else 1.0


def _relative(row: Row) -> float:
    """The error of a gradient in units of its length."""
    rivals = len(CASES[row.table].margins)
    return row.metrics["gradient_rmse"] * math.sqrt(rivals) / row.metrics["gradient_norm"]


def _claim(layout: Layout, found: BySize) -> Claim:
    needed = needed_samples(found, "genz_given", "gradient_rmse")
    if needed is None:
        return layout.claim("samples", "", None)
    return layout.claim("samples", f"{needed:,.0f}", _next_power(needed) == INTEGRAL["samples"])


def _errors(found: BySize, metric: str, by: float, title: str, y: str) -> Panel:
    lines, values = [], []
    for method, (loss, dash, marker) in zip(METHODS, _STYLES, strict=True):
        rows = [row for n, row in sorted(found.get(method, {}).items()) if n <= MOST]
        errors = [max(row.metrics[metric] / by, LOWEST) for row in rows]
        values += errors
        where, colour = [int(row.numbers["samples"]) for row in rows], _LOOK[loss].colour
        if rows:
            lines.append(Line(where, errors, METHODS[method], colour, marker, dash, 1.7))
    return Panel(
        title, lines, "samples, or nodes", y, log="xy",
        x_ticks={n: f"{n}" for n in (1, 4, 16, 64, 256, 1024)},
        y_ticks={at: power(at) for at in powers(values, 10)},
    )  # fmt: skip


def _samples(cases: Mapping[str, BySize]) -> Iterator[Comparison]:
    """Ours beside the paper's 256."""
    for name, reading in PAPERS.items():
        for method in SAMPLERS:
            needed = needed_samples(cases.get(name, {}), method, "gradient_rmse")
            if needed is not None:
                # The text speaks of the integral's own mean: the margins, in the order printed.
                literal = (name, method) == ("paper", "genz_given")
                theirs = Number(INTEGRAL["samples"]) if literal else None
                note = f"{needed:,.0f} before rounding up to a power of two"
                labels = (reading, METHODS[method])
                yield Comparison(labels, theirs, Number(_next_power(needed)), note)


def _orders(found: BySize) -> Iterator[Comparison]:
    """'An order of magnitude smaller error'."""
    for method in SAMPLERS:
        for metric, what in (("value_rmse", "integral"), ("gradient_rmse", "gradient")):
            needed = needed_samples(found, method, metric)
            if needed:
                theirs = Number(INTEGRAL["orders"]) if method == "genz_given" else None
                ours = Number(0.5 * math.log10(needed))
                yield Comparison((METHODS[method], what), theirs, ours)


def _all_cases(layout: Layout, cases: Mapping[str, BySize]) -> Section:
    """Every case at 16 samples, the authors' number, and at the most."""
    few, many, shown = [], [], []
    for name, found in cases.items():
        case, every = CASES[name], [row for rows in found.values() for row in rows.values()]
        at_16 = [found.get(method, {}).get(16) for method in METHODS]
        errors = [NONE if row is None else f"{_relative(row):.1e}" for row in at_16]
        few.append((case.title, case.about, f"{every[0].metrics['value']:.3g}", *errors))
        shares = [_share(found.get(method, {})) for method in ("log_derivative", "genz")]
        enough = [n for n, row in found.get("ours", {}).items() if _relative(row) < DIGITS]
        many.append((case.title, *shares, f"{min(enough)}" if enough else NONE))
        norm = max(row.metrics["gradient_norm"] for row in every)
        by = norm / math.sqrt(len(case.margins))
        shown.append(_errors(found, "gradient_rmse", by, case.title, "relative error"))
    return layout.section(
        "cases",
        grids=[layout.grid("few", few, columns=METHODS.values()), layout.grid("many", many)],
        charts=layout.panels("integral-cases", shown),
    )


def _share(rows: Mapping[int, Row]) -> str:
    usual = [n for n in rows if n <= MOST]
    if not usual:
        return NONE
    metrics = rows[max(usual)].metrics
    return f"{metrics['value_mean'] / metrics['value']:.3g}"
