"""Ranks that are killed, fail, freeze or get a signal to stop."""

import contextlib
import json
import os
import signal
import socket
import sys

import numpy as np
import pytest
from jobs import data
from launch import BACKENDS, HERE, alone, command, run, start

# One rank of two ends without an error while the other one waits for it.
LEAVING = """
import os, sys, numpy as np
from psfit import GridSpec, SparseLinearRegression
moment, second = sys.argv[1], os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK")) == "1"
if second and moment == "before MPI starts":
    sys.exit()
spec = GridSpec(backend="mpi", device="cpu", timeout=3.0)
spec.build()
if second:
    sys.exit()
X = np.eye(4)
SparseLinearRegression(1, grid=spec).fit(X, X[:, 0])
"""
FAULTY = str(HERE / "faulty.py")


def job(backend, folder, output, misfortune="none", rank=1, iteration=7, options=()):
    program = [FAULTY, backend, str(folder), str(output), misfortune, str(rank), str(iteration)]
    # Frozen processes must be the launcher's own.
    real = misfortune == "SIGSTOP"
    return command(backend, 2, *program, options=options, real=real)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The answer of two ranks without a failure, by backend."""
    folder = tmp_path_factory.mktemp("undisturbed")
    answers = {}
    for backend in ("torch", "mpi"):
        output = folder / f"{backend}.json"
        done = run(job(backend, "-", output))
        assert done.returncode == 0, done.stderr
        answers[backend] = json.loads(output.read_text())
    return answers


@pytest.mark.parametrize(
    ("rank", "iteration"),
    [pytest.param(0, 2, marks=pytest.mark.long, id="before any checkpoint"), pytest.param(1, 9, id="after two")],
)
def test_a_killed_rank_is_restarted_and_nothing_changes(rank, iteration, undisturbed, tmp_path):
    output = tmp_path / "answer.json"
    arguments = job("torch", tmp_path / "kept", output, "SIGKILL", rank, iteration, options=("--max-restarts", "1"))
    done = run(arguments)
    assert done.returncode == 0, done.stderr
    assert "exitcode: -9" in done.stderr
    assert json.loads(output.read_text()) == undisturbed["torch"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_sigterm_writes_a_checkpoint_that_the_next_run_goes_on_from(backend, undisturbed, tmp_path):
    kept, output = tmp_path / "kept", tmp_path / "answer.json"
    done = run(job(backend, kept, output, "SIGTERM"))
    assert done.returncode != 0
    assert "stopped by a signal at iteration 9" in done.stderr
    assert [path.name for path in kept.glob("iteration-*")] == ["iteration-00000009"]
    assert not output.exists()
    done = run(job(backend, kept, output))
    assert done.returncode == 0, done.stderr
    assert json.loads(output.read_text()) == undisturbed[backend]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rank_that_raises_stops_all_with_its_message(backend, tmp_path):
    done = run(job(backend, "-", tmp_path / "answer.json", "error"), timeout=60)
    assert done.returncode != 0
    assert "no room for the factor" in done.stderr
    if backend == "mpi":
        assert "rank 1 failed during the iteration" in done.stderr


@pytest.mark.parametrize("backend", BACKENDS)
def test_bad_data_on_one_rank_stop_all_with_one_message(backend, tmp_path):
    X, jobs = data()
    good, bad = X[:70], X[70:].copy()
    bad[3, 2] = np.nan
    y = jobs["squared"].y
    np.savez(tmp_path / "a.npz", X=good, y=y[:70])
    np.savez(tmp_path / "b.npz", X=bad, y=y[70:])
    files = [str(tmp_path / "a.npz"), str(tmp_path / "b.npz")]
    arguments = ["-m", "psfit", "fit", *files, "--device", "cpu", "--out", str(tmp_path / "model.psfit")]
    done = run(command(backend, 2, *arguments), timeout=30)
    assert done.returncode != 0
    assert done.stderr.count("column 2 has a missing value, first in row 3") == 1
    assert not (tmp_path / "model.psfit").exists()


@pytest.mark.parametrize(
    ("misfortune", "patience", "state"),
    [
        pytest.param("SIGKILL", "60", "has ended", id="dead"),
        pytest.param("SIGSTOP", "4", "is stopped", marks=pytest.mark.long, id="frozen"),
    ],
)
def test_a_lost_peer_is_noticed_and_the_phase_named(misfortune, patience, state, tmp_path):
    """Without a launcher that would clean up: two processes that know only each other's address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = [sys.executable, FAULTY, "torch", "-", str(tmp_path / "answer.json"), misfortune, "1", "5"]
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PATIENCE": patience}
    with alone():
        ranks = [start(program, RANK=str(rank), **place) for rank in range(2)]
        _, said = ranks[0].communicate(timeout=60)
        ranks[1].kill()
        ranks[1].communicate(timeout=60)
    assert ranks[0].returncode not in (0, -signal.SIGKILL)
    assert f"lost contact with rank 1 (its process {state}) during the iteration" in said


def test_a_frozen_peer_is_noticed_by_the_timeout_of_mpi(tmp_path):
    with alone():
        process = start(job("mpi", "-", tmp_path / "answer.json", "SIGSTOP"), PATIENCE="4")
        try:
            _, said = process.communicate(timeout=90)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode != 0
    assert "lost contact with rank 1 (its process is stopped) during the iteration" in said


@pytest.mark.parametrize("moment", [pytest.param("before MPI starts", marks=pytest.mark.long), "before the fit"])
def test_a_rank_that_leaves_does_not_hang_the_others_in_the_set_up(moment):
    done = run(command("mpi", 2, "-c", LEAVING, moment), timeout=60)
    assert done.returncode != 0
    told = "wait_for_all_ranks_to_start_mpi" if "MPI" in moment else "lost contact with rank 1 during set-up"
    assert told in done.stderr
