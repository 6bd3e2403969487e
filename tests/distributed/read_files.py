"""Run on every rank: read files and fit them, or fail to; the first rank writes what all of them saw.

Arguments: backend, output file, a JSON object of cases, each the keywords of a FileSource.
"""

import json
import sys
from pathlib import Path

import torch

from psfit import BiCADMM, FileSource, GridSpec, SparseLinearRegression

backend, output, cases = sys.argv[1:]
spec = GridSpec(backend=backend, device="cpu", timeout=60)
grid = spec.build()


def look(source: FileSource) -> dict:
    """What this rank reads, and the model of all."""
    samples = source.read(grid)
    rows = samples.matrix.chunk(0, samples.matrix.shape[0], torch.float64)
    model = SparseLinearRegression(3, gamma=10.0, grid=spec, solver=BiCADMM(effort="low")).fit(source)
    found = {"rows": rows.tolist(), "y": samples.y.tolist(), "names": samples.names}
    return found | {"objective": model.objective_, "support": model.support_.tolist()}


answers = {}
for name, keywords in json.loads(cases).items():
    try:
        mine = look(FileSource(**keywords))
    except Exception as error:
        mine = {"error": f"{type(error).__name__}: {error}"}
    answers[name] = [json.loads(answer) for answer in grid.world.all_gather(json.dumps(mine).encode())]
if grid.world.rank == 0:
    Path(output).write_text(json.dumps(answers))
