"""exact-toy, exact-integral, exact-cost and mixing-gradients: what they run and what they write."""

import dataclasses
import math

import pytest
import torch

from expacc import orthant_prob
from expacc.functional import exact_error
from expacc.recipes.exact import cost, integral, toy_work
from expacc.recipes.exact.cost_page import exponent
from expacc.recipes.exact.integral import CASES, needed_samples, truth
from expacc.recipes.mixing.gradients import gradients
from expacc.recipes.page import Page, verdict
from expacc.recipes.recipe import RecipeOptions, recipe
from expacc.runner.items import check_rows, load_executor
from expacc.runner.rows import Row

NAMES = ("exact-toy", "exact-integral", "exact-cost", "mixing-gradients")
ALL = {name: recipe(name) for name in NAMES}
TOY, INTEGRAL, COST, GRADIENTS = ALL.values()


def carry_out(work, wanted):
    """The rows of the items whose keys ``wanted`` likes."""
    execute, rows = load_executor(work.executor), []
    for item in work.items:
        if wanted(item.key):
            found = execute(item, {})
            check_rows(item.key, found)
            rows += found
    return rows


def cells(page: Page, title: str) -> list[tuple[str, ...]]:
    """The rows of the grid with that title."""
    grids = [grid for section in page.sections for grid in section.grids]
    return [row for grid in grids if grid.title.startswith(title) for row in grid.rows]


def claims(page: Page) -> list[str]:
    return [one.verdict for one in page.claims]


def verdicts(page: Page) -> dict[tuple[str, ...], str]:
    return {
        (section.title, *row.labels): verdict(row, section.slack)
        for section in page.sections
        for row in section.beside
    }


# ------------------------------------------------------------------------------------ all of them


@pytest.fixture(scope="module")
def pages():
    """name → rows, facts, page of a small part of each recipe."""
    made = {}
    for name, wanted, ask in (
        (
            "exact-toy",
            lambda key: key.startswith(("paper/three", "slices", "surface")),
            RecipeOptions(quick=True),
        ),
        ("exact-integral", lambda key: key.startswith("paper/"), RecipeOptions(quick=True)),
        ("mixing-gradients", lambda key: True, RecipeOptions(quick=True)),
    ):
        work = ALL[name].plan(ask)
        rows = carry_out(work, wanted)
        made[name] = rows, work.facts, ALL[name].write(rows, work.facts)
    return made


# -------------------------------------------------------------------------------------- exact-toy


def test_thresholds_and_accuracies_of_the_three_points(pages):
    _, _, page = pages["exact-toy"]
    found = {key: said for key, said in verdicts(page).items() if key[1] == "three points"}
    assert set(found.values()) == {"within", "new"}  # new: the optimum, which the paper has not
    assert sum(said == "within" for said in found.values()) == 7


def of_starts(toy, loss, part, accuracy, reached, **numbers):
    """A row as training from many starts leaves it."""
    metrics = {"low": 0.1, "high": 0.1, "k": 3.0, "loss": 0.2, "accuracy": accuracy}
    metrics |= {"accuracy_high": accuracy, "starts": 10.0, "reached": reached, "mean_accuracy": 0.5}
    curves = {"k": (3.0,), "b": (0.1,), "loss": (0.2,), "accuracy": (accuracy,)}
    key = f"{part}/{toy}/{loss}/{numbers}"
    return Row(key, key, "final", toy, loss, part, numbers=numbers, metrics=metrics, curves=curves)


@pytest.mark.parametrize(
    ("toy", "accuracies", "said"),
    [
        ("three", (1.0, 1.0), ["holds", "holds", "not run", "not run"]),
        ("three", (2 / 3, 1.0), ["does not hold", "holds", "not run", "not run"]),
        ("five", (0.6, 0.8), ["not run", "not run", "holds", "does not hold"]),
    ],
)
def test_the_answer_to_the_blog_follows_from_the_rows(toy, accuracies, said):
    both = zip(("cross_entropy", "hinge"), accuracies, strict=True)
    rows = [of_starts(toy, loss, "trained", share, 5.0) for loss, share in both]
    assert claims(TOY.write(rows, {"starts": 10})) == said


