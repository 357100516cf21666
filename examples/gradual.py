"""The mixing paper's recipe: start with cross entropy, end with the expected error alone."""

import torch
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import scale

from expacc import MixedExpectedErrorLoss, ScheduledLoss
from expacc.schedules import focus_gradual

torch.manual_seed(0)
features, labels = load_wine(return_X_y=True)
parts = train_test_split(scale(features), labels, test_size=0.5, random_state=0, stratify=labels)
x, x_test = (torch.tensor(part, dtype=torch.float32) for part in parts[:2])
y, y_test = (torch.tensor(part) for part in parts[2:])

model = torch.nn.Linear(13, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loss = ScheduledLoss(MixedExpectedErrorLoss(), focus=focus_gradual)

steps = 300
for step in range(steps):
    loss.step(step / steps)  # the one line that a schedule adds
    value = loss(model(x), y)
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step:3d}  focus {loss.focus:.1f}  loss {value.item():.4f}")

accuracy = (model(x_test).argmax(1) == y_test).float().mean().item()
print(f"test accuracy {accuracy:.1%}")
