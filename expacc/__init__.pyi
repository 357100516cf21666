"""Written by ``python docs/write_losses.py``: public names, for type checkers."""

from torch import Tensor

from expacc import baselines as baselines
from expacc import functional as functional
from expacc import schedules as schedules
from expacc.centers import MaxMahalanobisCenterLoss as MaxMahalanobisCenterLoss
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

class ExactLoss(FunctionLoss):
    """Compute EXACT, the error rate expected when the logits carry Gaussian noise."""

    sigma: float | Tensor
    margin: float | None
    standardize: Standardize
    noise: NoiseName
    topk: int
    log: bool
    impl: Implementation

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        sigma: float | Tensor = 1.0,
        margin: float | None = None,
        standardize: Standardize = True,
        noise: NoiseName = "normal",
        topk: int = 1,
        log: bool = False,
        impl: Implementation = "auto",
    ) -> None: ...

class LeakyExpectedErrorLoss(FunctionLoss):
    """Compute the expected error plus a small leak of cross entropy."""

    leak: float
    shift: Shift
    scale: float
    impl: Implementation

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        leak: float = 0.1,
        shift: Shift = 0.0,
        scale: float = 1.0,
        impl: Implementation = "auto",
    ) -> None: ...

class MixedExpectedErrorLoss(FunctionLoss):
    """Compute a mixture of cross entropy and expected error."""

    focus: float
    ce_weight: float | None
    error_weight: float | None
    shift: Shift
    scale: float
    impl: Implementation

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        focus: float = 0.0,
        ce_weight: float | None = None,
        error_weight: float | None = None,
        shift: Shift = 0.0,
        scale: float = 1.0,
        impl: Implementation = "auto",
    ) -> None: ...

class ExpectedErrorLoss(FunctionLoss):
    """Compute the error rate expected when labels are drawn from the softmax."""

    shift: Shift
    scale: float
    impl: Implementation

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        shift: Shift = 0.0,
        scale: float = 1.0,
        impl: Implementation = "auto",
    ) -> None: ...

class ExpectedDistanceLoss(FunctionLoss):
    """Compute the distance from the true class expected when the winner is drawn."""

    power: float
    sigma: float | Tensor
    noise: NoiseName

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        power: float = 1.0,
        sigma: float | Tensor = 1.0,
        noise: NoiseName = "gumbel",
    ) -> None: ...

class ExpectedBalancedErrorLoss(FunctionLoss):
    """Compute 1 - balanced accuracy expected when the winner is drawn from noisy logits."""

    sigma: float | Tensor
    noise: NoiseName

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        sigma: float | Tensor = 1.0,
        noise: NoiseName = "gumbel",
    ) -> None: ...

class ExpectedF1ErrorLoss(FunctionLoss):
    """Compute 1 - F1 of the confusion matrix expected of noisy logits."""

    average: Average
    sigma: float | Tensor
    noise: NoiseName

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        average: Average = "macro",
        sigma: float | Tensor = 1.0,
        noise: NoiseName = "gumbel",
    ) -> None: ...

class BinaryExpectedErrorLoss(FunctionLoss):
    """Compute the error rate expected when a yes is drawn with probability sigmoid(logit)."""

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        reduction: Reduction = "mean",
        pos_weight: Tensor | None = None,
    ) -> None: ...

class BinaryLeakyExpectedErrorLoss(FunctionLoss):
    """Compute the binary expected error plus a small leak of binary cross entropy."""

    leak: float

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        reduction: Reduction = "mean",
        pos_weight: Tensor | None = None,
        leak: float = 0.1,
    ) -> None: ...

class BinaryMixedExpectedErrorLoss(FunctionLoss):
    """Compute a mixture of binary cross entropy and binary expected error."""

    focus: float
    ce_weight: float | None
    error_weight: float | None

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        reduction: Reduction = "mean",
        pos_weight: Tensor | None = None,
        focus: float = 0.0,
        ce_weight: float | None = None,
        error_weight: float | None = None,
    ) -> None: ...

