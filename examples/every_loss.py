"""Train the same small network with every loss, on clean labels and on labels with mistakes.

Data: the handwritten digits that ship inside scikit-learn. One recipe for all, learning rate
included, so this shows how the losses behave; it is not a fair contest between them.
"""

import argparse
import time
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import expacc
from expacc.registry import SPECS
from expacc.schedules import focus_gradual, focus_switch, sigma_vision

EPOCHS, BATCH, HIDDEN, LEARNING_RATE = 40, 64, 64, 0.002
WRONG_SHARES = (0.0, 0.2)
NEVER_ALONE = "complement_entropy"  # it knows nothing of the true class's own score


def losses() -> dict[str, nn.Module]:
    def mixed(schedule):
        return expacc.ScheduledLoss(expacc.MixedExpectedErrorLoss(), focus=schedule)

    plain = [name for name in expacc.list_losses() if name not in ("exact", NEVER_ALONE)]
    return {SPECS[name].label: expacc.get_loss(name) for name in plain} | {
        "mixture, switch": mixed(focus_switch),
        "mixture, gradual": mixed(focus_gradual),
        "EXACT, sigma 10 → 1": expacc.ScheduledLoss(
            expacc.ExactLoss(margin=5.0), sigma=sigma_vision
        ),
    }


def digits(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    features, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        features / 16, labels, test_size=0.3, random_state=seed, stratify=labels
    )
    x, x_test = (torch.tensor(part, dtype=torch.float32) for part in parts[:2])
    y, y_test = (torch.tensor(part) for part in parts[2:])
    return x, x_test, y, y_test


def with_mistakes(labels: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Replace a share of the labels by other classes, at random."""
    wrong = torch.rand(len(labels), generator=generator) < share
    shift = torch.randint(1, 10, labels.shape, generator=generator)
    return torch.where(wrong, (labels + shift) % 10, labels)


def batches(rows: int, generator: torch.Generator) -> Iterator[Tensor]:
    yield from torch.randperm(rows, generator=generator).split(BATCH)


def train(loss: nn.Module, share: float, seed: int) -> float:
    """Accuracy on clean test rows after training on labels of which ``share`` are wrong."""
    x, x_test, y, y_test = digits(seed)
    generator = torch.Generator().manual_seed(seed)
    y = with_mistakes(y, share, generator)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    for epoch in range(EPOCHS):
        if isinstance(loss, expacc.ScheduledLoss):
            loss.step(epoch / EPOCHS)
        for rows in batches(len(x), generator):
            value = loss(model(x[rows]), y[rows])
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    with torch.no_grad():
        return (F.softmax(model(x_test), 1).argmax(1) == y_test).double().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="runs per loss (default 3)")
    seeds = range(parser.parse_args().seeds)
    torch.set_num_threads(1)
    console = Console()
    console.print(
        f"Digits, a network of {HIDDEN} hidden units, {EPOCHS} epochs, {len(seeds)} seeds each. "
        "Test labels are always clean."
    )
    start = time.perf_counter()
    results: dict[str, dict[float, Tensor]] = {}
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=len(losses()) * len(WRONG_SHARES) * len(seeds))
        for name, loss in losses().items():
            progress.update(task, description=f"{name:26s}")
            results[name] = {}
            for share in WRONG_SHARES:
                runs = []
                for seed in seeds:
                    runs.append(train(loss, share, seed))
                    progress.advance(task)
                results[name][share] = torch.tensor(runs) * 100

    table = Table(title="Test accuracy, % (mean ± spread over seeds)")
    table.add_column("loss")
    for share in WRONG_SHARES:
        table.add_column(f"{share:.0%} wrong labels" if share else "clean labels", justify="right")
        table.add_column("vs CE", justify="right")
    baseline = results["cross entropy"]
    best = {share: max(r[share].mean() for r in results.values()) for share in WRONG_SHARES}
    for name, scores in results.items():
        cells = []
        for share in WRONG_SHARES:
            mean = scores[share].mean()
            text = f"{mean:.1f} ± {scores[share].std(correction=0):.1f}"
            cells.append(f"[bold green]{text}[/]" if mean == best[share] else text)
            cells.append("" if name == "cross entropy" else f"{mean - baseline[share].mean():+.1f}")
        table.add_row(name, *cells)
    console.print(table)
    console.print(
        f"{len(results) * len(WRONG_SHARES) * len(seeds)} runs in "
        f"{time.perf_counter() - start:.0f} s. One recipe for all; a difference within the spread "
        "means nothing."
    )


if __name__ == "__main__":
    main()
