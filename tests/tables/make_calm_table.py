"""Fit the tables of ops/orthant/float32.py: where the integrand of the orthant integral lives.

Rows of many kinds (rivals equal, spread, in two groups) get the true ends of their integrand, where
it has dropped by 15 nats, by bisection. Polynomials in b and s are fitted to the ends by Lawson's
algorithm, which makes the largest error small, and widened by that error. Then the errors of the
integral are printed by rivals and nodes, on other rows: ``count_nodes`` is read off them.

    python tests/tables/make_calm_table.py      prints the tables and the errors, in two minutes
"""

import math

import torch
from torch import Tensor

from expacc.ops.orthant.float32 import LEVEL, MOST_RIVALS, SOFTNESS
from expacc.ops.orthant.node import orthant
from expacc.ops.orthant.noise import log_normal_cdf_and_mills

DROP = 15.0
BEND = 1.25**2 / 2  # of log(right/left): measured best
REACH = 19.0
LOWEST = {"NEAR": -8.0, "FAR": -REACH, "UPSET": 0.0}  # an upset: all rows count as ahead
LEAST_LOG_PROB = -92.0  # what is less underflows, whatever the nodes
RIVALS = (2, 3, 5, 9, 15, 31, 63, MOST_RIVALS)
NODES = (14, 16, 18, 20, 22, 24, 26, 28, 32, 40)


def make_rows(rivals: int, lowest: float, seed: int, each: int = 250) -> Tensor:
    """Margins (rows, rivals) with their smallest between ``lowest`` and REACH."""
    generator = torch.Generator().manual_seed(seed + rivals)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    kinds = []
    for spread in (0.0, 0.05, 0.3, 1.0, 2.0, 4.0, 8.0):
        normal = torch.randn(each, rivals, generator=generator, dtype=torch.float64)
        kinds.append(normal * spread)
    near = torch.arange(rivals) < 1 + (uniform(each, 1) * rivals).long()
    kinds.append(torch.where(near, 0.0, 6 * uniform(each, 1)))
    rows = torch.cat(kinds)
    rows += lowest + (REACH - lowest) * uniform(len(rows), 1) - rows.amin(1, keepdim=True)
    return rows[orthant(rows, 0)[0] > LEAST_LOG_PROB]


class Rows:
    """The rows with what the fit needs; everything but ``margins`` is (…, rows)."""

    def __init__(self, margins: Tensor, upset: bool) -> None:
        self.margins = margins
        scaled = margins.t() / math.sqrt(2)
        self.base, nearest = scaled.min(0)
        self.mu = self.base - scaled
        count = (SOFTNESS * self.mu).exp().sum(0).log()
        self.ahead = self.base > (-1 if upset else LEVEL * count)
        one = torch.ones_like(count)
        b, s = self.base, count
        self.features = torch.stack([one, s, s * s, b, b * s, b * b])
        # The shape of orthant.py: ahead, the target takes the nearest rival's place.
        self.shape = self.mu.scatter(0, nearest[None], torch.where(self.ahead, b, 0)[None])
        self.beta = torch.where(self.ahead, 0, b)
        mode = self._mode()
        left, right = (self._distance(mode, sign) for sign in (1, -1))
        bend = (left + right) * torch.tanh(BEND * torch.log(right / left))
        self.ends = torch.stack([mode + left, mode - right, bend])

    def _mode(self) -> Tensor:
        p = torch.where(~self.ahead & (self.base > 0), -self.base, -self.base / 2)
        for _ in range(60):
            y = self.shape + p
            eta = log_normal_cdf_and_mills(-math.sqrt(2) * y)[1] / math.sqrt(2)
            slope = 1 + (2 * eta * (eta - y)).sum(0)
            p = p - (p + self.beta + eta.sum(0)) / slope
        return p

    def _height(self, p: Tensor) -> Tensor:
        log_cdf = log_normal_cdf_and_mills(-math.sqrt(2) * (self.shape + p))[0]
        return log_cdf.sum(0) - (p + self.beta) ** 2

    def _distance(self, mode: Tensor, sign: int) -> Tensor:
        top = self._height(mode)
        low, high = torch.zeros_like(mode), torch.full_like(mode, 6.0)
        for _ in range(45):
            middle = (low + high) / 2
            inside = top - self._height(mode + sign * middle) < DROP
            low, high = torch.where(inside, middle, low), torch.where(inside, high, middle)
        return low


