"""The command line: parses and calls, holds no logic; heavy libraries are imported when needed."""

from expacc.cli.app import main

__all__ = ["main"]
