"""Comparing losses: the statistics, the answer in words, and the pictures that go with them."""
