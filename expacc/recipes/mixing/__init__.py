"""Mixing cross entropy with the expectation loss, its tables and figures."""
