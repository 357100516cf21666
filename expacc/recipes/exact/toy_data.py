"""The toy data of the EXACT paper, and what the paper prints of them."""

from dataclasses import dataclass

__all__ = ["FIVE", "LOSSES", "PRINTED", "THREE", "TOYS", "Printed", "Toy", "accuracy", "best"]

LOSSES = ("cross_entropy", "hinge", "exact")


@dataclass(frozen=True)
class Toy:
    """Points on a line, of class -1 or +1; the model is f(x) = k (x - b), class +1 if f(x) >= 0.

    Args:
        name: in keys.
        title: for people.
        x: where the points are.
        label: 1 for the paper's class +1, 0 for its class -1.
        search: where thresholds b are looked for.
        view: the thresholds that charts show.
        starts: between which training starts, when it starts at random.
        temperatures: the k that are held fixed in turn.
    """

    name: str
    title: str
    x: tuple[float, ...]
    label: tuple[int, ...]
    search: tuple[float, float]
    view: tuple[float, float]
    starts: tuple[float, float]
    temperatures: tuple[float, ...]


# Section 3, Figure 1
THREE = Toy(
    "three", "three points", (-0.25, 0, 0.25), (0, 0, 1),
    search=(-10, 40), view=(-1, 1.5), starts=(-1, 1), temperatures=(1, 2, 4, 8, 32),
)  # fmt: skip
# Appendix E, Figure 10
FIVE = Toy(
    "five", "five points", (-6, -5, -4, 0, 2), (0, 1, 1, 0, 1),
    search=(-1000, 100), view=(-14, 8), starts=(-8, 4), temperatures=(0.05, 0.15, 0.5, 1, 4, 32),
)  # fmt: skip
TOYS = {toy.name: toy for toy in (THREE, FIVE)}


@dataclass(frozen=True)
class Printed:
    """What the paper says that a loss finds.

    Args:
        low: the lowest threshold of the smallest loss.
        high: the highest; the same unless the loss is flat there.
        accuracy: in points.
    """

    low: float
    high: float
    accuracy: float


# Section 3 and Appendix D: "misclassify one element" of three, EXACT 100 %; Appendix E.
PRINTED = {
    ("three", "cross_entropy"): Printed(0.7, 0.7, 200 / 3),
    ("three", "hinge"): Printed(0.75, 1.0, 200 / 3),
    ("three", "exact"): Printed(0.125, 0.125, 100.0),
    ("five", "cross_entropy"): Printed(-7.75, -7.75, 60.0),
    ("five", "hinge"): Printed(-11.0, -11.0, 60.0),
    ("five", "exact"): Printed(-5.35, -5.35, 80.0),
}


def accuracy(toy: Toy, k: float, b: float) -> float:
    """Share of points in their class; f(x) = 0 is class +1 (Eq. 1)."""
    right = [(k * (x - b) >= 0) == bool(y) for x, y in zip(toy.x, toy.label, strict=True)]
    return sum(right) / len(right)


def best(toy: Toy) -> tuple[float, tuple[float, float]]:
    """The highest accuracy of any threshold, and the first interval of thresholds that has it."""
    ends = sorted(toy.x)
    gaps = list(zip([ends[0] - 1, *ends], [*ends, ends[-1] + 1], strict=True))
    shares = [max(accuracy(toy, k, (low + high) / 2) for k in (1.0, -1.0)) for low, high in gaps]
    highest = max(shares)
    return highest, gaps[shares.index(highest)]
