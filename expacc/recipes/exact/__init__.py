"""EXACT: How to train your accuracy (Karpukhin et al.), its tables and figures, and the blog's."""
