"""Make orthant.json: the orthant probability to 40 digits, by mpmath, for tests/test_exact.py.

    P     = ∫ φ(z) ∏_i Φ(z + m_i) dz                      (m_i = margin over rival i)
    1 - P = ∫ Φ(z) d/dz[∏_i Φ(z + m_i)] dz = ∫ φ(z) (1 - ∏_i Φ(z + m_i)) dz

A case is a list of runs [value, count], a run being rivals of equal margin; float32 holds every
value exactly, except one 0.01. The table has log P, log(1-P) and some log-scores log(∂log P/∂m_i).
Two settings must agree to 1e-30, relative to max(1, |value|), or the script stops:

    CURVED   midpoint rule in an exponential map of z, 220 nodes, interval 104 nats deep;
             1-P by the first formula
    UNIFORM  midpoint rule in z itself, 900 nodes, interval 112 nats deep; 1-P by the second
             formula, on an interval of its own

The interval comes from float64, and only as a hint: a wrong one shows as a disagreement. The
reasoning behind it is that of ops/orthant/integral.py, written independently of it and of torch.

    python tests/tables/make_orthant_table.py            writes the table, in about five minutes
    python tests/tables/make_orthant_table.py --check 6  compares 6 cases, writes nothing
"""

import argparse
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import mpmath
import numpy as np
from scipy.special import erfcx, log_ndtr

TABLE = Path(__file__).with_name("orthant.json")
ABOUT = (
    "log_p=log P, log_q=log(1-P), score[run]=log(dlogP/dm) of one rival of that run "
    "(-inf: less than 1e-25 of the largest); runs=[value,count]"
)
DIGITS = 40  # written
TOLERANCE = 1e-30  # between the two settings, and between a check and the table
NEGLIGIBLE = -58  # nats below the largest score, 1e-25 of it: stored as -inf
SEED = 20220101

mp = mpmath.mp.clone()  # a context of its own: pytest imports this file, and tests use mpmath.mp
mp.dps = 46
Real = mp.mpf
SQRT_2 = mp.sqrt(2)
SQRT_2PI = mp.sqrt(2 * mp.pi)


# ------------------------------------------------------------------------------- the cases


class Case(NamedTuple):
    group: str
    name: str
    runs: list[list[float]]  # [value, count] each, the count an int


def make_case(group: str, name: str, runs: Iterable[tuple[float, int]]) -> Case:
    return Case(group, name, [[float(value), int(count)] for value, count in runs])


def named_cases() -> Iterator[Case]:
    """Rivals of one margin or of two, and far apart."""
    for rivals in (1, 2, 3, 9, 31, 99, 999):
        for value in (0, 1, -1, 5, -5, 30, -30, 100, -100):
            yield make_case("equal", f"{rivals} at {value}", [(value, rivals)])
    for rivals in (9, 999):
        for value in (2, 3, 4, 7, 8, 10, 12, 20):
            yield make_case("equal+", f"{rivals} at {value}", [(value, rivals)])
    yield make_case("equal+", "P near 1e-300", [(-52.5, 1)])
    yield make_case("equal+", "P near 1e-300, 2 rivals", [(-45.5, 2)])
    for rivals in (1, 2, 9, 99, 999):
        yield make_case("1e4", f"{rivals} at 1e4", [(1e4, rivals)])
        yield make_case("1e4", f"{rivals} at -1e4", [(-1e4, rivals)])
    yield make_case("1e4", "1 at -1e4, 998 at 1e4", [(-1e4, 1), (1e4, 998)])
    yield make_case("1e4", "9 at -1e4, 90 at -9990", [(-1e4, 9), (-9990, 90)])
    apart = [(-100, 100), (100, -100), (-30, 5), (-10, 3), (3, -10), (2, 7), (7, 2), (0, 6)]
    apart += [(-3, 3), (1, 4), (5, 9), (-100, -90), (-50, -10), (-40, 0), (-5, 0)]
    for rivals in (2, 9, 99, 999):
        for one, rest in apart:
            if rivals > 2 or one <= rest:  # else the same pair the other way round
                name = f"1 at {one}, {rivals - 1} at {rest}"
                yield make_case("clusters", name, [(one, 1), (rest, rivals - 1)])
    for low, high in ((-3, 3), (1, 4), (3, 8), (-20, -15), (0, 0.01), (-60, -59), (12, 13)):
        yield make_case("clusters", f"500 at {low}, 499 at {high}", [(low, 500), (high, 499)])
    # Many equal rivals: the product falls off a cliff.
    for runs in (
        [(5, 999)], [(5, 998), (3, 1)], [(4, 99999)], [(0, 99999)], [(-5, 99999), (-6, 1)],
        [(2, 1), (7, 9999)], [(1, 1), (4, 9999)],
    ):  # fmt: skip
        yield make_case("knee", ", ".join(f"{count} at {value}" for value, count in runs), runs)


