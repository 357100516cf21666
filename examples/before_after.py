"""One line of a training loop, before and after: digits of which a third are mislabelled.

    python examples/before_after.py     # about 20 seconds on one core

Needs scikit-learn for the data (`pip install 'expacc[estimator]'`). Training labels are spoiled,
test labels are not; the two losses get the same network, rows, seeds and number of steps.
"""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.nn import functional as F

from expacc.functional import leaky_expected_error

torch.set_num_threads(1)  # the tensors are small
WRONG, EPOCHS, SEEDS = 1 / 3, 60, 3

digits = load_digits()
parts = train_test_split(digits.data / 16, digits.target, test_size=0.3, random_state=0)
inputs, test_inputs = (torch.tensor(part, dtype=torch.float32) for part in parts[:2])
labels, test_labels = (torch.tensor(part) for part in parts[2:])


def train(loss_of, seed: int) -> tuple[float, float]:
    """Accuracy on the test rows, and on the spoiled training labels, in percent."""
    torch.manual_seed(seed)
    spoiled = torch.rand(len(labels)) < WRONG
    given = torch.where(spoiled, (labels + torch.randint(1, 10, labels.shape)) % 10, labels)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(inputs)).split(64):
            loss = loss_of(model(inputs[batch]), given[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        right = (model(test_inputs).argmax(1) == test_labels).float().mean()
        learnt = (model(inputs).argmax(1) == given)[spoiled].float().mean()
    return 100 * right.item(), 100 * learnt.item()


print(f"{len(labels)} digits, {WRONG:.0%} of their labels wrong; mean of {SEEDS} seeds")
for name, loss_of in (
    ("before: F.cross_entropy", F.cross_entropy),
    ("after:  leaky_expected_error", leaky_expected_error),
):
    right, learnt = torch.tensor([train(loss_of, seed) for seed in range(SEEDS)]).mean(0)
    print(f"{name:29} {right:.1f} % of test rows right, {learnt:.1f} % of wrong labels learnt")
