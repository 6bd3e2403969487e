"""Checkpoints of trees: a run that was killed or stopped goes on with its open nodes, incumbent and bound."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from problems import make_source

from psfit import BiCADMM, CheckpointError, Dense, GridSpec, Problem, Source, solve
from psfit.admm.checkpoint import find_run
from psfit.admm.loop import StoppedError
from psfit.common.status import Status
from psfit.losses import Logistic, Softmax, Squared
from psfit.problem.constraints import NO_CONSTRAINTS, Constraints

# A process that ends itself without a chance to clean up, as by the kernel or a scheduler.
KILLED = """
import os, signal, sys
import numpy as np, torch
from psfit import BiCADMM, Dense, GridSpec, Problem, Source, solve
from psfit.losses import Logistic
from psfit.pipeline import tree_checkpoint

tree_checkpoint.LEAST_PAUSE = 0.0

def kill(progress):
    if progress.explored is not None and progress.explored >= int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

data = np.load(sys.argv[1])
X, y = (torch.from_numpy(data[name]) for name in ("X", "y"))
source = Source(Dense(X), y, torch.ones_like(y))
solver = BiCADMM(exact=True, gap_tol=1e-6, checkpoint=sys.argv[2], checkpoint_every=1)
result = solve(Problem(Logistic(), (4,), 1.0), source, solver, GridSpec(device="cpu"), callback=kill)
print("proved", result.objective, result.tree_nodes)
"""


def weak(loss, features, samples=60, classes=3):
    """Samples whose targets hardly depend on the features, so that a tree has many nodes."""
    rng = np.random.default_rng(5)
    X = torch.from_numpy(rng.normal(size=(samples, features)))
    if loss.joint:
        y = torch.eye(classes, dtype=torch.float64)[torch.from_numpy(rng.integers(0, classes, samples))]
    else:
        y = torch.from_numpy(np.where(rng.random((samples, 1)) < 0.5, -1.0, 1.0))
    return Source(Dense(X), y, torch.ones(samples, 1, dtype=torch.float64))


def prove(source, loss, kappa, folder=None, callback=None, constraints=NO_CONSTRAINTS, **more):
    settings = {"exact": True, "gap_tol": 1e-6, "checkpoint": folder, "checkpoint_every": 1} | more
    problem, grid = Problem(loss, (kappa,), 1.0, constraints=constraints), GridSpec(device="cpu")
    return solve(problem, source, BiCADMM(**settings), grid, callback=callback)


def stop_after(nodes):
    return lambda progress: progress.explored is not None and progress.explored >= nodes


@pytest.mark.parametrize(
    ("loss", "features", "kappa", "constraints"),
    [
        (Logistic(), 16, 4, NO_CONSTRAINTS),
        (Squared(), 24, 5, NO_CONSTRAINTS),
        pytest.param(Logistic(), 10, 3, Constraints(lower=np.full((10, 1), -0.3)), marks=pytest.mark.long),
        (Softmax(), 5, 4, NO_CONSTRAINTS),
    ],
    ids=["second order", "form", "passes", "joint"],
)
def test_a_stopped_tree_goes_on_where_it_was(loss, features, kappa, constraints, tmp_path):
    source, rules = weak(loss, features), {"constraints": constraints}
    fresh = prove(source, loss, kappa, **rules)
    first = prove(source, loss, kappa, tmp_path, stop_after(fresh.tree_nodes // 3), **rules)
    assert first.status is Status.INTERRUPTED
    assert 0 < first.tree_nodes < fresh.tree_nodes
    assert first.lower_bound < fresh.objective * (1 - 1e-6)
    resumed = prove(source, loss, kappa, tmp_path, **rules)
    assert resumed.status is fresh.status is Status.PROVED
    assert resumed.objective == pytest.approx(fresh.objective, rel=1e-9)
    # The nodes of both runs are counted: those of the second alone are fewer than without a checkpoint.
    assert first.tree_nodes < resumed.tree_nodes < first.tree_nodes + 0.9 * fresh.tree_nodes
    again = prove(source, loss, kappa, tmp_path, **rules)
    assert again.tree_nodes == resumed.tree_nodes
    assert again.lower_bound == resumed.lower_bound


def test_a_killed_process_goes_on_where_it_was(tmp_path):
    source = weak(Logistic(), 16)
    data, folder = tmp_path / "data.npz", tmp_path / "kept"
    np.savez(data, X=source.matrix.values.numpy(), y=source.target.numpy())
    fresh = prove(source, Logistic(), 4)
    command = [sys.executable, "-c", KILLED, str(data), str(folder), str(fresh.tree_nodes // 2)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == -signal.SIGKILL
    nodes, run = find_run(Path(folder) / "tree-0")
    assert 0 < nodes < fresh.tree_nodes
    assert run["gap_tol"] == 1e-6
    resumed = prove(source, Logistic(), 4, folder)
    assert resumed.status is Status.PROVED
    assert resumed.objective == pytest.approx(fresh.objective, rel=1e-9)
    assert resumed.tree_nodes - nodes < 0.9 * fresh.tree_nodes


def test_sigterm_keeps_the_tree(tmp_path):
    source = weak(Logistic(), 16)
    fresh = prove(source, Logistic(), 4)

    def terminate(progress):
        if progress.explored is not None and progress.explored >= fresh.tree_nodes // 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(StoppedError, match=r"stopped by a signal after \d+ tree nodes; the same command goes on"):
        prove(source, Logistic(), 4, tmp_path, terminate)
    nodes, _ = find_run(tmp_path / "tree-0")
    resumed = prove(source, Logistic(), 4, tmp_path)
    assert resumed.objective == pytest.approx(fresh.objective, rel=1e-9)
    assert 0 < resumed.tree_nodes - nodes < 0.9 * fresh.tree_nodes


def test_a_foreign_tree_is_refused_with_its_reason(tmp_path):
    source = make_source(Logistic(), samples=60, features=16, nonzeros=3, seed=0)
    prove(source, Logistic(), 4, tmp_path, stop_after(1))
    with pytest.raises(CheckpointError, match=r"its gap_tol is 1e-06, this one's 0\.001"):
        prove(source, Logistic(), 4, tmp_path, gap_tol=1e-3)
    place = next((tmp_path / "tree-0").glob("iteration-*"))
    shared = place / "shared.npz"
    arrays = dict(np.load(shared))
    np.savez(shared, **arrays | {"lower": arrays["lower"] * np.nan})
    with pytest.raises(CheckpointError, match="'lower' has numbers that are not finite"):
        prove(source, Logistic(), 4, tmp_path)
    np.savez(shared, **arrays | {"node_inside": arrays["node_inside"][:, 1:]})
    with pytest.raises(CheckpointError, match="'node_inside' is an array"):
        prove(source, Logistic(), 4, tmp_path)