def drawn_cases() -> Iterator[Case]:
    """Normal margins, rounded to multiples of 1/grid, and powers of two."""
    generator = np.random.default_rng(SEED)  # one stream: the order of the cases is part of them

    def normal(rivals: int, mean: float, deviation: float, grid: int) -> Case:
        margins = mean + deviation * generator.standard_normal(rivals)
        values, counts = np.unique(np.round(margins * grid) / grid, return_counts=True)
        runs = zip(values, counts, strict=True)
        return make_case("normal", f"{rivals} ~ N({mean},{deviation}^2)", runs)

    for mean in (-50, -5, -2, 0, 2, 5, 50):
        for deviation in (0.01, 1, 3, 30):
            rivals, grid = (31, 256) if deviation < 0.5 else (9, 64)
            yield normal(rivals, mean, deviation, grid)
    for mean, deviation in ((-2, 3), (0, 1), (5, 1), (0, 30)):
        yield normal(99, mean, deviation, grid=16)
    for mean, deviation in ((-2, 3), (0, 1), (8, 1)):
        yield normal(999, mean, deviation, grid=8)
    rival_logits = (1, 2, 0.5, 6, -3, -4, 5, 1, 0)  # the target's is 10
    yield make_case("normal", "App. C", [(10 - logit, 1) for logit in rival_logits])
    yield normal(99999, 0, 2, grid=4)
    yield make_case("spread", "2^-7 .. 2^7", [(2.0**k, 1) for k in range(-7, 8)])
    yield make_case("spread", "-2^-7 .. -2^7", [(-(2.0**k), 1) for k in range(-7, 8)])
    both_signs = [(sign * 2.0**k, 3) for k in range(-7, 7) for sign in (-1, 1)]
    yield make_case("spread", "+-2^k", both_signs)


# -------------------------------------------------------------- the interval, a float64 hint


class Interval(NamedTuple):
    low: float
    mode: float
    high: float
    ahead: bool  # is 1-P the small one of the two?


def mills(x: np.ndarray) -> np.ndarray:
    """φ(x)/Φ(x)."""
    return math.sqrt(2 / math.pi) / erfcx(-x / math.sqrt(2))


def find_interval(values: np.ndarray, counts: np.ndarray, depth: float) -> Interval:
    """Where L(u) = -(u-b)²/2 + Σ k_i log Φ(u + d_i), u = z + m_min, is within depth of its top.

    Behind, this is the integrand of P; ahead, that of P(nearest rival wins), and log R nats deeper
    on the left, which covers 1-P and every score.
    """
    nearest = values.min()
    ahead = bool(nearest >= 0 and (counts * np.exp(-values * values / 2)).sum() < 1)
    offsets = values - nearest
    weights = counts.astype(float)
    center = nearest
    if ahead:  # the nearest rival and the target change places
        weights[values.argmin()] -= 1
        offsets = np.append(offsets, -nearest)
        weights = np.append(weights, 1.0)
        center = 0.0

    def log_integrand(u: float) -> float:
        return -((u - center) ** 2) / 2 + (weights * log_ndtr(u + offsets)).sum()

    mode = max(center, nearest / 2 if ahead or nearest < 0 else nearest)
    for _ in range(60):  # Newton's steps
        ratio = mills(mode + offsets)
        slope = center - mode + (weights * ratio).sum()
        curvature = -1 - (weights * ratio * (ratio + mode + offsets)).sum()
        mode = mode - slope / curvature

    ends = []
    for side in (-1, 1):
        drop = depth + (math.log(counts.sum()) if ahead and side < 0 else 0.0)
        near, far = 0.0, math.sqrt(2 * drop)
        for _ in range(80):  # bisections
            middle = (near + far) / 2
            if log_integrand(mode) - log_integrand(mode + side * middle) < drop:
                near = middle
            else:
                far = middle
        ends.append(float(mode + side * far - nearest))
    return Interval(ends[0], float(mode - nearest), ends[1], ahead)


