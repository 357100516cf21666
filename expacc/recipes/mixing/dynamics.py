"""mixing-dynamics: errors that come right late in training, and escaping efficiency (Eq. 15 to 19).

The pictures that are looked at are a tenth of the training pictures that is never trained on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from expacc.recipes.mixing import escape
from expacc.recipes.mixing.uci import CE, GRADUAL, gradient_volume
from expacc.recipes.mixing.vision import BATCH, LOSSES, STAND_IN
from expacc.recipes.page import Claim, Comparison, Number, Page, Section
from expacc.recipes.paper import Layout, load_paper
from expacc.recipes.recipe import RecipeOptions, Work
from expacc.recipes.sweep import Ask, Data, Outcome, Place, Sweep
from expacc.recipes.vision.page import Cells, cost_section, layout_of
from expacc.recipes.vision.plan import Cell, protocol_of, work_of
from expacc.recipes.vision.sets import open_set, read_sets
from expacc.recipes.vision.train import Scale, scaled, train_place, unit
from expacc.report.words import NONE
from expacc.runner.rows import Row

PAPER: Mapping[str, Any] = load_paper("mixing")["dynamics"]
METHODS = {CE: CE, GRADUAL: GRADUAL}
BOUND = 0.2  # p of the label, which parts the errors
GROUPS = ("right", "near", "far")
_LATE = [1 / 3, 2 / 3]  # where the rate falls
FOCI = (0.0, 0.1, 0.2, 0.3, 0.4)  # of the mixtures (Eq. 14)
EL = "EL"

PROTOCOLS: dict[str, dict[str, Any]] = {
    "full": {"network": "resnet32", "epochs": 90, "rows": None, "seeds": 3, "sample": 2048},
    "short": {"network": "resnet32", "epochs": 36, "rows": None, "seeds": 2, "sample": 2048},
    "small": {"network": "resnet20", "epochs": 9, "rows": 5000, "seeds": 2, "sample": 256},
    "quick": {"network": "resnet20", "epochs": 3, "rows": 1000, "seeds": 1, "sample": 64},
}


def looked_at(epochs: int) -> int:
    """The epochs done when the pictures are looked at: 70 of 90.

    >>> looked_at(90)
    70
    """
    return epochs * 7 // 9


PROBES, QUICK_TESTS, _AT_ONCE = 16, 1000, 128


def plan(options: RecipeOptions) -> Work:
    """A cell per set: cross entropy, and the gradual mixture."""
    protocol = protocol_of(options)
    how = PROTOCOLS[protocol]
    sets, missing = read_sets(options.data, [STAND_IN, "cifar-100"])
    cells = [
        Cell(
            table,
            {},
            how["network"],
            how["epochs"],
            losses={method: LOSSES[method] for method in METHODS},
            settings={method: [{"learning_rate": 0.1}] for method in METHODS},
            seeds=options.seeds or how["seeds"],
            folds=["1"],
            rows=how["rows"],
            test_rows=QUICK_TESTS if options.quick else None,
            how={
                "optimizer": "sgd",
                "changes": ["crop", "flip"],
                "batch": BATCH,
                "weight_decay": 1e-4,
                "rate_falls": _LATE,
                "weights": "last",
                "sample": how["sample"],
                "probes": 2 if options.quick else PROBES,
            },
        )
        for table in sets
    ]
    seen = looked_at(how["epochs"])
    facts = {**how, "rows_text": f"{how['rows'] or 0:,}", "seen": seen}
    facts["probes"] = cells[0].how["probes"]
    return work_of(
        cells, sets, options, missing=missing, protocol=protocol, facts=facts, sweep=SWEEP
    )


# ---------------------------------------------------------------------------------------- the runs


def _chances(network: nn.Module, pictures: Tensor, labels: Tensor, scale: Scale) -> Tensor:
    """p of the label of every row, less than 0 where another class is called."""
    found = []
    network.eval()
    with torch.no_grad():
        for part, own in zip(torch.split(pictures, 1000), torch.split(labels, 1000), strict=True):
            p = network(scaled(unit(part), scale)).float().softmax(1)
            chance = p.gather(1, own[:, None]).squeeze(1)
            found.append(torch.where(p.argmax(1) == own, chance, -chance))
    return torch.cat(found)


def groups_of(signed_chances: Tensor) -> dict[str, Tensor]:
    """Which rows are right, wrong with p of at least ``BOUND``, and wrong with less."""
    right = signed_chances > 0
    near = ~right & (signed_chances <= -BOUND)
    return dict(zip(GROUPS, (right, near, ~right & ~near), strict=True))


def traces(network: nn.Module, rows: escape.Rows, probes: int, seed: int) -> dict[str, float]:
    """Tr(HΣ) of cross entropy, the mixtures and the expected error at the same weights.

    The same signs for all, so that what they have in common cancels in their ratios. 'bound F' is
    the right side of Eq. 18 for each mixture.
    """
    network.eval()
    place = rows[0][1].device

    def draw() -> torch.Generator:
        return torch.Generator(place).manual_seed(seed)

    values = {CE: escape.mixture(1, 0), EL: escape.mixture(0, 1)}
    values |= {f"F={focus:g}": escape.mixture(1, 1 / (1 - 2 * focus)) for focus in FOCI}
    found: dict[str, float] = {}
    for name, value in values.items():
        each = escape.noise_trace(network, rows, value, probes=probes, draw=draw())
        found[f"trace {name}"] = float(np.mean(each))
        found[f"error {name}"] = float(np.std(each, ddof=1)) / probes**0.5 if probes > 1 else 0.0
    squares = escape.square_trace(network, rows, probes=probes, draw=draw())
    bent = escape.noise_trace(
        network, rows, lambda u: -u.exp(), of_noise=escape.chance, probes=probes, draw=draw(),
        centred=False,
    )  # fmt: skip
    with torch.no_grad():
        most = max(
            float(network(shown).float().softmax(1).gather(1, own[:, None]).max())
            for shown, own in rows
        )
    inner = float(np.mean(squares)) + 2 * float(np.mean(bent))
    for focus in FOCI:
        b = 1 / (1 - 2 * focus)
        factor = b**3 + 3 * b**2 / most + b * (2 / most**2 + 1 / most)
        found[f"bound F={focus:g}"] = factor * inner
    return found


def _train(ask: Ask, data: Data, places: Sequence[Place], _: bool) -> list[Outcome]:
    device = torch.device(ask["device"])
    outcomes = []
    for place in places:
        held = data.held[place.fold]
        pictures, labels = (
            tensor[held].to(device) for tensor in (data.rows.features, data.rows.labels)
        )
        own = data.train[place.fold][: ask["sample"]]
        first: list[dict[str, Tensor]] = []
        metrics: dict[str, float] = {}

        def seen(
            epochs: int,
            network: nn.Module,
            scale: Scale,
            pictures: Tensor = pictures,
            labels: Tensor = labels,
            own: Tensor = own,
            first: list[dict[str, Tensor]] = first,
            metrics: dict[str, float] = metrics,
            seed: int = place.seed,
        ) -> None:
            if epochs not in (looked_at(ask["epochs"]), ask["epochs"]):
                return
            chances = _chances(network, pictures, labels, scale)
            if epochs < ask["epochs"]:
                first.append(groups_of(chances))
                return
            for name, rows in first[0].items():
                metrics[name] = float(rows.sum())
                metrics[f"{name} at end"] = float((chances[rows] > 0).sum())
            shown = [data.rows.features[own].to(device), data.rows.labels[own].to(device)]
            parts = zip(*(torch.split(one, _AT_ONCE) for one in shown), strict=True)
            sample = [(scaled(unit(part), scale), target) for part, target in parts]
            metrics.update(traces(network, sample, ask["probes"], seed))

        outcome = train_place(ask, data, place, device, seen)
        outcomes.append(replace(outcome, metrics={**outcome.metrics, **metrics}))
    return outcomes


SWEEP = Sweep(
    "expacc.recipes.mixing.dynamics:SWEEP",
    open_set,
    train=_train,
    curves=("train_accuracy", "train_loss", "validation_accuracy"),
)


# ----------------------------------------------------------------------------------------- the page


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    cells = Cells(rows, [], facts)
    layout = layout_of("mixing", "mixing-dynamics", facts)
    return layout.page(
        (_late(layout, cells), _escaping(layout, cells), cost_section(layout, cells, METHODS)),
        _claims(layout, cells),
    )


def _share(rows: Sequence[Row], group: str) -> Number | None:
    """Of a group, how many are right at the end, in per cent, over the runs."""
    of = sum(row.metrics[group] for row in rows)
    end = sum(row.metrics[f"{group} at end"] for row in rows)
    return Number(100 * end / of, None, len(rows)) if of else None


def _late(layout: Layout, cells: Cells) -> Section:
    beside, lines = [], []
    for cell in cells.facts["cells"]:
        key = tuple(cell["key"])
        for method in METHODS:
            own = cells.rows(key, method)
            for group in GROUPS:
                printed = key == ("cifar-100",) and method == CE
                theirs = Number(PAPER["share"][group]) if printed else None
                what = PAPER["names"][group]
                beside.append(Comparison((*key, method, what), theirs, _share(own, group)))
                if own:
                    counts = [f"{row.metrics[group]:.0f}" for row in own]
                    lines.append((*key, method, what, ", ".join(counts)))
    return layout.section("late", beside=beside, grids=[layout.grid("counts", lines)])


def _mean(rows: Sequence[Row], name: str) -> float:
    return float(np.mean([row.metrics[name] for row in rows]))


def _compared() -> Iterator[tuple[str, float]]:
    """A loss, and the trace, over CE's, of cross entropy times what gives it as much gradient."""
    yield CE, 1.0
    for focus in FOCI:
        yield f"F={focus:g}", gradient_volume(1, 1 / (1 - 2 * focus)) ** 3
    yield EL, gradient_volume(0, 1) ** 3


