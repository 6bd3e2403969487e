"""The communicator's contract, run on every rank of any backend; a failed assertion fails the job."""

import os
import re
import sys

import numpy as np
import pytest
import torch
import torch.distributed as dist

from psfit import GridSpec, SparseLinearRegressionCV
from psfit.comm import RemoteError

backend, device = sys.argv[1:3]
if sys.argv[3:]:
    # A group that the program has set up itself.
    dist.init_process_group(sys.argv[3])
grid = GridSpec(backend=backend, device=device, timeout=60).build()
world = grid.world
rank, size = world.rank, world.size
assert grid.device.type == device
assert grid.nodes.size == size

for dtype in (torch.float64, torch.float32, torch.int64):
    mine = torch.arange(6, device=device).to(dtype) * (rank + 1)
    kept = mine.clone()
    expected = torch.arange(6, device=device).to(dtype)
    assert torch.equal(world.all_reduce(mine), expected * (size * (size + 1) // 2))
    assert torch.equal(world.all_reduce(mine, "max"), expected * size)
    assert torch.equal(world.all_reduce(mine, "min"), expected)
    assert torch.equal(mine, kept)
    for root in range(size):
        assert torch.equal(world.broadcast(mine, root), expected * (root + 1))

# A view that is not contiguous, a tensor on the host beside a device, a single number.
table = torch.ones(4, 3, device=device, dtype=torch.float64)
assert torch.equal(world.all_reduce(table.T), size * table.T)
assert torch.equal(world.all_reduce(torch.ones(2)), torch.full((2,), float(size)))
assert float(world.all_reduce(torch.tensor(1.0, device=device))) == size

# The same sum bit for bit on every rank.
noise = torch.randn(1000, generator=torch.Generator().manual_seed(rank), dtype=torch.float64).to(device)
assert grid.have_same_values(world.all_reduce(noise))
assert size == 1 or not grid.have_same_values(noise)

assert world.all_gather(b"x" * rank) == [b"x" * other for other in range(size)]
assert world.all_gather("grüße".encode()) == ["grüße".encode()] * size

half = world.split(rank % 2)
assert half.size == len(range(rank % 2, size, 2))
assert half.rank == rank // 2
members = torch.tensor(float(sum(range(rank % 2, size, 2))))
assert torch.equal(half.all_reduce(torch.tensor(float(rank))), members)

assert grid.follow_first_rank(rank == 0)
assert not grid.follow_first_rank(rank != 0)

assert grid.run_together(lambda: rank) == rank
failing = size - 1


def fails_on_the_last_rank() -> None:
    if rank == failing:
        raise KeyError("no such thing")


expected_error, said = (
    (KeyError, "no such thing") if rank == failing else (RemoteError, f"rank {failing} failed.*thing")
)
with pytest.raises(expected_error, match=said):
    grid.run_together(fails_on_the_last_rank)

traffic = world.traffic
before = traffic.reductions, traffic.numbers, traffic.bytes
grid.total(torch.ones(10, device=device, dtype=torch.float32))
spent = [a - b for a, b in zip((traffic.reductions, traffic.numbers, traffic.bytes), before, strict=True)]
assert spent == ([1, 10, 40] if size > 1 else [0, 0, 0])

# Every rank reports which ranks have which value.
if size > 1:
    columns = 7 if rank == failing else 12
    named = f"features is 12 on rank {', '.join(map(str, range(failing)))} but 7 on rank {failing}. Give"
    with pytest.raises(ValueError, match=re.escape(named)) as error:
        grid.require_same(features=columns, kappa=3)
    assert "kappa" not in str(error.value)
    assert (error.value.__cause__ is None) == (rank == 0)
grid.require_same(features=12)
if size > 1:
    X = np.random.default_rng(rank).normal(size=(9, 3 if rank == failing else 4))
    model = SparseLinearRegressionCV([1], cv=2, grid=GridSpec(backend=backend, device=device, timeout=60))
    with pytest.raises(ValueError, match=f"features is 4 on rank .* but 3 on rank {failing}"):
        model.fit(X, X[:, 0])

# Building a grid again makes no new groups, of which MPI has a limited number; each grid has its own timeout.
again = GridSpec(backend=backend, device=device, timeout=60).build()
if backend == "mpi" and size > 1:
    assert again.nodes.comm.comm is grid.nodes.comm.comm
    assert again.blocks.comm.comm is grid.blocks.comm.comm
elif backend == "torch" and size > 1:
    assert again.nodes.comm is grid.nodes.comm
if backend != "serial" and not sys.argv[3:]:
    patient = GridSpec(backend=backend, device=device, timeout=77).build()
    assert patient.world.timeout == 77
    assert patient.nodes.comm.timeout == 77 or size == 1
    assert float(patient.world.all_reduce(torch.ones(()))) == size
    assert world.peers == patient.world.peers
    assert len(set(world.peers.places)) == size

# A fork of a rank cannot take its place.
if backend == "torch" and device == "cpu":
    child = os.fork()
    if child == 0:
        try:
            GridSpec(backend=backend, device=device).build()
        except RuntimeError as refused:
            os._exit(0 if "spawn" in str(refused) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0

if len(sys.argv) > 3:
    # The program has made the group, so it must end it: the group's threads must have ended when the program ends.
    dist.destroy_process_group()
