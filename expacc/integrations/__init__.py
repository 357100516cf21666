"""Losses, schedules and normalised gradients in other people's training loops.

One module per framework, which it imports: ``transformers``, ``lightning``, ``pytorch_lightning``,
``skorch``. Each trains the weights that ``expacc.training.fit`` would (docs/frameworks.md).
"""
