"""Which way is chosen: by shapes alone, without data."""

from types import SimpleNamespace

import torch

from psfit import Problem
from psfit.losses import Logistic, Squared
from psfit.problem import costs as module
from psfit.problem.costs import Costs, Sizes, squares_fit


def grid_of(nodes=1, ranks=1, blocks=1):
    axis = SimpleNamespace(size=nodes, comm=SimpleNamespace(size=ranks))
    return SimpleNamespace(nodes=axis, blocks=SimpleNamespace(size=blocks))


def costs_of(
    samples,
    columns,
    kappa=5,
    *,
    loss=None,
    nodes=1,
    blocks=1,
    streamed=False,
    known=False,
    room=None,
    device="cpu",
):
    matrix = SimpleNamespace(shape=(samples, columns), streamed=streamed, device=torch.device(device))
    problem = Problem(loss or Squared(), (kappa,))
    sizes = Sizes(samples, -(-samples // nodes), samples, columns if room is None else room)
    return Costs(problem, grid_of(nodes, blocks=blocks), matrix, columns, sizes, known)


def test_the_form_is_used_where_all_nodes_together_have_enough_rows():
    assert costs_of(100, 50).uses_form
    assert costs_of(100, 50, nodes=10).uses_form
    assert not costs_of(40, 50).uses_form
    assert not costs_of(100, 50, loss=Logistic()).uses_form
    assert not costs_of(100, 50, blocks=2).uses_form
    assert not costs_of(100, 50, streamed=True).uses_form
    assert costs_of(100, 50, streamed=True, known=True).uses_form


def test_the_form_is_at_hand_where_nodes_need_their_own_matrices():
    assert costs_of(100, 50).form_at_hand
    assert not costs_of(100, 50, nodes=10).form_at_hand
    assert costs_of(100, 50, nodes=10, known=True).form_at_hand


def test_a_wide_search_uses_the_form_where_it_is_cheap_or_the_limit_is_large():
    assert costs_of(30, 60).searches_by_form
    assert not costs_of(30, 60).uses_form
    assert not costs_of(30, 60, streamed=True).searches_by_form
    assert not costs_of(30, 60, loss=Logistic()).searches_by_form
    # 2 * 5,000 * 9,000^2 operations are not cheap, and candidates are enough unless the limit is large.
    assert not costs_of(5_000, 9_000).searches_by_form
    assert costs_of(5_000, 9_000).uses_candidates
    assert costs_of(5_000, 9_000, 2_000).searches_by_form
    assert not costs_of(5_000, 9_000, 2_000).uses_candidates


def test_products_in_double_serve_everyone_on_a_host():
    assert costs_of(100, 50).products_in_double
    assert not costs_of(100, 50, device="cuda").products_in_double
    assert not costs_of(40, 50).products_in_double


def test_what_does_not_fit(monkeypatch):
    monkeypatch.setattr(module, "MOST_NUMBERS", 2 * 50**2)
    assert squares_fit(grid_of(2), 50)
    assert not squares_fit(grid_of(3), 50)
    assert squares_fit(grid_of(3, ranks=2), 50)
    assert not squares_fit(grid_of(2), 50, copies=2)
    assert not costs_of(1000, 50, nodes=3).uses_form
    assert costs_of(140, 50, nodes=3).uses_form


def test_candidates_stand_for_columns_that_are_out_of_reach():
    few = costs_of(100, 1000, 5, streamed=True)
    assert few.columns_out_of_reach
    assert few.first_candidates == 4 * 5 + 50
    assert few.uses_candidates
    assert not costs_of(100, 1000, 5).uses_candidates
    assert not costs_of(100, 1000, 5, streamed=True, room=8).uses_candidates
    assert costs_of(100, 1000, 5, streamed=True, room=20).uses_candidates
    assert not costs_of(100, 130, 5, streamed=True).uses_candidates
