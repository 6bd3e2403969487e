"""Run on every rank: what a few outer iterations hand to the communicators."""

import json
import sys
from pathlib import Path

import torch
from jobs import SAMPLES, data, uneven_share

from psfit import BiCADMM, Dense, GridSpec, Problem, Source
from psfit.admm.local import FeatureSplit
from psfit.data import BlockColumns
from psfit.losses import Logistic, Squared
from psfit.problem.pose import pose

backend, output, blocks = sys.argv[1:]
spec = GridSpec(backend=backend, blocks=int(blocks), device="cpu", timeout=60)
grid = spec.build()
traffic = grid.world.traffic
X, jobs = data()
rows = uneven_share(SAMPLES, grid.nodes.comm.size, grid.nodes.comm.rank)
A = torch.from_numpy(X[rows])
n = A.shape[1]
spent = {}
for loss, y in ((Squared(), jobs["squared"].y), (Logistic(), (jobs["logistic"].y == "yes") * 2.0 - 1)):
    at = grid.columns(n)
    matrix = Dense(A) if grid.blocks.comm.size == 1 else BlockColumns(Dense(A[:, at].contiguous()), at, n, grid.blocks)
    source = Source(matrix, torch.from_numpy(y[rows]).unsqueeze(1), torch.ones(len(A), 1, dtype=torch.float64))
    inst = pose(Problem(loss, (3,), 10.0, fit_intercept=False), source, grid)
    solver = BiCADMM(effort="low", local=FeatureSplit(max_inner=2) if grid.blocks.size > 1 else None)
    setup, state = solver.init(inst)
    before = traffic.reductions, traffic.numbers, traffic.bytes
    # The first iterations always take all inner steps.
    for _ in range(4):
        state = solver.step(setup, state)
    after = traffic.reductions, traffic.numbers, traffic.bytes
    spent[loss.name] = [a - b for a, b in zip(after, before, strict=True)]
spent["rows"], spent["features"] = len(A), n
Path(f"{output}-{grid.world.rank}").write_text(json.dumps(spent))
