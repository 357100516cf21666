"""EXACT with other noise on the logits, fast enough to train with.

``expacc.exact_error`` knows four noises; for the normal and the Gumbel it is fast. For the logistic
and the Laplace a fixed rule does (``ops/orthant/noise_slopes.py``).

All noises are scaled to the standard deviation ``sigma``, so that only their shape differs.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from expacc.functional.standardize import standardize_logits
from expacc.ops.sampling import genz_orthant_prob

NoiseName = Literal["normal", "gumbel", "logistic", "laplace"]

# Noise → its standard deviation at scale 1.
NOISES: dict[str, float] = {
    "normal": 1.0,
    "gumbel": math.pi / math.sqrt(6),
    "logistic": math.pi / math.sqrt(3),
    "laplace": math.sqrt(2),
}


def leads_of(logits: Tensor, target: Tensor, sigma: float, margin: float | None) -> Tensor:
    """The paper's Listing 1: standardised, the lead over each rival, cut at the margin."""
    scores = standardize_logits(logits, None, sync=False)
    place = torch.arange(scores.shape[1] - 1, device=target.device)
    own = target.unsqueeze(1)
    leads = scores.gather(1, own) - scores.gather(1, place + (place >= own))
    return (leads if margin is None else leads.clamp(max=margin)) / sigma


@dataclass(frozen=True, eq=False)
class SampledLoss:
    """Mean EXACT by the authors' sampler, with their 16 samples."""

    sigma: float
    margin: float | None
    generator: torch.Generator

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        """The mean over the rows."""
        leads = leads_of(logits, target, self.sigma, self.margin)
        return 1 - genz_orthant_prob(leads, samples=16, generator=self.generator).mean()
