"""The tables of the EXACT paper that this package does again, as printed.

Karpukhin, Dereka and Kolesnikov, "EXACT: How to Train Your Accuracy", arXiv 2205.09615.
"""

from dataclasses import dataclass

from expacc.recipes.page import Number

__all__ = [
    "METHODS",
    "TABLES",
    "TABLE_1",
    "TABLE_2",
    "TABLE_4",
    "TABLE_5",
    "TABLE_6",
    "TABLE_8",
    "Settings",
]

SEEDS = 5  # of every number of Tables 1 to 6

TABLES = (
    "adult",
    "annealing",
    "audit-risk",
    "balance-scale",
    "breast-cancer-wisconsin",
    "car",
    "cylinder-bands",
    "dry-bean",
    "mice-protein",
    "wine",
)

# Method → what the paper calls it.
METHODS = {
    "logistic_regression": "Sklearn",
    "cross_entropy": "cross entropy",
    "hinge": "hinge",
    "exact": "EXACT",
}

_Printed = dict[str, tuple[tuple[float, float], ...]]


def _numbers(printed: _Printed, columns: tuple[str, ...]) -> dict[str, dict[str, Number]]:
    return {
        table: {
            column: Number(mean, spread, SEEDS)
            for column, (mean, spread) in zip(columns, row, strict=True)
        }
        for table, row in printed.items()
    }


# Table 1: accuracy on the training rows, in per cent.
_TRAIN: _Printed = {
    "adult": ((85.33, 0.00), (85.38, 0.02), (85.28, 0.01), (85.47, 0.01)),
    "annealing": ((100.00, 0.00), (100.00, 0.00), (100.00, 0.00), (100.00, 0.00)),
    "audit-risk": ((99.19, 0.00), (98.23, 0.00), (100.00, 0.00), (100.00, 0.00)),
    "balance-scale": ((91.40, 0.00), (91.40, 0.00), (91.60, 0.00), (91.60, 0.00)),
    "breast-cancer-wisconsin": ((98.68, 0.00), (98.02, 0.00), (98.90, 0.00), (99.03, 0.11)),
    "car": ((94.50, 0.00), (94.50, 0.00), (93.63, 0.00), (96.67, 0.00)),
    "cylinder-bands": ((80.05, 0.00), (80.28, 0.00), (79.86, 0.09), (87.42, 0.17)),
    "dry-bean": ((92.79, 0.00), (92.38, 0.00), (92.44, 0.01), (92.67, 0.02)),
    "mice-protein": ((100.00, 0.00), (100.00, 0.00), (99.44, 0.11), (100.00, 0.00)),
    "wine": ((100.00, 0.00), (100.00, 0.00), (100.00, 0.00), (100.00, 0.00)),
}
TABLE_1 = _numbers(_TRAIN, tuple(METHODS))

# Table 2: accuracy on the test rows.
_TEST: _Printed = {
    "adult": ((85.28, 0.00), (85.28, 0.01), (85.26, 0.01), (85.21, 0.01)),
    "annealing": ((100.00, 0.00), (100.00, 0.00), (100.00, 0.00), (100.00, 0.00)),
    "audit-risk": ((98.72, 0.00), (96.28, 0.48), (97.05, 0.65), (96.67, 0.75)),
    "balance-scale": ((92.00, 0.00), (92.00, 0.00), (92.00, 0.00), (92.00, 0.00)),
    "breast-cancer-wisconsin": ((95.61, 0.00), (95.96, 0.43), (96.49, 0.00), (97.37, 0.00)),
    "car": ((92.20, 0.00), (91.91, 0.00), (92.77, 0.00), (95.20, 0.14)),
    "cylinder-bands": ((72.22, 0.00), (72.78, 0.45), (74.44, 0.45), (77.22, 0.45)),
    "dry-bean": ((93.06, 0.00), (92.83, 0.01), (92.93, 0.03), (92.99, 0.07)),
    "mice-protein": ((99.07, 0.00), (98.89, 0.23), (97.69, 0.00), (97.69, 0.00)),
    "wine": ((100.00, 0.00), (100.00, 0.00), (100.00, 0.00), (100.00, 0.00)),
}
TABLE_2 = _numbers(_TEST, tuple(METHODS))

# Table 4: EXACT without each of its parts, test rows.
_PARTS = ("no margin", "no schedule", "no normaliser", "exact")
_WITHOUT: _Printed = {
    "adult": ((84.76, 0.03), (84.43, 0.13), (85.27, 0.02), (85.20, 0.02)),
    "annealing": ((99.00, 0.00), (92.20, 1.17), (98.00, 0.63), (100.00, 0.00)),
    "audit-risk": ((94.74, 0.48), (97.31, 0.48), (93.72, 0.48), (96.92, 0.48)),
    "balance-scale": ((92.00, 0.00), (92.00, 0.00), (92.00, 0.00), (92.00, 0.00)),
    "breast-cancer-wisconsin": ((95.61, 0.00), (96.32, 0.66), (97.54, 0.66), (96.49, 0.00)),
    "car": ((91.04, 0.00), (93.58, 0.22), (94.68, 0.29), (94.80, 0.00)),
    "cylinder-bands": ((73.15, 0.59), (69.81, 1.99), (76.48, 0.94), (77.22, 0.45)),
    "dry-bean": ((92.41, 0.05), (92.97, 0.15), (92.56, 0.22), (92.79, 0.08)),
    "mice-protein": ((98.15, 0.00), (97.13, 0.68), (98.70, 0.45), (98.33, 0.56)),
    "wine": ((100.00, 0.00), (99.44, 1.11), (100.00, 0.00), (100.00, 0.00)),
}
TABLE_4 = _numbers(_WITHOUT, _PARTS)

