"""What a trained run of the leaky recipes is judged by."""

from expacc.training import RunResult

__all__ = ["trial_metrics", "validation_accuracy"]


def validation_accuracy(result: RunResult) -> float:
    """At the epoch whose weights were kept."""
    return result.curves["validation_accuracy"][result.best_epoch - 1]


def trial_metrics(result: RunResult) -> dict[str, float]:
    """For the row of a trial."""
    return {
        "validation_accuracy": validation_accuracy(result),
        "epochs": float(result.epochs),
        "best_epoch": float(result.best_epoch),
        "stopped": float(result.stopped),
    }
