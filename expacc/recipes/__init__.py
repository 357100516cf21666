"""The papers' tables and figures as recipes: what to run, and a page with ours beside theirs."""
