"""How long a run of a study trains: about as many steps whatever the table, in equal batches."""

import math

__all__ = ["PROTOCOL", "epochs_a_point", "pace", "pace_text", "parts"]

# Raised with every change of trials, training or choice: rows of two protocols are not to be mixed.
PROTOCOL = 5
STEPS, EPOCHS = 1000, (10, 250)
LEAST = 64  # rows of a batch
PARTS, LARGEST = 16, 128  # batches an epoch, and rows of a batch up to which there are so many
# EXACT divides by the deviation of its batch and, in the end, counts the errors of few of its rows:
# on car, larger batches find better optima, and runs agree on them. Cross entropy gains nothing.
EXACT_PARTS, EXACT_LARGEST = 4, 512
HUGE = 1024  # rows of a batch, for tables whose rows are not all seen often enough otherwise
POINTS = 50  # of a training curve


def parts(loss: str) -> int:
    """How many batches an epoch should have; losses with equal numbers can train together."""
    return EXACT_PARTS if loss == "exact" else PARTS


def pace(rows: int, loss: str) -> tuple[int, int]:
    """The rows of a batch and the number of epochs.

    >>> pace(1600, "cross_entropy"), pace(1600, "exact"), pace(10**6, "exact")
    ((100, 63), (400, 250), (1024, 10))
    """
    fewest, most = EPOCHS
    largest = EXACT_LARGEST if loss == "exact" else LARGEST
    batch = min(max(rows / parts(loss), LEAST), largest)
    # The fewest epochs in the usual number of steps, if such batches are not too large.
    batch = max(batch, min(rows * fewest / STEPS, HUGE))
    steps = math.ceil(rows / batch)
    # Batches of one size: a last one of a few rows would be noise.
    return math.ceil(rows / steps), max(fewest, min(most, math.ceil(STEPS / steps)))


def epochs_a_point(epochs: int) -> int:
    """Epochs from one point of a training curve to the next."""
    return math.ceil(epochs / POINTS)


def pace_text() -> str:
    """The same in words."""
    return (
        f"Models were trained with Adam, the learning rate falling to a fiftieth, for about "
        f"{STEPS:,} steps ({EPOCHS[0]} to {EPOCHS[1]} passes over the rows) in batches of "
        f"1/{PARTS} of the rows, {LEAST} to {LARGEST} (for EXACT 1/{EXACT_PARTS}, {LEAST} to "
        f"{EXACT_LARGEST}; up to {HUGE:,} where {EPOCHS[0]} passes need them)."
    )
