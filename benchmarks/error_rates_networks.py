"""How often does a study of networks that memorise their rows claim what is not so?

    python benchmarks/error_rates_networks.py --studies 4000 --device cuda

As `error_rates.py --about one-table`, for the learners that our losses are for: networks of 32
units, trained until they know their training rows by heart. All networks of many studies are one
tensor program, so that thousands of studies are a matter of seconds on a GPU. In every case the two
sides are equally good by construction: features of their own drawn alike, the same features from
other starts, or labels that nothing can predict with two losses. Every claim is false.
"""

import argparse
import json
from dataclasses import dataclass

import torch
from machine import RESULTS, facts, heading
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor
from torch.nn import functional as F

from expacc.functional import expected_error
from expacc.stats import paired_rows

DESIGNS = ((5, 3), (5, 2))  # repeats, folds
UNITS, STEPS, RATE = 32, 600, 0.02
LEVEL = 0.05
TOGETHER = 400  # studies


@dataclass(frozen=True)
class Case:
    """Two sides: ``shift`` is the distance of a feature's two class means from 0, in deviations."""

    name: str
    rows: int
    features: int = 5
    shift: float = 0.5
    same: bool = False  # the two sides see the same features
    two_losses: bool = False  # the second side is trained with the expected error

    def draw(self, studies: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
        """Features (studies, sides, rows, features) and labels (studies, rows)."""
        device = random.device
        labels = torch.randint(2, (studies, self.rows), generator=random, device=device)
        size = (studies, 1 if self.same else 2, self.rows, self.features)
        features = torch.randn(size, generator=random, device=device)
        features += self.shift * (2.0 * labels - 1)[:, None, :, None]
        return features.expand(-1, 2, -1, -1), labels


CASES = (
    Case("features of their own", 200),
    Case("features of their own", 500),
    Case("features of their own, easy", 200, shift=0.9),
    Case("same features, other starts", 200, same=True),
    Case("labels are noise", 200, shift=0.0),
    Case("labels are noise", 500, shift=0.0),
    Case("labels are noise, 20 features", 200, features=20, shift=0.0),
    Case("labels are noise, same features, two losses", 200, shift=0.0, same=True, two_losses=True),
    Case("labels are noise, same features, two losses", 500, shift=0.0, same=True, two_losses=True),
)


def parts_of(studies: int, rows: int, repeats: int, folds: int, random: torch.Generator) -> Tensor:
    """The fold of each row: (studies, repeats, rows)."""
    order = torch.rand((studies, repeats, rows), generator=random, device=random.device).argsort(-1)
    return order.argsort(-1) % folds


def right(
    case: Case, features: Tensor, labels: Tensor, trains: Tensor, random: torch.Generator
) -> Tensor:
    """Which rows each network gets right, (studies, networks, sides, rows).

    Args:
        features: (studies, sides, rows, features).
        labels: (studies, rows).
        trains: whether a network is trained on a row, (studies, networks, rows).
    """
    studies, networks, rows = trains.shape
    device = random.device
    size = (studies, networks, 2)
    inputs = features[:, None]
    shapes = ((features.shape[-1], UNITS), (1, UNITS), (UNITS, 2), (1, 2))
    weights = [
        (torch.randn((*size, *shape), generator=random, device=device) / max(shape[0], 2) ** 0.5)
        .mul_(shape[0] > 1)
        .requires_grad_()
        for shape in shapes
    ]
    optimizer = torch.optim.Adam(weights, lr=RATE)
    share = trains.float().unsqueeze(2) / trains.sum(-1)[..., None, None]
    target = labels[:, None, None, :].expand(*size, rows)

    def logits() -> Tensor:
        hidden = (inputs @ weights[0] + weights[1]).relu()
        return hidden @ weights[2] + weights[3]

    for step in range(STEPS):
        flat = logits().reshape(-1, 2)
        losses = F.cross_entropy(flat, target.reshape(-1), reduction="none").reshape(target.shape)
        if case.two_losses and step >= STEPS // 3:  # from cross entropy on, as in training
            other = expected_error(flat, target.reshape(-1), reduction="none").reshape(target.shape)
            losses = torch.stack([losses[:, :, 0], 10 * other[:, :, 1]], 2)
        optimizer.zero_grad()
        (losses * share).sum().backward()
        optimizer.step()
    with torch.no_grad():
        return logits().argmax(-1) == target


def rate(
    case: Case, repeats: int, folds: int, studies: int, device: str, seed: int
) -> tuple[float, float]:
    """The share of studies with a claim, and of training rows that are known by heart."""
    random = torch.Generator(device).manual_seed(seed)
    claims, known = [], []
    for start in track(
        range(0, studies, TOGETHER), f"{case.name}, {repeats}×{folds}", transient=True
    ):
        now = min(TOGETHER, studies - start)
        features, labels = case.draw(now, random)
        parts = parts_of(now, case.rows, repeats, folds, random)
        trains = torch.stack([parts != fold for fold in range(folds)], 2).flatten(1, 2)
        found = right(case, features, labels, trains, random)
        known.append(found.float()[trains.unsqueeze(2).expand_as(found)].mean().item())
        gains = (found[:, :, 0].double() - found[:, :, 1].double()) * ~trains
        gains = gains.unflatten(1, (repeats, folds)).sum(2)  # a row is tested once a repetition
        for one in gains.cpu().numpy():
            test = paired_rows(one, folds)
            claims.append(test.p_value <= LEVEL and not test.interval[0] <= 0 <= test.interval[1])
    return sum(claims) / len(claims), sum(known) / len(known)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commit", help="of the code, where git is not at hand")
    parser.add_argument("--dry-run", action="store_true", help="write no result file")
    asked = parser.parse_args()
    console = Console(width=130)
    about = facts(studies=asked.studies, seed=asked.seed)
    if asked.device == "cuda":
        about["gpu"] = torch.cuda.get_device_name()
    if asked.commit:
        about["commit"] = asked.commit
    console.print(heading(about))
    rows = []
    for place, case in enumerate(CASES):
        row: dict[str, object] = {"name": case.name, "rows": case.rows}
        for repeats, folds in DESIGNS:
            seed = asked.seed * 1000 + 10 * place + folds
            false, known = rate(case, repeats, folds, asked.studies, asked.device, seed)
            row[f"{repeats}×{folds}"] = round(100 * false, 2)
            row[f"known by heart, {repeats}×{folds}"] = round(100 * known, 1)
        rows.append(row)
        console.print(row)
    table = Table(*rows[0], title="False claims of networks that memorise, %")
    for row in rows:
        table.add_row(*map(str, row.values()))
    console.print(table)
    if not asked.dry_run:
        path = RESULTS / "error-rates-networks.json"
        path.write_text(json.dumps({"facts": about, "False claims, %": rows}, indent=1) + "\n")
        console.print(f"Written to {path}.")


if __name__ == "__main__":
    main()
