"""Rebuild the two toy data sets of the EXACT paper, and answer the objection to them.

A few points on a line and a threshold b: the model is f(x) = k (x - b), class +1 if f(x) >= 0. For
each loss this finds the threshold that the loss prefers and the accuracy there, beside the numbers
of the paper (Section 3, Appendices D and E). Then it trains the temperature k as well, as a blog
post asks. About 15 seconds on one core; ``expacc reproduce exact-toy`` draws the figures.

paper: Karpukhin, Dereka and Kolesnikov, "EXACT: How to Train Your Accuracy", arXiv 2205.09615
blog:  Su Jianlin, "How to Train Your Accuracy?", kexue.fm/archives/9098
"""

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from expacc.recipes.exact import TOY
from expacc.recipes.exact.toy import (
    LOSSES,
    TOYS,
    Found,
    Toy,
    as_the_paper,
    best_threshold,
    loss_of,
    percent_text,
    place_text,
    train_k_and_b,
)
from expacc.report.words import loss_name

TEMPERATURES = {"three": (1.0, 4.0, 32.0), "five": (0.05, 0.15, 1.0, 4.0)}
ABOUT_THE_PAPER = """
EXACT by the authors' descents from b = 0, the others by search. The paper's thresholds for the five
points depend on the search, its accuracies do not. Its grid of k and b is not printed; ours is
k = 0.02, 0.04 … 1 and b = -11, -10.75 … 7. Trained to the end, below, cross entropy prefers -8.33
and hinge no threshold at all (k = 0, all in class +1): -11 is where our grid ends. EXACT's -5.35 is
where its descent stops; as σ falls, its minimum goes to -5.5.
"""
ABOUT_THE_BLOG = """
The blog is right about the three points: with k trained, cross entropy and hinge separate them too,
and EXACT with σ held at 1 (k = 1) does not; they show a missing temperature, not a worse loss. The
paper's five points, which the blog does not discuss, do answer it: k is free, and still cross
entropy and hinge are lowest at 60 % (k = 0.15 gives cross entropy 80 %, but training leaves it),
EXACT at 80 % once σ is small. That minimum must be found, though: with k trained from 1 instead of
σ lowered slowly, EXACT stops in a local one, at 60 %.
"""


def trained(toy: Toy, name: str) -> Found:
    """k and b trained together, from k = 1, b = 0."""
    one = torch.ones(1, dtype=torch.float64)
    return train_k_and_b(loss_of(name), toy, one, 0 * one, 800)[0]


def table_of(title: str, *numbers: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, name in enumerate(("points", "loss", *numbers)):
        table.add_column(name, justify="left" if number < 2 else "right", no_wrap=True)
    return table


def cells(found: Found, toy: Toy) -> tuple[str, str]:
    at = vars(found)
    return ("none" if abs(found.k) < 1e-3 else place_text(at, toy)), percent_text(at)


def main() -> None:
    torch.set_num_threads(1)
    paper = table_of("Ours and the paper's", "k", "b", "paper", "accuracy", "paper")
    free = table_of("With k fixed, then trained from k = 1, b = 0 (EXACT: k is 1 / σ)",
                    "k", "b", "loss", "accuracy")  # fmt: skip
    for toy in TOYS.values():
        for name in LOSSES:
            low, high, share = TOY[toy.name][name]
            found = as_the_paper(toy, name)
            printed = " … ".join(f"{b:g}" for b in sorted({low, high}))
            place, accuracy = cells(found, toy)
            paper.add_row(toy.name, loss_name(name), f"{found.k:.3g}", place, printed, accuracy,
                          f"{share:.0f} %", end_section=name == "exact")  # fmt: skip
            fits = {f"{k:g}": best_threshold(loss_of(name), toy, k) for k in TEMPERATURES[toy.name]}
            end = trained(toy, name)
            for k, at in {**fits, f"trained {end.k:z.3f}": end}.items():
                place, accuracy = cells(at, toy)
                free.add_row(toy.name, loss_name(name), k, place, f"{at.loss:.4f}", accuracy,
                             end_section=at is end)  # fmt: skip
    console = Console()
    for table, text in ((paper, ABOUT_THE_PAPER), (free, ABOUT_THE_BLOG)):
        console.print(table, " ".join(text.split()), "", sep="\n")


if __name__ == "__main__":
    main()
