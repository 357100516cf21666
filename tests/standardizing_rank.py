"""One of two processes that standardise together: for test_exact.py.

In a module of its own, because the processes import it.
"""

import torch
from torch import distributed as dist

from expacc.functional import exact_error


def logits_and_target():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(10, 4, generator=generator, dtype=torch.float64) * 3
    return logits, torch.arange(10) % 4


def standardize_rank(rank: int, folder: str) -> None:
    # A file to meet at: no port to race for, no server thread to outlive the process.
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    logits, target = logits_and_target()
    part = slice(0, 4) if rank == 0 else slice(4, 10)  # unequal shares
    leaf = logits[part].clone().requires_grad_()
    rows = exact_error(leaf, target[part], standardize="sync", reduction="sum")
    rows.backward()
    torch.save({"loss": rows.detach(), "grad": leaf.grad}, f"{folder}/{rank}.pt")
    dist.barrier()  # neither closes its connections while the other still talks
    dist.destroy_process_group()
