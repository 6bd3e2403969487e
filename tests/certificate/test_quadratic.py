"""The quadratic form of a limited problem, what is taken out of it, and what is extracted from it."""

import itertools

import numpy as np
import pytest
import torch
from enumeration import best_objective
from problems import make_source

from psfit import BiCADMM, Dense, GridSpec, Problem, Source, SparseLinearRegression, solve
from psfit.certificate import extraction
from psfit.certificate.quadratic import LimitedForm
from psfit.losses import Squared
from psfit.problem.pose import pose


def limited(problem, source, nodes=2):
    return LimitedForm.of(pose(problem, source, GridSpec(nodes=nodes, device="cpu").build()))


def limited_of(seed, features=7, kappa=3, samples=40, nodes=2):
    source = make_source(Squared(), samples=samples, features=features, nonzeros=3, seed=seed, correlation=0.7)
    problem = Problem(Squared(), (kappa,), gamma=2.0)
    return problem, source, limited(problem, source, nodes)


def least(found):
    chosen = itertools.combinations(range(found.size), found.kappa)
    return min(found.form.minimise(torch.tensor(s, dtype=torch.long)).value for s in chosen)


@pytest.mark.parametrize("seed", range(5))
def test_the_form_has_the_optimum_of_the_data(seed):
    problem, source, found = limited_of(seed)
    assert least(found) == pytest.approx(best_objective(problem, source), rel=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_taking_items_out_keeps_the_optimum_of_what_is_left(seed):
    _, _, found = limited_of(seed)
    inside, outside = torch.zeros(2, found.size, dtype=torch.bool)
    inside[2], outside[[0, 5]] = True, True
    with_two = [s for s in itertools.combinations(range(7), 3) if 2 in s and not {0, 5} & set(s)]
    expected = min(found.form.minimise(torch.tensor(s)).value for s in with_two)
    smaller = found.reduce(inside, outside)
    assert smaller.index.tolist() == [1, 3, 4, 6]
    assert least(smaller) == pytest.approx(expected, rel=1e-10)
    assert smaller.kappa == 2


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kappa", [1, 2, 3])
def test_a_single_place_is_proved_to_the_last_digits(seed, kappa):
    # At least all items but one are beyond doubt here, or there is only one place from the beginning.
    source = make_source(Squared(), samples=60, features=8, nonzeros=kappa, seed=seed, correlation=0.9)
    problem = Problem(Squared(), (kappa,), gamma=50.0)
    result = solve(problem, source, BiCADMM(gap_tol=0.0), GridSpec(device="cpu"))
    optimum = best_objective(problem, source)
    assert result.lower_bound <= optimum * (1 + 1e-12)
    assert result.gap < 1e-9
    assert (result.certain_in, result.certain_out) == (kappa, 8 - kappa)


@pytest.mark.parametrize("seed", range(5))
def test_extraction_leaves_a_convex_loss(seed):
    curvature = limited_of(seed)[2].form.curvature
    uniform, G = curvature.extracted, curvature.G
    assert float(uniform[0]) == pytest.approx(np.linalg.eigvalsh(G.numpy())[0], rel=1e-8)
    slope = torch.rand(curvature.size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    better = extraction.make_safe(curvature, extraction.improve(curvature, slope))
    for d in (uniform, better, extraction.make_safe(curvature, 3 * better)):
        assert bool((d >= 0).all())
        assert np.linalg.eigvalsh((G - torch.diag(d)).numpy())[0] >= -1e-12 * float(G.trace())
    assert float(slope @ better) > float(slope @ uniform)


def test_without_pooling_the_nodes_smallest_eigenvalues_add_up():
    source = make_source(Squared(), samples=60, features=5, nonzeros=2, seed=0)
    inst = pose(Problem(Squared(), (2,), 1.0), source, GridSpec(nodes=3, device="cpu").build())
    A = inst.source.matrix.chunk(0, 60, torch.float64)[:, :5].numpy()
    own = sum(2 * np.linalg.eigvalsh(part.T @ part)[0] for part in np.split(A, 3))
    assert extraction.extract_by_nodes(inst) == pytest.approx(own, rel=1e-9)
    assert extraction.extract_by_nodes(inst) <= 2 * np.linalg.eigvalsh(A.T @ A)[0]


def test_means_far_from_zero_do_not_spoil_the_form():
    """The errors it states cover what columns with a million times their spread as mean do to it."""
    problem, source, control = limited_of(0)
    moved = Source(Dense(source.matrix.values + 1e6), source.target, source.weight)
    found = limited(problem, moved)
    # The shift itself rounds the data to about 1e-10 of their spread; nothing worse may come on top.
    exact = moved.matrix.values - moved.matrix.values.mean(0)
    centred = Source(Dense(exact), source.target, source.weight)
    same = limited(problem, centred)
    torch.testing.assert_close(found.form.Q, same.form.Q, rtol=0, atol=1e-8 * float(control.form.Q.abs().max()))
    assert least(found) == pytest.approx(best_objective(problem, centred), rel=1e-8)


@pytest.mark.parametrize("exact", [False, True])
def test_nearly_dependent_columns_prove_at_least_the_optimum_without_a_limit(exact):
    """Powers of one number: ascent alone proves nothing. The oracles are least squares and all triples."""
    rng, t, mu = np.random.default_rng(0), np.linspace(1, 2, 400), 0.5e-6
    powers = t[:, None] ** np.arange(1, 17)
    X = powers / np.linalg.norm(powers, axis=0)
    y = np.sin(3 * t) + 0.1 * rng.normal(size=400)

    def least_objective(columns):
        A, ridge = X[:, columns], np.sqrt(mu) * np.eye(len(columns))
        x = np.linalg.lstsq(np.vstack([A, ridge]), np.append(y, np.zeros(len(columns))))[0]
        return np.sum((y - A @ x) ** 2) + mu * np.sum(x**2)

    model = SparseLinearRegression(3, gamma=1e6, fit_intercept=False, solver=BiCADMM(exact=exact)).fit(X, y)
    best = min(least_objective(list(triple)) for triple in itertools.combinations(range(16), 3))
    assert least_objective(list(range(16))) * (1 - 1e-6) <= model.lower_bound_ <= best * (1 + 1e-9)
