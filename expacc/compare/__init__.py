"""The main job: from tables and losses to an answer, a leaderboard, a page and a model."""