def test_what_is_said_of_log_p_follows_from_the_rows():
    shared = {"way": "lowered", "noise": "normal"}
    rows = [
        of_starts("five", "exact", "noise", 0.8, reached, log=log, **shared)
        for log, reached in ((False, 5.0), (True, 9.0))
    ]
    found = cells(TOY.write(rows, {}), "The same with other noise")
    assert [(row[1], row[-1]) for row in found] == [
        ("normal (EXACT)", "5 of 10"),
        ("normal, −log P", "9 of 10"),
    ]


def test_every_part_of_the_toy_runs():
    """A few steps of all that the full recipe does."""
    parts = {item.payload["part"] for item in TOY.plan(RecipeOptions()).items}
    assert parts == set(toy_work._PARTS)
    for item in TOY.plan(RecipeOptions(quick=True)).items:
        if item.payload["part"] in ("trained", "noise") and item.payload["toy"] == "five":
            if item.payload.get("way", "trained") != "trained":
                continue
            small = dataclasses.replace(item, payload={**item.payload, "steps": 3, "starts": 2})
            rows = toy_work.execute(small, {})
            check_rows(item.key, rows)
            assert rows[0].metrics["starts"] == 2


# --------------------------------------------------------------------------------- exact-integral


def test_the_truth_where_it_is_known():
    """Equal rivals share the wins; one rival has a closed form."""
    for rivals in (1, 2, 9, 99):
        assert truth((0.0,) * rivals).value == pytest.approx(1 / (rivals + 1), rel=1e-14)
    for margin in (-8.0, -0.3, 2.5):
        found = truth((margin,))
        assert found.value == pytest.approx(math.erfc(-margin / 2) / 2, rel=1e-13)
        density = math.exp(-(margin**2) / 4) / math.sqrt(4 * math.pi)
        assert found.gradient[0] == pytest.approx(density, rel=1e-13)


@pytest.mark.parametrize("name", CASES)
def test_the_truth_agrees_with_the_library(name):
    margins = torch.tensor(CASES[name].margins, dtype=torch.float64, requires_grad=True)
    value = orthant_prob(margins)
    (gradient,) = torch.autograd.grad(value, margins)
    found = truth(CASES[name].margins)
    assert found.value == pytest.approx(value.item(), rel=1e-12)
    # Of rivals that hardly matter, 1e-8 of the nearest, neither rule needs to know all digits.
    small = 1e-12 * gradient.max().item()
    assert list(found.gradient) == pytest.approx(gradient.tolist(), rel=1e-11, abs=small)
    assert found.doubt < 1e-12


@pytest.mark.parametrize("method", integral._SAMPLERS)
def test_samplers_are_right_on_average(method):
    """Within five standard errors, whether the samples come in one piece or in many."""
    estimate = integral._SAMPLERS[method]
    case = CASES["level"]
    margins = torch.tensor(case.margins, dtype=torch.float64).expand(400, -1)
    for pieces in (1, 3):
        generator = torch.Generator().manual_seed(pieces)
        values, gradients = integral._in_pieces(estimate, margins, 30, pieces, generator)
        error = values.std() / math.sqrt(len(values))
        assert abs(values.mean() - truth(case.margins).value) < 5 * error
        wrong = gradients.mean(0) - torch.tensor(truth(case.margins).gradient).double()
        assert (wrong.abs() < 5 * gradients.std(0) / math.sqrt(len(values))).all()


def of_samples(method, samples, rmse, repeats=10):
    metrics = {"value_rmse": rmse, "gradient_rmse": rmse, "value_mean": 1.0, "value": 1.0}
    metrics |= {"gradient_norm": 1.0, "doubt": 0.0}
    numbers = {"samples": samples, "repeats": repeats}
    key = f"{method}/{samples}"
    return Row(key, key, "final", "paper", method, "", numbers=numbers, metrics=metrics)


def test_needed_samples_is_the_ratio_of_mean_squares():
    found = {
        "log_derivative": {n: of_samples("log_derivative", n, 6 / math.sqrt(n)) for n in (1, 4)},
        "genz": {n: of_samples("genz", n, 0.5 / math.sqrt(n)) for n in (1, 16)},
    }
    assert needed_samples(found, "genz", "gradient_rmse") == pytest.approx(144)
    assert needed_samples(found, "genz_given", "gradient_rmse") is None


@pytest.mark.parametrize(("rmse", "said"), [(0.08, "holds"), (0.01, "does not hold")])
def test_the_answer_about_samples_follows_from_the_rows(rmse, said):
    rows = [of_samples("log_derivative", 1, 1.0), of_samples("genz_given", 1, rmse)]
    assert claims(INTEGRAL.write(rows, {})) == [said]


