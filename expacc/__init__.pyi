"""Written by ``python docs/write_losses.py``: public names, for type checkers.

What a Module takes stands as its fields: all by name, ``weight`` by its place, too.
"""

from typing import Any, dataclass_transform

from torch import Tensor

from expacc import baselines as baselines
from expacc import functional as functional
from expacc import schedules as schedules
from expacc.centers import MaxMahalanobisCenterLoss as MaxMahalanobisCenterLoss
from expacc.compare.networks import compare_networks as compare_networks
from expacc.contract import Reduction, Shift
from expacc.early_learning import EarlyLearningRegularization as EarlyLearningRegularization
from expacc.functional.confusion import Average
from expacc.functional.confusion import expected_confusion as expected_confusion
from expacc.functional.exact import Standardize
from expacc.logit_clip import LogitClip as LogitClip
from expacc.logit_clip import clip_logits as clip_logits
from expacc.losses import FunctionLoss
from expacc.ops import Implementation
from expacc.ops import build_native as build_native
from expacc.ops.orthant.noise import NoiseName
from expacc.optim import ASAM as ASAM
from expacc.optim import GradientNormalizer as GradientNormalizer
from expacc.probabilities import argmax_probabilities as argmax_probabilities
from expacc.probabilities import log_orthant_prob as log_orthant_prob
from expacc.probabilities import orthant_prob as orthant_prob
from expacc.registry import get_loss as get_loss
from expacc.registry import list_losses as list_losses
from expacc.scheduled import ScheduledLoss as ScheduledLoss

__version__: str

def _placed(*, default: Any, kw_only: bool) -> Any: ...

@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(_placed,))
class _Fields(FunctionLoss): ...

class _RowLoss(_Fields):
    """What such losses have."""

    weight: Tensor | None = _placed(default=None, kw_only=False)
    ignore_index: int = -100
    reduction: Reduction = "mean"
    label_smoothing: float = 0.0

class ExactLoss(_RowLoss):
    """Compute EXACT, the error rate expected when the logits carry Gaussian noise."""

    sigma: float | Tensor = 1.0
    margin: float | None = None
    standardize: Standardize = True
    noise: NoiseName = "normal"
    topk: int = 1
    log: bool = False
    impl: Implementation = "auto"

class LeakyExpectedErrorLoss(_RowLoss):
    """Compute the expected error plus a small leak of cross entropy."""

    leak: float = 0.1
    shift: Shift = 0.0
    scale: float = 1.0
    impl: Implementation = "auto"

class MixedExpectedErrorLoss(_RowLoss):
    """Compute a mixture of cross entropy and expected error."""

    focus: float = 0.0
    ce_weight: float | None = None
    error_weight: float | None = None
    shift: Shift = 0.0
    scale: float = 1.0
    impl: Implementation = "auto"

class ExpectedErrorLoss(_RowLoss):
    """Compute the error rate expected when labels are drawn from the softmax."""

    shift: Shift = 0.0
    scale: float = 1.0
    impl: Implementation = "auto"

class ExpectedDistanceLoss(_RowLoss):
    """Compute the distance from the true class expected when the winner is drawn."""

    power: float = 1.0
    sigma: float | Tensor = 1.0
    noise: NoiseName = "gumbel"

class _BatchLoss(_Fields):
    """What such losses have."""

    weight: Tensor | None = _placed(default=None, kw_only=False)
    ignore_index: int = -100
    label_smoothing: float = 0.0

class ExpectedBalancedErrorLoss(_BatchLoss):
    """Compute 1 - balanced accuracy expected when the winner is drawn from noisy logits."""

    sigma: float | Tensor = 1.0
    noise: NoiseName = "gumbel"

class ExpectedF1ErrorLoss(_BatchLoss):
    """Compute 1 - F1 of the confusion matrix expected of noisy logits."""

    average: Average = "macro"
    sigma: float | Tensor = 1.0
    noise: NoiseName = "gumbel"

class _BinaryLoss(_Fields):
    """What such losses have."""

    weight: Tensor | None = _placed(default=None, kw_only=False)
    reduction: Reduction = "mean"
    pos_weight: Tensor | None = None

class BinaryExpectedErrorLoss(_BinaryLoss):
    """Compute the error rate expected when a yes is drawn with probability sigmoid(logit)."""

class BinaryLeakyExpectedErrorLoss(_BinaryLoss):
    """Compute the binary expected error plus a small leak of binary cross entropy."""

    leak: float = 0.1

class BinaryMixedExpectedErrorLoss(_BinaryLoss):
    """Compute a mixture of binary cross entropy and binary expected error."""

    focus: float = 0.0
    ce_weight: float | None = None
    error_weight: float | None = None

class BinaryExactLoss(_BinaryLoss):
    """Compute EXACT of yes/no labels, the error rate expected under Gaussian noise."""

    sigma: float | Tensor = 1.0
    margin: float | None = None
    log: bool = False

class MeanAbsoluteErrorLoss(_RowLoss):
    """Compute the L1 distance between the label and the softmax, twice the expected error."""

    shift: Shift = 0.0
    scale: float = 1.0

class GeneralizedCrossEntropyLoss(_RowLoss):
    """Compute generalised cross entropy, from cross entropy (q → 0) to expected error (q = 1)."""

    q: float = 0.7
    truncation: float | None = None
    shift: Shift = 0.0
    scale: float = 1.0

