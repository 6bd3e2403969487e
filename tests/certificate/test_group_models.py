"""Second-order bounds of groups of features, against enumeration, a conic program, and a long run of another method."""

import clarabel
import numpy as np
import pytest
import torch
from enumeration import best_objective
from problems import make_source
from scipy import optimize, sparse

from psfit import GridSpec, Problem
from psfit.certificate.choose import choose_relaxation
from psfit.certificate.data_relaxation import DataRelaxation
from psfit.certificate.dual import dual_bound
from psfit.certificate.group_models import measure_items, minimise_by_shares
from psfit.certificate.newton_relaxation import NewtonRelaxation
from psfit.certificate.relaxation import least_ridge
from psfit.certificate.wide_slopes import find_wide_slopes
from psfit.losses import Huber, Logistic, Poisson, SquaredHinge
from psfit.problem import Constraints
from psfit.problem.pose import pose

SMOOTH = [Logistic(), SquaredHinge(), Huber(), Poisson()]
GROUP = np.array([0, 1, 0, 2, 3, 3, 2, 2, 4])


def posed(loss, seed, *, samples=80, kappa=2, counts=False, intercept=True, nodes=1, **given):
    source = make_source(loss, samples=samples, features=len(GROUP), nonzeros=4, seed=seed, correlation=0.6)
    demands = Constraints(group=GROUP, counts_features=counts, **given)
    problem = Problem(loss, (kappa,), 0.3, fit_intercept=intercept, constraints=demands)
    return problem, source, pose(problem, source, GridSpec(nodes=nodes, device="cpu").build())


def zero(inst):
    return torch.zeros(len(inst.ridge), 1, dtype=torch.float64)


def bound(relaxation, inst, steps):
    return relaxation.bound(inst.domain, relaxation.start(zero(inst)), float("inf"), steps)


@pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
@pytest.mark.parametrize(("seed", "counts", "kappa"), [(0, False, 2), (1, True, 4), (2, False, 1)])
def test_steps_reach_what_a_long_run_of_another_method_proves(loss, seed, counts, kappa):
    problem, source, inst = posed(loss, seed, counts=counts, kappa=kappa, intercept=seed != 1, nodes=1 + seed)
    relaxation, steps = choose_relaxation(inst)
    assert isinstance(relaxation, NewtonRelaxation)
    found = bound(relaxation, inst, steps)
    lower = float(found.lower)
    assert lower <= float(found.value)
    assert lower <= best_objective(problem, source) * (1 + 1e-7)
    first_order = DataRelaxation(inst)
    other = float(bound(first_order, inst, 3000).lower)
    assert lower >= other - 2e-4 * abs(other)


def test_several_limits_have_the_bounds_of_single_limits():
    _, _, inst = posed(Logistic(), 3, kappa=4)
    relaxation, steps = choose_relaxation(inst)
    limits = torch.tensor([[1], [2], [4]])
    domain = inst.domain_at(limits)
    state = tuple(part.repeat(3, *[1] * (part.ndim - 1)) for part in relaxation.start(zero(inst)))
    together = relaxation.bound(domain, state, float("inf"), steps)
    for row, kappa in enumerate(limits.flatten().tolist()):
        _, _, alone = posed(Logistic(), 3, kappa=kappa)
        relaxation, steps = choose_relaxation(alone)
        assert float(together.lower[row]) == pytest.approx(float(bound(relaxation, alone, steps).lower), rel=3e-4)


def test_passes_serve_where_steps_were_not_measured():
    _, _, inst = posed(Logistic(), 0, samples=len(GROUP) - 1)
    assert not isinstance(choose_relaxation(inst)[0], NewtonRelaxation)
    _, _, inst = posed(Logistic(), 0, lower=np.zeros((len(GROUP), 1)))
    assert not isinstance(choose_relaxation(inst)[0], NewtonRelaxation)


def test_the_optimum_without_a_limit_is_proved_where_columns_are_many():
    _, source, inst = posed(Logistic(), 1, samples=6)
    proved = float(dual_bound(inst, find_wide_slopes(inst), inst.domain)[0])
    A, b = source.matrix.values.numpy(), source.target.numpy()[:, 0]

    def evaluate(v):
        margin = b * (A @ v[:-1] + v[-1])
        slope = -b / (1 + np.exp(margin))
        value = np.logaddexp(0, -margin).sum() + v[:-1] @ v[:-1] / 0.6
        return value, np.r_[A.T @ slope + v[:-1] / 0.3, slope.sum()]

    least = optimize.minimize(evaluate, np.zeros(len(GROUP) + 1), jac=True, options={"gtol": 1e-9}).fun
    assert least * (1 - 1e-4) <= proved <= best_objective(inst.problem, source) * (1 + 1e-7)


def solve_conic_program(H, q, ridge, group, left):
    """The least value of the model with groups, in coefficients, shares s and their ridges t: |x|^2 r / 2 <= s t."""
    n, count = len(q), group.max() + 1
    size = n + 2 * count
    P = sparse.block_diag([H, sparse.csc_matrix((2 * count, 2 * count))], format="csc")
    unit = sparse.eye(size, format="csr")
    s, t = unit[n : n + count], unit[n + count :]
    rows, right = [s, -s, s.sum(axis=0)], [np.ones(count), np.zeros(count), [left]]
    cones = [clarabel.NonnegativeConeT(2 * count + 1)]
    for one in range(count):
        inside = np.flatnonzero(group == one)
        scaled = sparse.diags(2 * np.sqrt(ridge[inside] / 2)) @ unit[inside]
        rows += [-(s[one] + t[one]), -scaled, -(s[one] - t[one])]
        right.append(np.zeros(len(inside) + 2))
        cones.append(clarabel.SecondOrderConeT(len(inside) + 2))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    linear = np.r_[-q, np.zeros(count), np.ones(count)]
    A = sparse.vstack([sparse.csr_matrix(row) for row in rows], format="csc")
    found = clarabel.DefaultSolver(sparse.triu(P, format="csc"), linear, A, np.concatenate(right), cones, settings)
    return found.solve()


@pytest.mark.parametrize("seed", range(4))
def test_shares_and_ridges_in_turn_reach_the_minimum_of_a_conic_program(seed):
    _, _, inst = posed(Logistic(), seed, kappa=1 + seed % 3)
    rng = np.random.default_rng(seed)
    A, q = rng.normal(size=(30, len(GROUP))), 10 * rng.normal(size=len(GROUP))
    H, ridge = A.T @ A, rng.uniform(0.5, 2.0, 5)[GROUP]
    solution = solve_conic_program(H, q, ridge, GROUP, 1 + seed % 3)
    x = torch.zeros(len(GROUP), dtype=torch.float64)
    parts = [torch.from_numpy(part) for part in (ridge, H, q)]
    for _ in range(200):
        x = minimise_by_shares(inst.items, *parts, inst.domain, x, 0.0)
    least = float(least_ridge(inst.domain, measure_items(inst.items, parts[0], x.unsqueeze(0))))
    value = float(x @ (0.5 * parts[1] @ x - parts[2])) + least
    assert value == pytest.approx(solution.obj_val, rel=1e-6)
    np.testing.assert_allclose(x.numpy(), solution.x[: len(q)], atol=1e-3 * np.abs(solution.x[: len(q)]).max())