def test_errors_of_the_papers_case(pages):
    rows, _, _ = pages["exact-integral"]
    errors = {(row.loss, row.numbers["samples"]): row.metrics["gradient_rmse"] for row in rows}
    assert errors["genz", 16] < errors["genz_given", 16] < errors["log_derivative", 128]
    assert errors["ours", 16] < 1e-3 * errors["genz", 16]
    assert errors["ours", 64] < 1e-16
    assert errors["ours", 2] > errors["genz", 2]  # too few nodes are worse than luck


@pytest.mark.slow
def test_one_sample_of_unsorted_genz_is_worth_256_as_the_paper_says():
    rows = carry_out(
        INTEGRAL.plan(RecipeOptions()),
        lambda key: (
            key.startswith(("paper/log_derivative", "paper/genz_given"))
            and not key.endswith("truth")
        ),
    )
    page = INTEGRAL.write(rows, {})
    row = page.sections[0].beside[0]
    assert (row.theirs.mean, row.ours.mean) == (256, 256)


# ------------------------------------------------------------------------------------- exact-cost


def test_wide_resnets_have_their_number_of_parameters():
    """Zagoruyko and Komodakis, Table 4: 11.0 and 36.5 million."""
    for depth, width, millions in ((16, 8, 11.0), (28, 10, 36.5)):
        with torch.device("meta"):
            model = cost.WideResNet(depth, width, 10)
            assert model(torch.empty(2, 3, 32, 32)).shape == (2, 10)
        count = sum(parameter.numel() for parameter in model.parameters())
        assert round(count / 1e6, 1) == millions


def test_memory_is_what_was_allocated_at_once():
    """1000 floats twice at a time, three times over."""

    def call():
        for _ in range(3):
            one = torch.empty(1000)
            other = torch.empty(1000)
            del one, other

    assert cost.peak_bytes(call, "cpu") == 8000


def test_the_memory_of_genz_is_known_beforehand():
    logits, target = cost._logits(64, 20, "cpu")
    generator = torch.Generator().manual_seed(0)
    call = cost._call(lambda x, y: cost.genz_loss(x, y, 16, generator), logits, target)
    needed = cost.genz_bytes(64, 19, 16)
    assert needed <= cost.peak_bytes(call, "cpu") < 1.2 * needed


def test_the_losses_that_are_timed_are_one_loss():
    logits, target = cost._logits(64, 10, "cpu")
    ours = exact_error(logits, target, sigma=cost.SIGMA, margin=cost.MARGIN)
    by_nodes = cost.nodes_loss(logits, target, 64)
    generator = torch.Generator().manual_seed(0)
    sampled = cost.genz_loss(logits, target, 2000, generator)
    assert by_nodes.item() == pytest.approx(ours.item(), abs=1e-6)
    assert sampled.item() == pytest.approx(ours.item(), abs=5e-3)


def timed(method, part, size, rows=10, **metrics):
    numbers = {"classes": 32, "samples": 16, "rows": rows, "device": "cpu", part: size}
    key = f"{part}/{size}/{method}"
    return Row(key, key, "final", part, method, "", numbers=numbers, metrics=metrics)


def test_exponents_are_slopes():
    rows = {c: timed("genz", "classes", c, seconds=3e-6 * c**1.7) for c in (8, 32, 64, 128)}
    slope, count = exponent(rows, "seconds", 32)
    assert (slope, count) == (pytest.approx(1.7), 3)
    assert exponent(rows, "seconds", 64) is None
    assert exponent(rows, "peak_bytes", 8) is None


