"""The losses on a GPU: what goes to Triton (``dispatch``), the autograd nodes, the kernels."""
