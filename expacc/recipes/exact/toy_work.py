"""What exact-toy runs: each part of its page is a work item, by the part's name in the payload."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from expacc.recipes.exact.toy import (
    LOSSES,
    LOWERING,
    TOYS,
    Found,
    Toy,
    accuracy,
    as_the_paper,
    best,
    best_threshold,
    descend_lowering_sigma,
    loss_of,
    risk,
    train_k_and_b,
)
from expacc.recipes.recipe import RecipeOptions, Work, failed_row, final_row
from expacc.runner.items import Shared, WorkItem
from expacc.runner.rows import Row

LOWEST_K, HIGHEST_K = 0.1, 3.0  # between which k starts at random
SIGMAS = {"three": (0.03, 0.1, 0.3, 1.0), "five": (0.1, 0.5, 2.0, 10.0)}  # Figure 3
MARGIN, MARGIN_SIGMAS = 0.1, (10.0, 0.3, 0.05)  # Figure 4
K_VIEW = (0.05, 8.0)  # of the landscapes


STARTS, QUICK_STARTS = 100, 10  # random starts beside the paper's own
# Noise, whether -log P; Gumbel's -log P is cross entropy. Logistic and Laplace noise take an
# integral at every step, so there are fewer starts and steps here.
NOISES = (
    *(("normal", False), ("gumbel", False), ("logistic", False), ("laplace", False)),
    ("normal", True),
)
QUICK_NOISES = (("normal", False), ("gumbel", False), ("normal", True))
NOISE_STARTS, NOISE_STEPS = 20, 600
_NAMED = ("loss", "noise", "log", "way")  # what tells the items of a part from each other


def plan(ask: RecipeOptions) -> Work:
    """Every part on both sets of points."""
    starts = ask.seeds or (QUICK_STARTS if ask.quick else STARTS)
    more = {"starts": starts, "seed": ask.seed, "steps": 600 if ask.quick else 1500}
    fewer = {**more, "starts": min(starts, NOISE_STARTS), "steps": NOISE_STEPS}
    margins = [None, 0.5] if ask.quick else [None, 0.1, 0.5, 1.0, 3.0]
    between = [] if ask.quick else [0.05 * 640 ** (i / 24) for i in range(25)]  # 0.05 … 32
    items = []
    for toy in TOYS.values():
        ladder = sorted({*toy.temperatures, *(float(f"{k:.6g}") for k in between)})
        parts: list[tuple[str, dict[str, Any]]] = []
        for loss in LOSSES:
            parts += [("paper", {"loss": loss}), ("trained", {"loss": loss, **more})]
        parts += [("fixed", {"temperatures": ladder}), ("lowered", {"margins": margins, **more})]
        for noise, log in QUICK_NOISES if ask.quick else NOISES:
            for way in ("trained", "lowered"):
                parts.append(("noise", {"noise": noise, "log": log, "way": way, **fewer}))
        parts.append(("slices", {"points": 201 if ask.quick else 801}))
        parts.append(("surface", {"points": 31 if ask.quick else 81}))
        for part, asked in parts:
            key = "/".join([part, toy.name, *(str(asked[n]) for n in _NAMED if n in asked)])
            items.append(WorkItem(key, {"part": part, "toy": toy.name, **asked}))
    return Work(
        tuple(items),
        "expacc.recipes.exact.toy_work:execute",
        failed_row,
        facts={"starts": starts, "quick": ask.quick},
    )


def execute(item: WorkItem, shared: Shared) -> list[Row]:
    """The rows of one part."""
    toy = TOYS[item.payload["toy"]]
    return _PARTS[item.payload["part"]](item, toy)


def _row(item: WorkItem, toy: Toy, loss: str, name: str = "", **more: Any) -> Row:
    return final_row(item, name, table=toy.name, loss=loss, fold=item.payload["part"], **more)


def _paper(item: WorkItem, toy: Toy) -> list[Row]:
    name = item.payload["loss"]
    return [_row(item, toy, name, metrics=asdict(as_the_paper(toy, name)))]


def _fixed(item: WorkItem, toy: Toy) -> list[Row]:
    """The threshold of the smallest loss, with k held at one value after the other."""
    rows = []
    for name in LOSSES:
        found = [best_threshold(loss_of(name), toy, k) for k in item.payload["temperatures"]]
        columns = {name: tuple(vars(one)[name] for one in found) for name in vars(found[0])}
        lowest = min(found, key=lambda one: one.loss)
        rows.append(_row(item, toy, name, name, metrics=asdict(lowest), curves=columns))
    return rows


def _trained(item: WorkItem, toy: Toy) -> list[Row]:
    """k and b trained together by Adam: from k = 1, b = 0, and from random starts."""
    name = item.payload["loss"]
    k, b = _starts(item, toy)
    found = train_k_and_b(loss_of(name), toy, k, b, item.payload["steps"])
    return [_of_starts(item, toy, name, "", found)]


def _lowered(item: WorkItem, toy: Toy) -> list[Row]:
    """Appendix E's recipe, sigma lowered, without a margin and with several."""
    _, b = _starts(item, toy)
    rows = []
    for margin in item.payload["margins"]:
        found = descend_lowering_sigma(loss_of("exact", margin=margin), toy, b, LOWERING)
        name = "none" if margin is None else f"{margin:g}"
        rows.append(_of_starts(item, toy, "exact", name, found, margin=margin))
    return rows


