"""Messages agree with the cost model: n + O(1) numbers per rank for an outer iteration."""

import json

import pytest
from launch import BACKENDS, HERE, command, run

# Three residual sums and three reasons to stop travel with the coefficients.
RIDERS = 6
INNER = 2
ITERATIONS = 4


def spent_by_rank(backend, ranks, blocks, tmp_path):
    done = run(command(backend, ranks, str(HERE / "count.py"), backend, str(tmp_path / "spent"), str(blocks)))
    assert done.returncode == 0, done.stderr
    return [json.loads((tmp_path / f"spent-{rank}").read_text()) for rank in range(ranks)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_reduction_of_n_and_a_few_numbers_an_iteration(backend, tmp_path):
    for spent in spent_by_rank(backend, 2, 1, tmp_path):
        for loss in ("squared", "logistic"):
            numbers = ITERATIONS * (spent["features"] + RIDERS)
            assert spent[loss] == [ITERATIONS, numbers, 8 * numbers]


def test_blocks_add_one_reduction_of_predictors_an_inner_iteration(tmp_path):
    for spent in spent_by_rank("torch", 2, 2, tmp_path):
        for loss in ("squared", "logistic"):
            # One more message joins the norms of a node's blocks.
            numbers = ITERATIONS * (spent["features"] + RIDERS + INNER * (spent["rows"] + 1) + 3)
            assert spent[loss] == [ITERATIONS * (1 + INNER + 1), numbers, 8 * numbers]