def lawson(features: Tensor, wanted: Tensor) -> tuple[Tensor, float]:
    """Coefficients with a small largest error, and that error."""
    weight = torch.ones_like(wanted)
    best, least = torch.empty(0), math.inf
    for _ in range(40):
        root = weight.sqrt()
        solution = torch.linalg.lstsq((features * root).t(), (wanted * root)[:, None]).solution
        error = (solution[:, 0] @ features - wanted).abs()
        if error.max().item() < least:
            best, least = solution[:, 0], error.max().item()
        weight = weight * (error / error.max() + 0.02)
        weight = weight / weight.mean()
    return best, least


def fit(sets: list[Rows], ahead: bool) -> Tensor:
    """Left end, width and bend, (3, 6)."""
    features = torch.cat([rows.features[:, rows.ahead == ahead] for rows in sets], 1)
    ends = torch.cat([rows.ends[:, rows.ahead == ahead] for rows in sets], 1)
    (left, left_error), (right, right_error), (bend, _) = (lawson(features, e) for e in ends)
    left[0] += left_error
    right[0] -= right_error
    return torch.stack([left, left - right, bend])


def errors(rows: Rows, table: Tensor, nodes: int) -> tuple[float, float]:
    """The largest error of log P or log(1-P), and of the gradient, as the bars count them."""
    behind, ahead = (table @ rows.features).view(2, 3, -1)
    left, width, bend = torch.where(rows.ahead, ahead, behind)
    t = ((torch.arange(nodes, dtype=torch.float64) + 0.5) / nodes)[:, None]
    p = left - width * t + bend * (t - t * t)
    weight = math.sqrt(2) / nodes * (width + bend * (2 * t - 1))
    log_cdf, hazard = log_normal_cdf_and_mills(-math.sqrt(2) * (rows.mu + p[:, None]))
    z = -math.sqrt(2) * (p + rows.base)
    log_product = log_cdf.sum(1)
    win = weight * (log_product - z * z / 2 - math.log(2 * math.pi) / 2).exp()
    lose = weight * (log_product + log_normal_cdf_and_mills(z)[0]).exp() * hazard.sum(1)
    small = torch.where(rows.ahead, lose.sum(0), win.sum(0))
    gradient = (hazard * win[:, None]).sum(0)
    log_p, log_q, true_small, true_gradient = orthant(rows.margins, 0)
    true = torch.where(rows.ahead, log_q, log_p)
    slope = true_gradient.t() * true_small.exp()
    value_error = (small.log() - true).abs() / true.abs().clamp(min=1)
    return value_error.max().item(), ((gradient - slope).abs().amax(0) / slope.amax(0)).max().item()


def main() -> None:
    for name, lowest in LOWEST.items():
        upset = name == "UPSET"
        sets = [Rows(make_rows(rivals, lowest, seed=0), upset) for rivals in RIVALS]
        ahead = fit(sets, ahead=True)
        table = torch.cat([ahead if upset else fit(sets, ahead=False), ahead])
        print(f"{name} = (")
        for line in table[3 * upset :].tolist():
            print(f"    ({', '.join(f'{value:.5g}' for value in line)}),")
        print(")\n")
        others = [Rows(make_rows(r, lowest, seed=1000, each=150), upset) for r in RIVALS]
        for nodes in NODES:
            found = (errors(rows, table, nodes) for rows in others)
            cells = (f"{r}: {a:.0e} {b:.0e}" for r, (a, b) in zip(RIVALS, found, strict=True))
            print(f"{nodes} nodes  ", "  ".join(cells))
        print()


if __name__ == "__main__":
    main()
