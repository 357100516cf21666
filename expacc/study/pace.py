"""How long a run of a study trains: about as many steps whatever the table, in equal batches."""

import math

__all__ = ["PROTOCOL", "pace", "pace_text", "parts"]

# Raised with every change of trials, training or choice: rows of two protocols are not to be mixed.
PROTOCOL = 4
STEPS, BATCHES, EPOCHS = 1000, (64, 1024), (10, 250)
PARTS = 16  # batches an epoch
# EXACT divides by the deviation of its batch and, in the end, counts the errors of few of its rows:
# on car, larger batches find better optima, and runs agree on them. Cross entropy gains nothing.
EXACT_PARTS = 4


def parts(loss: str) -> int:
    """How many batches an epoch should have; losses with equal numbers can train together."""
    return EXACT_PARTS if loss == "exact" else PARTS


def pace(rows: int, loss: str) -> tuple[int, int]:
    """The rows of a batch and the number of epochs.

    >>> pace(1600, "cross_entropy"), pace(1600, "exact"), pace(10**6, "exact")
    ((100, 63), (400, 250), (1024, 10))
    """
    fewest, most = EPOCHS
    least, largest = BATCHES
    batch = min(max(rows / parts(loss), least), largest)
    steps = math.ceil(rows / batch)
    # Batches of one size: a last one of a few rows would be noise.
    return math.ceil(rows / steps), max(fewest, min(most, math.ceil(STEPS / steps)))


def pace_text() -> str:
    """The same in words."""
    return (
        f"Models were trained with Adam, the learning rate falling to a fiftieth, for about "
        f"{STEPS:,} steps ({EPOCHS[0]} to {EPOCHS[1]} passes over the rows) in batches of "
        f"1/{PARTS} of the rows (1/{EXACT_PARTS} for EXACT; at least {BATCHES[0]}, at most "
        f"{BATCHES[1]:,} rows)."
    )
