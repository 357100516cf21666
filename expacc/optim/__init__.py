"""What the papers put between backward and step: normalised gradients, sharpness-aware steps.

Nothing here reads a value back from a device: what depends on a norm is decided where the norm is.
"""

from expacc.optim.asam import ASAM
from expacc.optim.normalizer import GradientNormalizer

__all__ = ["ASAM", "GradientNormalizer"]
