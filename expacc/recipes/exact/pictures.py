"""The recipes of the EXACT paper's figures: exact-toy, exact-integral, exact-cost."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from expacc.recipes.page import Page
from expacc.recipes.recipe import Recipe, RecipeOptions, Work

if TYPE_CHECKING:
    from expacc.runner.items import WorkItem
    from expacc.runner.rows import Row

__all__ = ["RECIPES"]


def _failed(item: "WorkItem", reason: str) -> list["Row"]:
    """The row of an item that gave none."""
    from expacc.runner.rows import Row

    asked = item.payload
    return [
        Row(
            key=f"{item.key}/failed",
            item=item.key,
            kind="final",
            table=str(asked.get("toy") or asked.get("case") or asked.get("part", "")),
            loss=str(asked.get("loss") or asked.get("method") or "exact"),
            fold=str(asked.get("part", "")),
            numbers=dict(asked),
            failure=reason,
        )
    ]


def _work(items: "Sequence[WorkItem]", module: str, facts: Mapping[str, Any]) -> Work:
    executor = f"expacc.recipes.exact.{module}:execute"
    return Work(items=tuple(items), executor=executor, failed_rows=_failed, facts=facts)


# ---------------------------------------------------------------------------------- exact-toy

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


def _plan_toy(ask: RecipeOptions) -> Work:
    from expacc.recipes.exact.toy_data import LOSSES, TOYS
    from expacc.runner.items import WorkItem

    starts = ask.seeds or (QUICK_STARTS if ask.quick else STARTS)
    more = {"starts": starts, "seed": ask.seed, "steps": 600 if ask.quick else 1500}
    margins = [None, 0.5] if ask.quick else [None, 0.1, 0.5, 1.0, 3.0]
    items: list[tuple[str, str, dict[str, Any]]] = []
    for toy in TOYS.values():
        between = [] if ask.quick else [0.05 * 640 ** (i / 24) for i in range(25)]  # 0.05 … 32
        ladder = sorted({*toy.temperatures, *(float(f"{k:.6g}") for k in between)})
        for loss in LOSSES:
            items.append(("paper", toy.name, {"loss": loss}))
            items.append(("trained", toy.name, {"loss": loss, **more}))
        items.append(("fixed", toy.name, {"temperatures": ladder}))
        items.append(("lowered", toy.name, {"margins": margins, **more}))
        fewer = {**more, "starts": min(starts, NOISE_STARTS), "steps": NOISE_STEPS}
        for noise, log in QUICK_NOISES if ask.quick else NOISES:
            for way in ("trained", "lowered"):
                asked = {"noise": noise, "log": log, "way": way, **fewer}
                items.append(("noise", toy.name, asked))
        items.append(("slices", toy.name, {"points": 201 if ask.quick else 801}))
        items.append(("surface", toy.name, {"points": 31 if ask.quick else 81}))
    return _work(
        [
            WorkItem(
                "/".join([part, toy, *(str(asked[n]) for n in _NAMED if n in asked)]),
                {"part": part, "toy": toy, **asked},
            )
            for part, toy, asked in items
        ],
        "toy_work",
        {"starts": starts, "quick": ask.quick},
    )


def _write_toy(rows: Sequence["Row"], facts: Mapping[str, Any]) -> Page:
    from expacc.recipes.exact.toy_page import write

    return write(rows, facts)


TOY = Recipe(
    name="exact-toy",
    paper="EXACT",
    shows="Figures 1, 3, 4, 10, Appendices D and E, and the blog's objection",
    what="the thresholds that cross entropy, hinge and EXACT find; landscapes; temperature trained",
    needs=(),
    minutes=2,
    plan=_plan_toy,
    write=_write_toy,
)

# ----------------------------------------------------------------------------- exact-integral

SAMPLES = tuple(2**power for power in range(11))  # 1 … 1024
REPEATS, QUICK_REPEATS = 1000, 100
IN_ORDER = ("paper", "paper-logits", "drawn")  # cases in which the order of the rivals matters
PAPERS_TRUTH = 1_000_000  # samples


def _plan_integral(ask: RecipeOptions) -> Work:
    from expacc.recipes.exact.integral_cases import CASES
    from expacc.runner.items import WorkItem

    samples = SAMPLES[:8] if ask.quick else SAMPLES
    repeats = ask.seeds or (QUICK_REPEATS if ask.quick else REPEATS)
    cases = ["paper", "level"] if ask.quick else list(CASES)
    common = {"seed": ask.seed, "repeats": repeats}
    items = []
    for case in cases:
        asked = {"case": case, **common}
        for method in ("ours", "ours32"):
            more = {"method": method, "samples": list(samples)}
            items.append(WorkItem(f"{case}/{method}", {**asked, **more, "repeats": 1}))
        methods = ["log_derivative", "genz", *(["genz_given"] if case in IN_ORDER else [])]
        for method in methods:
            # The many small ones together, the few large ones each on its own.
            parts = [[n for n in samples if n < 128], *([n] for n in samples if n >= 128)]
            for part in parts:
                key = f"{case}/{method}/{part[-1]}"
                items.append(WorkItem(key, {**asked, "method": method, "samples": part}))
    if not ask.quick:
        once = {"case": "paper", **common, "repeats": 1, "samples": [PAPERS_TRUTH]}
        for method in ("genz_given", "genz"):
            items.append(WorkItem(f"paper/{method}/truth", {**once, "method": method}))
    return _work(items, "integral_work", {"repeats": repeats, "quick": ask.quick})


def _write_integral(rows: Sequence["Row"], facts: Mapping[str, Any]) -> Page:
    from expacc.recipes.exact.integral_page import write

    return write(rows, facts)


INTEGRAL = Recipe(
    name="exact-integral",
    paper="EXACT",
    shows="Figures 8 and 9, Appendix C",
    what="errors of the integral and its gradient: Monte Carlo, Genz, ours, 1 to 1024 samples",
    needs=(),
    minutes=1,
    plan=_plan_integral,
    write=_write_integral,
)

# --------------------------------------------------------------------------------- exact-cost

ROWS = 256  # the paper's batch
CLASSES = (2, 4, 10, 20, 32, 50, 100, 200, 500, 1000, 2000, 4000)
QUICK_CLASSES = (2, 10, 32, 50, 100, 1000)
NODES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
USUAL_SAMPLES, USUAL_CLASSES = 16, 32  # of the paper's Figure 7
LINEAR_CLASSES = (2, 4, 8)  # as many as its tables have
NETWORKS = ((16, 8, 10), (28, 10, 10), (28, 10, 100))  # depth, width, classes, Section 6.3
IMAGES, IMAGES_ON_GPU = 4, 256


def _plan_cost(ask: RecipeOptions) -> Work:
    from expacc.runner.items import WorkItem

    usual = {"rows": ROWS, "samples": USUAL_SAMPLES, "device": ask.device}
    usual["seconds"] = 0.5 if ask.quick else 4.0
    settings: list[dict[str, Any]] = []
    for classes in QUICK_CLASSES if ask.quick else CLASSES:
        settings.append({"part": "classes", "classes": classes})
    for samples in NODES[::2] if ask.quick else NODES:
        settings.append({"part": "samples", "classes": USUAL_CLASSES, "samples": samples})
    for classes in LINEAR_CLASSES:
        settings.append({"part": "linear", "classes": classes, "features": 50})
    for depth, width, classes in NETWORKS[:1] if ask.quick else NETWORKS:
        rows = IMAGES_ON_GPU if ask.device.startswith("cuda") else IMAGES
        network = {"depth": depth, "width": width, "classes": classes, "rows": rows}
        settings.append({"part": "network", **network})
    items = []
    for setting in settings:
        names = ("classes", "samples", "depth")
        words = [f"{name}={setting[name]}" for name in names if name in setting]
        items.append(WorkItem("/".join([setting["part"], *words]), {**usual, **setting}))
    return _work(items, "cost_work", {"device": ask.device, "quick": ask.quick})


def _write_cost(rows: Sequence["Row"], facts: Mapping[str, Any]) -> Page:
    from expacc.recipes.exact.cost_page import write

    return write(rows, facts)


COST = Recipe(
    name="exact-cost",
    paper="EXACT",
    shows="Figure 7, Section 6.3",
    what="time and memory against classes and samples, growth exponents, overhead in training",
    needs=(),
    minutes=3,
    plan=_plan_cost,
    write=_write_cost,
    alone=True,
)

RECIPES: tuple[Recipe, ...] = (TOY, INTEGRAL, COST)
