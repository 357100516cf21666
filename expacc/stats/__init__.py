"""Every statistic of a comparison in one place; see docs/statistics.md for which is used when.

One table: `paired_rows`, `paired_runs`, `mcnemar`, `corrected_paired_t`, `combined_5x2_f`,
`paired_5x2_t`, and `adjust` for several methods. Several tables: `wilcoxon`, `wilcoxon_against`,
`wilcoxon_pairs`, `friedman`, `iman_davenport`, `conover`, `mean_ranks`, `wins`, `win_tie_loss`,
`critical_difference`, `dolan_more_profile`.
"""

from typing import TYPE_CHECKING, Any

from expacc.stats.many_tables import (
    CriticalDifference,
    Profile,
    Wins,
    WinTieLoss,
    critical_difference,
    dolan_more_profile,
    win_tie_loss,
    wins,
)
from expacc.stats.one_table import (
    PairedTest,
    combined_5x2_f,
    corrected_paired_t,
    mcnemar,
    paired_5x2_t,
    paired_rows,
    variance_factor,
)
from expacc.stats.p_values import Adjustment, adjust
from expacc.stats.rank_tests import (
    AgainstReference,
    PairwiseTest,
    RankTest,
    conover,
    friedman,
    iman_davenport,
    mean_ranks,
    ranks,
    wilcoxon,
    wilcoxon_against,
    wilcoxon_pairs,
)

if TYPE_CHECKING:
    from expacc.stats.runs_and_rows import paired_runs

__all__ = [
    "Adjustment",
    "AgainstReference",
    "CriticalDifference",
    "PairedTest",
    "PairwiseTest",
    "Profile",
    "RankTest",
    "WinTieLoss",
    "Wins",
    "adjust",
    "combined_5x2_f",
    "conover",
    "corrected_paired_t",
    "critical_difference",
    "dolan_more_profile",
    "friedman",
    "iman_davenport",
    "mcnemar",
    "mean_ranks",
    "paired_5x2_t",
    "paired_rows",
    "paired_runs",
    "ranks",
    "variance_factor",
    "wilcoxon",
    "wilcoxon_against",
    "wilcoxon_pairs",
    "win_tie_loss",
    "wins",
]


def __getattr__(name: str) -> Any:
    if name != "paired_runs":  # which a comparison of tables does not need
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from expacc.stats import runs_and_rows

    return runs_and_rows.paired_runs
