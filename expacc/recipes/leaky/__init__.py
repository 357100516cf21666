"""The leaky expected error, its tables."""
