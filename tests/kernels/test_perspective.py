"""The compiled ascent against sorted sums, and against the same method by torch's operations."""

import numpy as np
import pytest
import torch
from problems import make_source

from psfit import GridSpec, Problem
from psfit.certificate.form_ascent import raise_bound
from psfit.certificate.form_bound import FormBound
from psfit.certificate.quadratic import LimitedForm
from psfit.certificate.relaxation import QuadraticRelaxation
from psfit.kernels.cpu.perspective import find_theta, sum_largest
from psfit.losses import Squared
from psfit.problem import Constraints
from psfit.problem.pose import pose


@pytest.mark.parametrize("count", [0, 1, 3, 7, 40, 41, 50])
def test_the_sum_of_the_largest_is_that_of_a_sorted_array(count):
    scores = np.random.default_rng(count).integers(0, 9, 41).astype(float)
    before = scores.copy()
    assert sum_largest(scores, count) == np.sort(scores)[::-1][:count].sum()
    np.testing.assert_array_equal(scores, before)


@pytest.mark.parametrize("start", [0.0, 1e-3, 1e6])
@pytest.mark.parametrize("left", [1, 5, 19])
def test_the_shares_fill_the_limit(left, start):
    generator = np.random.default_rng(left)
    slope, offset = 10.0 ** generator.uniform(-6, 6, 20), 10.0 ** generator.uniform(-3, 1, 20)
    slope[7] = slope[8] = slope[3]
    theta = find_theta(slope, offset, left, start)
    assert np.clip(slope * theta - offset, 0, 1).sum() == pytest.approx(left, rel=1e-8)
    slope[:2] = 0
    assert find_theta(slope, offset, 18, start) == np.inf


def demands(kind, features):
    signs = np.where(np.arange(features)[:, None] % 2, -np.inf, 0.0)
    small = np.full((features, 1), 0.05)
    return {
        "nothing": Constraints(),
        "signs": Constraints(lower=signs, upper=np.where(signs < 0, 0.0, np.inf)),
        "bounds": Constraints(lower=-small, upper=2 * small),
        "groups": Constraints(group=np.arange(features) // 3),
        "groups and signs": Constraints(group=np.arange(features) * 7 % 4, lower=0 * small),
    }[kind]


@pytest.mark.parametrize("features", [12, 200])
@pytest.mark.parametrize("kind", ["nothing", "signs", "bounds", "groups", "groups and signs"])
def test_the_ascent_with_few_items_reaches_the_bound_of_all(features, kind):
    source = make_source(Squared(), samples=400, features=features, nonzeros=4, seed=1, correlation=0.9)
    problem = Problem(Squared(), (4,), 10.0, constraints=demands(kind, features))
    inst = pose(problem, source, GridSpec(device="cpu").build())
    limited = LimitedForm.of(inst)
    bound = FormBound(limited, limited.form.curvature.extracted)
    start = bound.at(torch.zeros(1, features, dtype=torch.float64), inst.domain)
    relaxation = QuadraticRelaxation(limited, bound.extracted)
    objective = 1.1 * bound.constant
    x = relaxation.ascend(relaxation.root, relaxation.start(start.x.T), objective, 1000)[0][0]
    expected = bound.at(x, inst.domain).lower
    found = raise_bound(limited, bound, start, inst.domain, objective)
    assert found.lower >= expected - 0.01 * (objective - expected)
    assert found.lower > start.lower
