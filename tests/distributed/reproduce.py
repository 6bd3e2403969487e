"""Run on every rank: fit jobs over some grids, and let the first rank write what came out.

Arguments: backend, output file, device, the torch.distributed group to set up beforehand (or -), which jobs, grids such
as 2x1.
"""

import json
import sys
from pathlib import Path

import torch.distributed as dist
from jobs import SAMPLES, chosen, data, fit, uneven_share

from psfit import GridSpec

backend, output, device, group, which, *shapes = sys.argv[1:]
if group != "-":
    dist.init_process_group(group)
X, jobs = data()
answers = {}
for shape in shapes:
    nodes, blocks = map(int, shape.split("x"))
    spec = GridSpec(nodes=nodes, blocks=blocks, backend=backend, device=device, timeout=120)
    grid = spec.build()
    rows = uneven_share(SAMPLES, grid.nodes.comm.size, grid.nodes.comm.rank)
    answers[shape] = {name: fit(jobs[name], X, rows, spec) for name in chosen(jobs, which)}
    first = grid.world.rank == 0
if first:
    Path(output).write_text(json.dumps(answers))
