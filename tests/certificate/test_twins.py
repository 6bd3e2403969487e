"""Columns that can stand for each other: they are found, and a tree that tries one of them proves the same."""

import pytest
import torch
from enumeration import best_objective
from problems import make_source

from psfit import BiCADMM, Dense, GridSpec, Problem, Source, solve
from psfit.certificate import exact
from psfit.certificate.node_points import Samples
from psfit.certificate.twins import find_twins
from psfit.common.status import Status
from psfit.losses import Logistic, Poisson, SquaredHinge
from psfit.problem.pose import pose


def with_copies(loss, seed=0, features=6):
    """Columns 2 and 5 again, one with the other sign and another mean, and one that differs a little."""
    source = make_source(loss, samples=70, features=features, nonzeros=3, seed=seed, correlation=0.5)
    A = source.matrix.values
    copies = torch.stack([A[:, 2], 1 - A[:, 5], A[:, 1] + 1e-6 * A[:, 0]], dim=1)
    return Source(Dense(torch.cat([A, copies], dim=1)), source.target, source.weight)


def labels_of(loss, source, **options):
    inst = pose(Problem(loss, (3,), 1.0, **options), source, GridSpec(device="cpu").build())
    found = find_twins(Samples(inst), 1e3)
    return None if found is None else found.label.tolist()


def test_equal_and_opposite_columns_are_twins():
    source = with_copies(Logistic())
    assert labels_of(Logistic(), source) == [0, 1, 2, 3, 4, 5, 2, 5, 8]
    # Without an intercept the means of the columns matter.
    assert labels_of(Logistic(), source, fit_intercept=False) == [0, 1, 2, 3, 4, 5, 2, 7, 8]


def test_there_are_none_without_copies_or_for_losses_of_unbounded_curvature():
    assert labels_of(Logistic(), make_source(Logistic(), samples=50, features=5, nonzeros=2, seed=0)) is None
    assert labels_of(Poisson(), with_copies(Poisson())) is None


@pytest.mark.parametrize("loss", [Logistic(), SquaredHinge()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("kappa", [2, 4])
def test_a_tree_with_twins_proves_the_optimum_in_no_more_nodes(loss, kappa, monkeypatch):
    source, nodes = with_copies(loss, seed=1, features=9), []
    problem = Problem(loss, (kappa,), 30.0)
    best = best_objective(problem, source)
    monkeypatch.setattr(exact, "are_few", lambda size, limit: False)
    for share in (exact.MOST_RISE, -1.0):
        monkeypatch.setattr(exact, "MOST_RISE", share)
        found = solve(problem, source, BiCADMM(effort="low", exact=True, max_iter=5, gap_tol=1e-6))
        assert found.status is Status.PROVED
        assert found.objective == pytest.approx(best, rel=1e-6)
        assert found.lower_bound <= best * (1 + 1e-9)
        nodes.append(found.tree_nodes)
    assert nodes[0] < nodes[1]
