"""The smallest change: one line of a training step."""

import torch

from expacc.functional import leaky_expected_error

model = torch.nn.Linear(20, 3)
features, target = torch.randn(64, 20), torch.randint(0, 3, (64,))

# before: loss = torch.nn.functional.cross_entropy(model(features), target)
loss = leaky_expected_error(model(features), target)
loss.backward()
print(f"expected error with a leak: {loss.item():.4f}")
