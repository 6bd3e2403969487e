"""Every grid of real ranks gives the answer of one node in one process."""

import json

import numpy as np
import pytest
from jobs import SAMPLES, chosen, data, fit
from launch import HERE, command, run

from psfit import GridSpec


@pytest.fixture(scope="module")
def control():
    X, jobs = data()
    grid = GridSpec(backend="serial", device="cpu")
    return {name: fit(job, X, slice(0, SAMPLES), grid) for name, job in jobs.items()}


def compare(answers, control, which="all"):
    """The same classes, objective and coefficients for every job on every grid."""
    for grid, found_by_name in answers.items():
        assert list(found_by_name) == chosen(data()[1], which)
        for name, found in found_by_name.items():
            expected, where = control[name], f"{name} on {grid}"
            assert found["samples"] == SAMPLES, where
            assert found["classes"] == expected["classes"], where
            assert found["objective"] == pytest.approx(expected["objective"], rel=1e-6), where
            scale = np.abs(expected["coef"]).max()
            np.testing.assert_allclose(found["coef"], expected["coef"], atol=1e-6 * scale, err_msg=where)
            np.testing.assert_allclose(found["intercept"], expected["intercept"], atol=1e-5, err_msg=where)
            assert found["lower_bound"] <= found["objective"] * (1 + 1e-9), where


def answers_of(backend, ranks, device, group, grids, folder, which="all"):
    output = folder / "answers.json"
    program = [str(HERE / "reproduce.py"), backend, str(output), device, group, which, *grids]
    done = run(command(backend, ranks, *program))
    assert done.returncode == 0, done.stderr
    answers = json.loads(output.read_text())
    assert list(answers) == list(grids)
    return answers


# Sixteen nodes have fewer rows than columns each, which is for the plain fits to cope with. Every job runs on one of
# the two grids. Both backends take the same steps, so for MPI a few jobs on one grid will do.
@pytest.mark.parametrize(
    ("backend", "ranks", "grid", "which"),
    [("torch", 4, "2x2", "blocks"), ("torch", 3, "16x1", "split"), ("mpi", 4, "4x1", "few")],
    ids=["4 ranks", "3 ranks, 16 nodes", "4 ranks, MPI"],
)
def test_every_grid_gives_the_control_runs_answer(backend, ranks, grid, which, control, tmp_path):
    compare(answers_of(backend, ranks, "cpu", "-", [grid], tmp_path, which), control, which)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("backend", "ranks", "group", "grids"),
    [("torch", 1, "-", ("1x1", "4x1", "2x2")), ("torch", 2, "gloo", ("2x1", "1x2")), ("mpi", 2, "-", ("2x1", "1x2"))],
    ids=["NCCL", "gloo", "MPI"],
)
def test_a_gpu_gives_the_control_runs_answer(backend, ranks, group, grids, control, tmp_path):
    compare(answers_of(backend, ranks, "cuda", group, grids, tmp_path), control)