class BinaryExactLoss(FunctionLoss):
    """Compute EXACT of yes/no labels, the error rate expected under Gaussian noise."""

    sigma: float | Tensor
    margin: float | None
    log: bool

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        reduction: Reduction = "mean",
        pos_weight: Tensor | None = None,
        sigma: float | Tensor = 1.0,
        margin: float | None = None,
        log: bool = False,
    ) -> None: ...

class MeanAbsoluteErrorLoss(FunctionLoss):
    """Compute the L1 distance between the label and the softmax, twice the expected error."""

    shift: Shift
    scale: float

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        shift: Shift = 0.0,
        scale: float = 1.0,
    ) -> None: ...

class GeneralizedCrossEntropyLoss(FunctionLoss):
    """Compute generalised cross entropy, from cross entropy (q → 0) to expected error (q = 1)."""

    q: float
    truncation: float | None
    shift: Shift
    scale: float

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        q: float = 0.7,
        truncation: float | None = None,
        shift: Shift = 0.0,
        scale: float = 1.0,
    ) -> None: ...

class PartiallyHuberizedCrossEntropyLoss(FunctionLoss):
    """Compute cross entropy, continued as a straight line in p where p(target) is small."""

    threshold: float
    shift: Shift
    scale: float

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        threshold: float = 0.1,
        shift: Shift = 0.0,
        scale: float = 1.0,
    ) -> None: ...

class TaylorCrossEntropyLoss(FunctionLoss):
    """Compute the first terms of cross entropy's expansion in 1 - p."""

    terms: int
    shift: Shift
    scale: float

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        terms: int = 2,
        shift: Shift = 0.0,
        scale: float = 1.0,
    ) -> None: ...

class JensenShannonLoss(FunctionLoss):
    """Compute the Jensen–Shannon loss, from cross entropy (share → 0) to expected error (→ 1)."""

    label_share: float
    shift: Shift
    scale: float

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        label_share: float = 0.7,
        shift: Shift = 0.0,
        scale: float = 1.0,
    ) -> None: ...

class ReverseCrossEntropyLoss(FunctionLoss):
    """Compute the reverse cross entropy (RCE): ``expected_error`` times -log 1e-4 = 9.2103."""

    shift: Shift
    scale: float

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        shift: Shift = 0.0,
        scale: float = 1.0,
    ) -> None: ...

class SymmetricCrossEntropyLoss(FunctionLoss):
    """Compute the symmetric cross entropy (SCE): ``mixed_expected_error`` under another name."""

    ce_weight: float
    rce_weight: float
    shift: Shift
    scale: float

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        ce_weight: float = 0.1,
        rce_weight: float = 1.0,
        shift: Shift = 0.0,
        scale: float = 1.0,
    ) -> None: ...

class AsymmetricGeneralizedCrossEntropyLoss(FunctionLoss):
    """Compute the asymmetric generalised cross entropy (AGCE)."""

    a: float
    q: float
    shift: Shift
    scale: float

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        a: float = 0.6,
        q: float = 0.6,
        shift: Shift = 0.0,
        scale: float = 1.0,
    ) -> None: ...

class AsymmetricUnhingedLoss(FunctionLoss):
    """Compute the asymmetric unhinged loss (AUL)."""

    a: float
    q: float
    shift: Shift
    scale: float

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        a: float = 5.5,
        q: float = 3.0,
        shift: Shift = 0.0,
        scale: float = 1.0,
    ) -> None: ...

class AsymmetricExponentialLoss(FunctionLoss):
    """Compute the asymmetric exponential loss (AEL)."""

    a: float
    shift: Shift
    scale: float

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        a: float = 2.5,
        shift: Shift = 0.0,
        scale: float = 1.0,
    ) -> None: ...

class NormalizedCrossEntropyLoss(FunctionLoss):
    """Compute the normalised cross entropy (NCE), in [0, 1]."""

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
    ) -> None: ...

class NormalizedFocalLoss(FunctionLoss):
    """Compute the normalised focal loss (NFL), in [0, 1]."""

    gamma: float

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        gamma: float = 0.5,
    ) -> None: ...