def test_a_cost_page_from_made_rows():
    sizes = (10, 32, 100, 200)
    rows = [timed("genz", "classes", c, seconds=c**2.0, peak_bytes=9 * c**2.0) for c in sizes]
    rows += [timed("ours", "classes", c, seconds=20.0 * c, peak_bytes=9.0 * c) for c in sizes]
    rows += [timed("cross_entropy", "classes", c, seconds=float(c), peak_bytes=c) for c in sizes]
    rows.append(timed("genz", "classes", 1000, needed_bytes=2.0**34, room_bytes=2.0**31))
    rows.append(timed("wrn-16-8", "network", 10, seconds=900.0))
    rows[-1] = dataclasses.replace(rows[-1], numbers={**rows[-1].numbers, "classes": 10})
    page = COST.write(rows, {"device": "cpu"})
    ratios = {row[0]: row[1:] for row in cells(page, "How many times")}
    assert ratios["200"] == ("10", "200", "20")
    assert ratios["10"] == ("0.5", "10", "20")  # ours is the slower
    (last,) = (row for row in cells(page, "A batch") if row[0] == "1,000")
    assert last[1] == "not run"
    assert "needs 16 GiB" in last
    found = verdicts(page)
    assert found["Growth exponents", "Genz", "time by classes"] == "within"
    assert found["Growth exponents", "ours", "time by classes"] == "new"
    exponents = {row.labels: row.ours.mean for row in page.sections[0].beside}
    assert exponents["Genz", "memory by classes"] == pytest.approx(2)
    assert exponents["ours", "time by classes"] == pytest.approx(1)
    # 90 s a row for the network, 1 for cross entropy, 10 for Genz: 1 - 91/100
    row = next(r for s in page.sections for r in s.beside if r.labels[0].startswith("Wide"))
    assert row.ours.mean == pytest.approx(9)


def measured(key, **less):
    (item,) = (one for one in COST.plan(RecipeOptions(quick=True)).items if one.key == key)
    rows = cost.execute(dataclasses.replace(item, payload={**item.payload, **less}), {})
    check_rows(item.key, rows)
    return {row.loss: row.metrics for row in rows}


@pytest.mark.parametrize("key", ["classes/classes=10", "linear/classes=4"])
def test_a_setting_is_measured(key):
    found = measured(key, rows=16, seconds=0.0)
    assert set(found) == {"ours", "genz", "cross_entropy"}
    metrics = {"seconds"} if key.startswith("linear") else {"seconds", "peak_bytes"}
    for one in found.values():
        assert set(one) == metrics
        assert min(one.values()) > 0


def test_what_does_not_fit_is_said_and_not_run():
    genz = measured("classes/classes=1000", seconds=0.0)["genz"]
    assert "seconds" not in genz
    assert genz["needed_bytes"] > genz["room_bytes"]


# ------------------------------------------------------------------------------- mixing-gradients


def test_peaks_are_where_the_formula_says(pages):
    rows, _, page = pages["mixing-gradients"]
    mixes = [row for row in rows if row.table == "mix"]
    assert len(mixes) == 20  # ten mixes, two numbers of classes
    for row in mixes:
        ce, error = row.numbers["ce_weight"], row.numbers["error_weight"]
        place = 0.5 * (1 - ce / error) if error > ce else 0.0
        assert row.metrics["peak"] == pytest.approx(place, abs=1e-6)
        assert row.metrics["mean"] == pytest.approx(ce / 2 + error / 6, rel=1e-4)
        assert row.metrics["off_eq_13"] < 1e-14
    assert set(verdicts(page).values()) == {"within"}
    assert claims(page)[0] == "holds"


def test_what_the_text_says_too_much_of(pages):
    """log 4 - 3/4 and log 4 - 1, where the paper has 4.5 and 3.5."""
    rows, _, page = pages["mixing-gradients"]
    text = next(row for row in rows if row.table == "text")
    assert text.metrics["remainder_low"] == pytest.approx(math.log(4) - 0.75, rel=1e-9)
    assert text.metrics["cross_entropy_off_error"] == pytest.approx(math.log(4) - 1, rel=1e-9)
    assert text.metrics["remainder_high"] == pytest.approx(math.log(4 / 3) - 0.25, rel=1e-9)
    assert claims(page).count("does not hold") == 2


def test_a_formula_that_fails_is_said_to_fail(pages):
    rows, facts, _ = pages["mixing-gradients"]
    mix = next(row for row in rows if row.table == "mix")
    moved = dataclasses.replace(mix, metrics={**mix.metrics, "peak": mix.metrics["peak"] + 0.05})
    page = GRADIENTS.write([moved], facts)
    assert claims(page)[0] == "does not hold"
    assert "above" in verdicts(page).values()


def test_gradients_are_those_of_the_loss():
    """By hand at p = 1/2, two classes: -(error/2 + ce)/2."""
    p, rivals = torch.tensor([0.5]).double(), torch.zeros(1).double()
    (found,) = gradients(p, rivals, 0.4, 1.2)
    assert found.tolist() == pytest.approx([-0.5, 0.5])