# Tables 5 and 6: cross entropy and hinge with the gradient normaliser, and without; test rows.
_NORMALISED = ("with", "without")
_CROSS_ENTROPY: _Printed = {
    "adult": ((85.27, 0.01), (85.28, 0.01)),
    "annealing": ((100.00, 0.00), (100.00, 0.00)),
    "audit-risk": ((98.08, 0.00), (96.28, 0.48)),
    "balance-scale": ((92.00, 0.00), (92.00, 0.00)),
    "breast-cancer-wisconsin": ((95.61, 0.00), (95.96, 0.43)),
    "car": ((92.20, 0.00), (91.91, 0.00)),
    "cylinder-bands": ((72.78, 0.74), (72.78, 0.45)),
    "dry-bean": ((92.81, 0.01), (92.83, 0.01)),
    "mice-protein": ((98.61, 0.00), (98.89, 0.23)),
    "wine": ((100.00, 0.00), (100.00, 0.00)),
}
TABLE_5 = _numbers(_CROSS_ENTROPY, _NORMALISED)

_HINGE: _Printed = {
    "adult": ((85.23, 0.03), (85.26, 0.01)),
    "annealing": ((100.00, 0.00), (100.00, 0.00)),
    "audit-risk": ((98.72, 0.00), (97.05, 0.65)),
    "balance-scale": ((92.00, 0.00), (92.00, 0.00)),
    "breast-cancer-wisconsin": ((97.37, 0.00), (96.49, 0.00)),
    "car": ((90.17, 1.92), (92.77, 0.00)),
    "cylinder-bands": ((73.15, 0.00), (74.44, 0.45)),
    "dry-bean": ((92.75, 0.04), (92.93, 0.03)),
    "mice-protein": ((98.98, 0.19), (97.69, 0.00)),
    "wine": ((100.00, 0.00), (100.00, 0.00)),
}
TABLE_6 = _numbers(_HINGE, _NORMALISED)


@dataclass(frozen=True)
class Settings:
    """A line of Table 8, or what a search found in its place.

    Args:
        learning_rate: at the start; None for scikit-learn.
        clip: the largest norm of the gradient; None for none.
        margin: of hinge and EXACT; None for none.
        regularization: L2 on the weights; of scikit-learn 1/C, 0 for no penalty.
    """

    learning_rate: float | None = None
    clip: float | None = None
    margin: float | None = None
    regularization: float = 0.0


# Table 8. Regularisation is 0 everywhere but for scikit-learn.
_REGULARIZATION = (10, 0, 1, 0, 0.1, 0.1, 1, 0, 0, 0)  # scikit-learn, in the order of TABLES
_RATE_CLIP = ((1, 0.01), (1, 10), (0.01, 0.1), (1, 10), (0.01, 0.01), (1, 10), (0.5, 0.01),
              (0.5, 0.1), (0.05, 10), (1, 10))  # fmt: skip
_RATE_CLIP_MARGIN = ((0.1, 0.1, 0.1), (1, 10, 0.5), (0.1, 0.1, 0), (1, 10, 0.5), (0.01, 1, 5),
                     (1, 0.01, 0.5), (0.5, 0.01, 2), (1, 0.01, 0.5), (0.01, 0.1, 1),
                     (1, 10, 0.5))  # fmt: skip
_RATE_MARGIN = ((5, 0.1), (5, 0.1), (0.05, 0.05), (1, 0.01), (5, 5), (0.05, 0.05), (5, 0.1),
                (5, 0.1), (0.1, 1), (0.05, 5))  # fmt: skip
TABLE_8 = {
    "logistic_regression": {
        table: Settings(regularization=float(penalty))
        for table, penalty in zip(TABLES, _REGULARIZATION, strict=True)
    },
    "cross_entropy": {
        table: Settings(float(rate), float(clip))
        for table, (rate, clip) in zip(TABLES, _RATE_CLIP, strict=True)
    },
    "hinge": {
        table: Settings(float(rate), float(clip), float(margin))
        for table, (rate, clip, margin) in zip(TABLES, _RATE_CLIP_MARGIN, strict=True)
    },
    "exact": {
        table: Settings(float(rate), None, float(margin))
        for table, (rate, margin) in zip(TABLES, _RATE_MARGIN, strict=True)
    },
}
