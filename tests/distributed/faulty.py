"""Run on every rank: one fit with checkpoints in which one rank fails at a given iteration.

Arguments: backend, folder for checkpoints (or -), output file, misfortune, rank, iteration. The misfortune strikes only
the first time the job is started.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from jobs import SAMPLES, data, fit, uneven_share

from psfit import BiCADMM, GridSpec

backend, folder, output, misfortune, unlucky, iteration = sys.argv[1:]
spec = GridSpec(backend=backend, device="cpu", timeout=float(os.environ.get("PATIENCE", "60")))
grid = spec.build()
plain_step = BiCADMM.step


def fatal_step(self, setup, state):
    if grid.world.rank == int(unlucky) and state.iteration == int(iteration):
        if misfortune == "error":
            raise MemoryError("no room for the factor")
        os.kill(os.getpid(), getattr(signal, misfortune))
        # A signal that stops the process may take a moment to arrive.
        time.sleep(0.1)
    return plain_step(self, setup, state)


if misfortune != "none" and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
    BiCADMM.step = fatal_step
X, jobs = data()
rows = uneven_share(SAMPLES, grid.nodes.comm.size, grid.nodes.comm.rank)
kept = {} if folder == "-" else {"checkpoint": folder, "checkpoint_every": 4}
answer = fit(jobs["logistic"], X, rows, spec, tol=1e-7, **kept)
if grid.world.rank == 0:
    Path(output).write_text(json.dumps(answer))