class NormalizedAndReverseCrossEntropyLoss(FunctionLoss):
    """Compute normalised plus reverse cross entropy (NCE+RCE)."""

    active_weight: float
    passive_weight: float

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        active_weight: float = 1.0,
        passive_weight: float = 1.0,
    ) -> None: ...

class NormalizedAndAsymmetricGeneralizedLoss(FunctionLoss):
    """Compute normalised plus asymmetric generalised cross entropy (NCE+AGCE)."""

    active_weight: float
    passive_weight: float
    a: float
    q: float

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        active_weight: float = 1.0,
        passive_weight: float = 4.0,
        a: float = 6.0,
        q: float = 1.5,
    ) -> None: ...

class NormalizedAndAsymmetricUnhingedLoss(FunctionLoss):
    """Compute normalised cross entropy plus the asymmetric unhinged loss (NCE+AUL)."""

    active_weight: float
    passive_weight: float
    a: float
    q: float

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        active_weight: float = 1.0,
        passive_weight: float = 4.0,
        a: float = 6.3,
        q: float = 1.5,
    ) -> None: ...

class NormalizedAndAsymmetricExponentialLoss(FunctionLoss):
    """Compute normalised cross entropy plus the asymmetric exponential loss (NCE+AEL)."""

    active_weight: float
    passive_weight: float
    a: float

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        active_weight: float = 1.0,
        passive_weight: float = 4.0,
        a: float = 5.0,
    ) -> None: ...

class ActiveNegativeLoss(FunctionLoss):
    """Compute the active negative loss (ANL-CE): normalised cross entropy, and its negative."""

    active_weight: float
    negative_weight: float
    floor: float

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        active_weight: float = 5.0,
        negative_weight: float = 5.0,
        floor: float = 1e-07,
    ) -> None: ...

class BiTemperedLoss(FunctionLoss):
    """Compute the bi-tempered logistic loss: a bounded logarithm of a softmax with heavy tails."""

    t1: float
    t2: float

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        t1: float = 0.8,
        t2: float = 1.2,
    ) -> None: ...

class EpsilonSoftmaxLoss(FunctionLoss):
    """Compute cross entropy of the ε-softmax plus the mean absolute error (CE_ε+MAE)."""

    ce_weight: float
    mae_weight: float
    boost: float

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        ce_weight: float = 0.01,
        mae_weight: float = 5.0,
        boost: float = 100000.0,
    ) -> None: ...

class HingeLoss(FunctionLoss):
    """Compute the multi-class hinge loss, the mean shortfall of the margins over the rivals."""

    margin: float

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        margin: float = 1.0,
    ) -> None: ...

class FocalLoss(FunctionLoss):
    """Compute the focal loss, cross entropy with the easy rows turned down."""

    gamma: float
    alpha: float | None
    shift: Shift
    scale: float

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        gamma: float = 2.0,
        alpha: float | None = 0.25,
        shift: Shift = 0.0,
        scale: float = 1.0,
    ) -> None: ...

class TamedCrossEntropyLoss(FunctionLoss):
    """Compute the tamed cross entropy, which grows ever more slowly for rows that are far wrong."""

    taming: float
    shift: Shift
    scale: float

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        taming: float = 0.8,
        shift: Shift = 0.0,
        scale: float = 1.0,
    ) -> None: ...

class Poly1CrossEntropyLoss(FunctionLoss):
    """Compute Poly-1 cross entropy: ``mixed_expected_error`` with weights 1 and epsilon."""

    epsilon: float
    shift: Shift
    scale: float

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        epsilon: float = 1.0,
        shift: Shift = 0.0,
        scale: float = 1.0,
    ) -> None: ...

class ComplementEntropyLoss(FunctionLoss):
    """Compute the negated entropy of the rivals' probabilities."""

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
    ) -> None: ...

class MaximumProbabilityCrossEntropyLoss(FunctionLoss):
    """Compute cross entropy weighted by how far the true class is behind the best one."""

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
    ) -> None: ...