# --------------------------------------------------------------------- the integral, 46 digits


class Setting(NamedTuple):
    nodes: int
    depth: float  # of the interval, in nats
    curved: bool  # the exponential map, or z itself?


CURVED = Setting(nodes=220, depth=104.0, curved=True)
UNIFORM = Setting(nodes=900, depth=112.0, curved=False)


class Logs(NamedTuple):
    log_p: Real
    log_q: Real  # log(1-P)
    scores: list[Real]  # log(∂log P/∂m) of one rival, for the picked runs


def cdf(x: Real) -> Real:
    return mp.erfc(-x / SQRT_2) / 2


def pdf(x: Real) -> Real:
    return mp.exp(-x * x / 2) / SQRT_2PI


def place_nodes(interval: Interval, setting: Setting) -> Iterator[tuple[Real, Real]]:
    """The rule's nodes z and their weights dz."""
    low, mode, high = mp.mpf(interval.low), mp.mpf(interval.mode), mp.mpf(interval.high)
    width = high - low
    skew = mp.log((high - mode) / (mode - low)) if setting.curved else mp.mpf(0)
    straight = abs(skew) < mp.mpf("1e-2")
    for node in range(setting.nodes):
        t = (2 * mp.mpf(node) + 1) / setting.nodes  # in (0, 2)
        if straight:
            yield low + width * t / 2, width / setting.nodes
        else:
            z = low + width * mp.expm1(skew * t) / mp.expm1(2 * skew)
            slope = width * skew * mp.exp(skew * t) / mp.expm1(2 * skew)
            yield z, slope * 2 / setting.nodes


def one_minus_p(margins: list[Real], counts: list[int], interval: Interval, nodes: int) -> Real:
    """∫ φ(z) (1 - ∏Φ) dz, the bracket as -expm1(Σ log1p(-Φ(-·))), from further left than low."""
    low, high = mp.mpf(interval.low), mp.mpf(interval.high)
    low = -mp.sqrt(low * low + 230)
    total = mp.mpf(0)
    for node in range(nodes):
        z = low + (high - low) * (2 * mp.mpf(node) + 1) / (2 * nodes)
        log_product = mp.fsum(
            count * mp.log1p(-cdf(-(z + margin)))
            for margin, count in zip(margins, counts, strict=True)
        )
        total += pdf(z) * -mp.expm1(log_product)
    return total * ((high - low) / nodes)


def integrate(case: Case, picked: list[int], setting: Setting) -> Logs:
    values = np.array([value for value, _ in case.runs])
    interval = find_interval(values, np.array([count for _, count in case.runs]), setting.depth)
    margins = [mp.mpf(value) for value, _ in case.runs]
    counts = [int(count) for _, count in case.runs]
    p, q = mp.mpf(0), mp.mpf(0)
    gradient = [mp.mpf(0) for _ in picked]
    for z, dz in place_nodes(interval, setting):
        cdfs = [cdf(z + margin) for margin in margins]
        product = mp.fprod(c**count for c, count in zip(cdfs, counts, strict=True))
        ratios = [pdf(z + margin) / c for margin, c in zip(margins, cdfs, strict=True)]
        mass = dz * pdf(z) * product
        p += mass
        if interval.ahead and setting.curved:
            slope = mp.fsum(count * ratio for ratio, count in zip(ratios, counts, strict=True))
            q += dz * cdf(z) * product * slope
        for place, run in enumerate(picked):
            gradient[place] += mass * ratios[run]
    if interval.ahead:
        if not setting.curved:
            q = one_minus_p(margins, counts, interval, setting.nodes)
        log_p, log_q = mp.log1p(-q), mp.log(q)
    else:
        log_p, log_q = mp.log(p), mp.log1p(-p)
    return Logs(log_p, log_q, [mp.log(g) - log_p for g in gradient])


# ------------------------------------------------------------------------- the table's entries