class PartiallyHuberizedCrossEntropyLoss(_RowLoss):
    """Compute cross entropy, continued as a straight line in p where p(target) is small."""

    threshold: float = 0.5
    shift: Shift = 0.0
    scale: float = 1.0

class TaylorCrossEntropyLoss(_RowLoss):
    """Compute the first terms of cross entropy's expansion in 1 - p."""

    terms: int = 2
    shift: Shift = 0.0
    scale: float = 1.0

class JensenShannonLoss(_RowLoss):
    """Compute the Jensen–Shannon loss, from cross entropy (share → 0) to expected error (→ 1)."""

    label_share: float = 0.7
    shift: Shift = 0.0
    scale: float = 1.0

class ReverseCrossEntropyLoss(_RowLoss):
    """Compute the reverse cross entropy (RCE): ``expected_error`` times -log 1e-4 = 9.2103."""

    shift: Shift = 0.0
    scale: float = 1.0

class SymmetricCrossEntropyLoss(_RowLoss):
    """Compute the symmetric cross entropy (SCE): ``mixed_expected_error`` under another name."""

    ce_weight: float = 0.1
    rce_weight: float = 1.0
    shift: Shift = 0.0
    scale: float = 1.0

class AsymmetricGeneralizedCrossEntropyLoss(_RowLoss):
    """Compute the asymmetric generalised cross entropy (AGCE)."""

    a: float = 0.6
    q: float = 0.6
    shift: Shift = 0.0
    scale: float = 1.0

class AsymmetricUnhingedLoss(_RowLoss):
    """Compute the asymmetric unhinged loss (AUL)."""

    a: float = 5.5
    q: float = 3.0
    shift: Shift = 0.0
    scale: float = 1.0

class AsymmetricExponentialLoss(_RowLoss):
    """Compute the asymmetric exponential loss (AEL)."""

    a: float = 2.5
    shift: Shift = 0.0
    scale: float = 1.0

class NormalizedCrossEntropyLoss(_RowLoss):
    """Compute the normalised cross entropy (NCE), in [0, 1]."""

class NormalizedFocalLoss(_RowLoss):
    """Compute the normalised focal loss (NFL), in [0, 1]."""

    gamma: float = 0.5

class NormalizedAndReverseCrossEntropyLoss(_RowLoss):
    """Compute normalised plus reverse cross entropy (NCE+RCE)."""

    active_weight: float = 1.0
    passive_weight: float = 1.0

class NormalizedAndAsymmetricGeneralizedLoss(_RowLoss):
    """Compute normalised plus asymmetric generalised cross entropy (NCE+AGCE)."""

    active_weight: float = 1.0
    passive_weight: float = 4.0
    a: float = 6.0
    q: float = 1.5

class NormalizedAndAsymmetricUnhingedLoss(_RowLoss):
    """Compute normalised cross entropy plus the asymmetric unhinged loss (NCE+AUL)."""

    active_weight: float = 1.0
    passive_weight: float = 4.0
    a: float = 6.3
    q: float = 1.5

class NormalizedAndAsymmetricExponentialLoss(_RowLoss):
    """Compute normalised cross entropy plus the asymmetric exponential loss (NCE+AEL)."""

    active_weight: float = 1.0
    passive_weight: float = 4.0
    a: float = 5.0

class ActiveNegativeLoss(_RowLoss):
    """Compute the active negative loss (ANL-CE): normalised cross entropy, and its negative."""

    active_weight: float = 5.0
    negative_weight: float = 5.0
    floor: float = 1e-07

class BiTemperedLoss(_RowLoss):
    """Compute the bi-tempered logistic loss: a bounded logarithm of a softmax with heavy tails."""

    t1: float = 0.8
    t2: float = 1.2

class EpsilonSoftmaxLoss(_RowLoss):
    """Compute cross entropy of the ε-softmax plus the mean absolute error (CE_ε+MAE)."""

    ce_weight: float = 0.01
    mae_weight: float = 5.0
    boost: float = 100000.0

class HingeLoss(_RowLoss):
    """Compute the multi-class hinge loss, the mean shortfall of the margins over the rivals."""

    margin: float = 1.0

class FocalLoss(_RowLoss):
    """Compute the focal loss, cross entropy with the easy rows turned down."""

    gamma: float = 2.0
    alpha: float | None = 0.25
    shift: Shift = 0.0
    scale: float = 1.0

class TamedCrossEntropyLoss(_RowLoss):
    """Compute the tamed cross entropy, which grows ever more slowly for rows that are far wrong."""

    taming: float = 0.8
    shift: Shift = 0.0
    scale: float = 1.0

class Poly1CrossEntropyLoss(_RowLoss):
    """Compute Poly-1 cross entropy: ``mixed_expected_error`` with weights 1 and epsilon."""

    epsilon: float = 1.0
    shift: Shift = 0.0
    scale: float = 1.0

class ComplementEntropyLoss(_RowLoss):
    """Compute the negated entropy of the rivals' probabilities."""

class MaximumProbabilityCrossEntropyLoss(_RowLoss):
    """Compute cross entropy weighted by how far the true class is behind the best one."""
