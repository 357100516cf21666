"""EXACT's integral: the probability that a class wins, for every kind of noise and use."""