def _noise(item: WorkItem, toy: Toy) -> list[Row]:
    """Other noise, or -log P: k and b trained, or sigma lowered."""
    noise, log, way = (item.payload[name] for name in ("noise", "log", "way"))
    loss = loss_of("exact", noise=noise, log=log)
    k, b = _starts(item, toy)
    if way == "trained":
        found = train_k_and_b(loss, toy, k, b, item.payload["steps"])
    else:
        found = descend_lowering_sigma(loss, toy, b, LOWERING)
    return [_of_starts(item, toy, "exact", "", found, noise=noise, log=log, way=way)]


def _starts(item: WorkItem, toy: Toy) -> tuple[Tensor, Tensor]:
    """k and b to start from: (1, 0), then as many at random as the payload says."""
    generator = torch.Generator().manual_seed(int(item.payload["seed"]))
    count = int(item.payload["starts"])
    draws = torch.rand(2, count, generator=generator, dtype=torch.float64)
    low, high = toy.starts
    k = LOWEST_K * (HIGHEST_K / LOWEST_K) ** draws[0]
    b = low + (high - low) * draws[1]
    return torch.cat([torch.ones(1).double(), k]), torch.cat([torch.zeros(1).double(), b])


def _of_starts(
    item: WorkItem, toy: Toy, loss: str, name: str, found: Sequence[Found], **numbers: Any
) -> Row:
    """A row of many starts: the first is (1, 0), the others count."""
    highest, _ = best(toy)
    others = [one.accuracy for one in found[1:]]
    reached = sum(share > highest - 1e-9 for share in others)
    return _row(
        item, toy, loss, name,
        numbers=numbers,
        metrics={
            **asdict(found[0]),
            "starts": float(len(others)),
            "reached": float(reached),
            "mean_accuracy": sum(others) / len(others),
        },
        curves={
            "k": tuple(one.k for one in found),
            "b": tuple(one.low for one in found),
            "loss": tuple(one.loss for one in found),
            "accuracy": tuple(one.accuracy for one in found),
        },
    )  # fmt: skip


def _slices(item: WorkItem, toy: Toy) -> list[Row]:
    """Figure 3: expected accuracy against b; Figure 4: the loss with and without margin."""
    b = torch.linspace(*toy.view, int(item.payload["points"]), dtype=torch.float64)
    places = tuple(b.tolist())
    plain = tuple(accuracy(toy, 1.0, place) for place in places)
    rows = [_row(item, toy, "exact", "plain", metrics={"points": float(len(places))},
                 curves={"b": places, "value": plain})]  # fmt: skip
    wanted: list[tuple[str, float, float | None]]
    wanted = [("accuracy", sigma, None) for sigma in SIGMAS[toy.name]]
    if toy.name == "three":
        wanted += [("loss", sigma, m) for sigma in MARGIN_SIGMAS for m in (None, MARGIN)]
    for what, sigma, margin in wanted:
        values = risk(loss_of("exact", sigma=sigma, margin=margin), toy, 1.0, -b)
        lowest = b[values.argmin()].item()
        shown = 1 - values if what == "accuracy" else values
        rows.append(
            _row(
                item, toy, "exact", f"{what}-{sigma:g}-{margin}",
                numbers={"what": what, "sigma": sigma, "margin": margin},
                metrics={"best": lowest, "accuracy": accuracy(toy, 1.0, round(lowest, 9))},
                curves={"b": places, "value": tuple(shown.tolist())},
            )
        )  # fmt: skip
    return rows


def _surface(item: WorkItem, toy: Toy) -> list[Row]:
    """The loss over k and b; EXACT's at sigma = 1, which is any sigma: only k / sigma matters."""
    points = int(item.payload["points"])
    b = torch.linspace(*toy.view, points, dtype=torch.float64)
    low, high = K_VIEW
    k = low * (high / low) ** torch.linspace(0, 1, points, dtype=torch.float64)
    rows = []
    for name in LOSSES:
        values = risk(loss_of(name), toy, k[:, None].expand(-1, points), -k[:, None] * b)
        place = int(values.argmin())
        at_b, at_k = b[place % points].item(), k[place // points].item()
        rows.append(
            _row(
                item, toy, name, name,
                metrics={
                    "b": at_b,
                    "k": at_k,
                    "loss": values.min().item(),
                    "accuracy": accuracy(toy, at_k, round(at_b, 9)),
                },
                curves={
                    "b": tuple(b.tolist()),
                    "k": tuple(k.tolist()),
                    "value": tuple(values.flatten().tolist()),
                },
            )
        )  # fmt: skip
    return rows


_PARTS: dict[str, Callable[[WorkItem, Toy], list[Row]]] = {
    "paper": _paper,
    "fixed": _fixed,
    "trained": _trained,
    "lowered": _lowered,
    "noise": _noise,
    "slices": _slices,
    "surface": _surface,
}