def _escaping(layout: Layout, cells: Cells) -> Section:
    lines = []
    for key in cells.keys:
        for method in METHODS:
            own = cells.rows(key, method)
            for name, scaled_ce in _compared() if own else ():
                trace, base = (_mean(own, f"trace {one}") for one in (name, CE))
                bound = _mean(own, f"bound {name}") if f"bound {name}" in own[0].metrics else None
                less = (trace, _mean(own, f"error {name}"), trace / base if base else None)
                numbers = (*less, scaled_ce, trace - base, bound)
                lines.append((*key, method, name, *map(_told, numbers)))
    return layout.section("escaping", grids=[layout.grid("traces", lines)])


def _told(number: float | None) -> str:
    return NONE if number is None else f"{number:.3g}".replace("-", "−")


def _claims(layout: Layout, cells: Cells) -> Iterator[Claim]:
    for cell in cells.facts["cells"]:
        key = tuple(cell["key"])
        where, own = {"where": key[0]}, cells.rows(key, CE)
        near, far = (_share(own, group) if own else None for group in ("near", "far"))
        told = f"{near.mean:.1f} % and {far.mean:.1f} %" if near and far else ""
        theirs = f"{PAPER['share']['near']:.1f} % and {PAPER['share']['far']:.1f} %"
        holds = near.mean > far.mean if near and far else None
        yield layout.claim("late", told, holds, theirs=theirs, **where)
        base = _mean(own, f"trace {CE}") if own else 1.0
        traces_ = {f: _mean(own, f"trace F={f:g}") for f in FOCI if own}
        ours = ", ".join(f"F={f:g}: {_told(trace / base)}" for f, trace in traces_.items())
        holds = min(traces_.values()) > base if own else None
        yield layout.claim("more", ours, holds, **where)
        over = sum(t - base > _mean(own, f"bound F={f:g}") for f, t in traces_.items())
        ours, holds = (f"{over} of {len(FOCI)}", over == len(FOCI)) if own else ("", None)
        yield layout.claim("bound", ours, holds, **where)
        less = _mean(own, f"trace {EL}") / base if own else 0.0
        ours, holds = (_told(less), less < 1) if own else ("", None)
        yield layout.claim("less", ours, holds, **where)