def drop_negligible(curved: Logs, uniform: Logs) -> None:
    """Put -inf, in place, for scores that both find to be less than 1e-25 of the largest."""
    largest = max(uniform.scores)
    for place, pair in enumerate(zip(curved.scores, uniform.scores, strict=True)):
        if max(pair) - largest < NEGLIGIBLE:
            curved.scores[place] = uniform.scores[place] = mp.ninf


def disagreement(found: Logs, true: Logs) -> float:
    """The largest error, relative to max(1, |value|); a score's counts by its share of the top."""
    largest = max(true.scores)
    pairs = [(found.log_p, true.log_p, 1), (found.log_q, true.log_q, 1)]
    for found_score, true_score in zip(found.scores, true.scores, strict=True):
        if mp.ninf in (found_score, true_score):
            if found_score != true_score:
                return math.inf
            continue
        pairs.append((found_score, true_score, mp.exp(true_score - largest)))
    return max(float(abs(a - b) / max(1, abs(b)) * share) for a, b, share in pairs)


def make_entry(case: Case) -> dict[str, Any]:
    """The case's entry in the table; ArithmeticError if the two settings disagree."""
    order = np.argsort([value for value, _ in case.runs])
    picked = sorted({int(order[0]), int(order[len(order) // 2]), int(order[-1])})
    curved = integrate(case, picked, CURVED)
    uniform = integrate(case, picked, UNIFORM)
    drop_negligible(curved, uniform)
    error = disagreement(curved, uniform)
    if not error < TOLERANCE:
        raise ArithmeticError(f"the two settings disagree by {error:.1e} in '{case.name}'.")
    scores = [mp.nstr(score, DIGITS) for score in uniform.scores]
    return {
        "group": case.group,
        "name": case.name,
        "runs": case.runs,
        "log_p": mp.nstr(uniform.log_p, DIGITS),
        "log_q": mp.nstr(uniform.log_q, DIGITS),
        "score": {str(run): score for run, score in zip(picked, scores, strict=True)},
        "agree": f"{error:.0e}",
    }


def read_logs(entry: dict[str, Any]) -> Logs:
    scores = [mp.mpf(score) for score in entry["score"].values()]
    return Logs(mp.mpf(entry["log_p"]), mp.mpf(entry["log_q"]), scores)


# ------------------------------------------------------------------------------ the two commands


def write(cases: list[Case]) -> None:
    entries = []
    for case in cases:
        entries.append(make_entry(case))
        print(f"{len(entries)} of {len(cases)}: {case.name}")
    table = {"about": ABOUT, "digits": DIGITS, "cases": entries}
    TABLE.write_text(json.dumps(table, separators=(",", ":")))
    worst = max(float(entry["agree"]) for entry in entries)
    print(f"{TABLE}: {len(entries)} cases; the settings agree to {worst:.0e}.")


def check(cases: list[Case], amount: int) -> bool:
    """Does the stored table list these cases, and equal ``amount`` recomputed ones of them?"""
    stored = json.loads(TABLE.read_text())["cases"]
    if [Case(entry["group"], entry["name"], entry["runs"]) for entry in stored] != cases:
        print(f"{TABLE.name} has other cases than this script.")
        return False
    places = [round(place) for place in np.linspace(0, len(cases) - 1, amount)]
    same = True
    for place in places:
        entry = make_entry(cases[place])
        same_runs = entry["score"].keys() == stored[place]["score"].keys()
        error = disagreement(read_logs(entry), read_logs(stored[place])) if same_runs else math.inf
        same = same and error < TOLERANCE
        digits = "same" if entry == stored[place] else "differ"
        print(f"{entry['name']}: settings {entry['agree']}, table {error:.0e}, digits {digits}")
    verdict = "reproduces" if same else "does not reproduce"
    print(f"{verdict} {TABLE.name}: {amount} of {len(cases)} cases, to {TOLERANCE:.0e}.")
    return same


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the orthant probability's mpmath table.")
    parser.add_argument(
        "--check", type=int, metavar="N", help="recompute N cases and compare; write nothing"
    )
    amount = parser.parse_args().check
    cases = [*named_cases(), *drawn_cases()]
    if amount is None:
        write(cases)
    elif not 1 <= amount <= len(cases):
        parser.error(f"--check must lie in [1, {len(cases)}]; got {amount}.")
    elif not check(cases, amount):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
