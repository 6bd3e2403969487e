"""Every grid of real ranks gives the answer of one node in one process."""

import json

import numpy as np
import pytest
from jobs import SAMPLES, data, fit
from launch import HERE, command, run

from psfit import GridSpec


@pytest.fixture(scope="module")
def control():
    X, jobs = data()
    grid = GridSpec(backend="serial", device="cpu")
    return {name: fit(job, X, slice(0, SAMPLES), grid) for name, job in jobs.items()}


def compare(answers, control):
    """The same classes, objective and coefficients for every job on every grid."""
    for grid, found_by_name in answers.items():
        for name, expected in control.items():
            found, where = found_by_name[name], f"{name} on {grid}"
            assert found["samples"] == SAMPLES, where
            assert found["classes"] == expected["classes"], where
            assert found["objective"] == pytest.approx(expected["objective"], rel=1e-6), where
            scale = np.abs(expected["coef"]).max()
            np.testing.assert_allclose(found["coef"], expected["coef"], atol=1e-6 * scale, err_msg=where)
            np.testing.assert_allclose(found["intercept"], expected["intercept"], atol=1e-5, err_msg=where)
            assert found["lower_bound"] <= found["objective"] * (1 + 1e-9), where


def answers_of(backend, ranks, device, group, grids, folder):
    output = folder / "answers.json"
    done = run(command(backend, ranks, str(HERE / "reproduce.py"), backend, str(output), device, group, *grids))
    assert done.returncode == 0, done.stderr
    answers = json.loads(output.read_text())
    assert list(answers) == list(grids)
    return answers


# Sixteen nodes have fewer rows than columns each. Both backends take the same steps, so for MPI one grid will do.
@pytest.mark.parametrize(
    ("backend", "ranks", "grids"),
    [("torch", 4, ("2x2",)), ("torch", 3, ("16x1",)), ("mpi", 4, ("4x1",))],
    ids=["4 ranks", "3 ranks, 16 nodes", "4 ranks, MPI"],
)
def test_every_grid_gives_the_control_runs_answer(backend, ranks, grids, control, tmp_path):
    compare(answers_of(backend, ranks, "cpu", "-", grids, tmp_path), control)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("backend", "ranks", "group", "grids"),
    [("torch", 1, "-", ("1x1", "4x1", "2x2")), ("torch", 2, "gloo", ("2x1", "1x2")), ("mpi", 2, "-", ("2x1", "1x2"))],
    ids=["NCCL", "gloo", "MPI"],
)
def test_a_gpu_gives_the_control_runs_answer(backend, ranks, group, grids, control, tmp_path):
    compare(answers_of(backend, ranks, "cuda", group, grids, tmp_path), control)
