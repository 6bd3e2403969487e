"""Ranks whose processors round differently make the same searches and end with the same answers."""

import json

import pytest
from launch import HERE, command, run
from rounding import SAMPLES, fit_all

from psfit import GridSpec


@pytest.fixture(scope="module")
def control():
    return fit_all(slice(0, SAMPLES), GridSpec(backend="serial", device="cpu"))


@pytest.mark.parametrize(
    ("backend", "ranks", "blocks"), [("torch", 2, 2), pytest.param("mpi", 2, 1, marks=pytest.mark.long)]
)
def test_ranks_that_round_differently_agree(backend, ranks, blocks, control, tmp_path):
    done = run(command(backend, ranks, str(HERE / "rounding.py"), backend, str(tmp_path), str(blocks)))
    assert done.returncode == 0, done.stderr
    first, *others = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(ranks)]
    assert all(other == first for other in others)
    assert list(first) == list(control)
    for name, (objective, *_) in first.items():
        assert objective == pytest.approx(control[name][0], rel=1e-6), name
