"""Equal samples are merged: the bounds stay the same, and so do the proofs."""

import pytest
import torch
from posed import zero

from psfit import Dense, GridSpec, Problem, Source
from psfit.certificate.choose import make_newton
from psfit.certificate.equal_rows import merge_equal_rows
from psfit.losses import Hinge, Logistic
from psfit.pipeline.proofs import fit_supports
from psfit.problem.pose import pose


def table(weight=None, samples=120):
    """Columns of zeros and ones, of which many rows are equal."""
    generator = torch.Generator().manual_seed(3)
    X = torch.randint(2, (samples, 5), generator=generator).double()
    y = torch.where(torch.rand(samples, 1, generator=generator) < 0.3 + 0.4 * X[:, :1], 1.0, -1.0).double()
    return Source(Dense(X), y, torch.ones(samples, 1, dtype=torch.float64) if weight is None else weight)


def instance(source, loss, intercept=True):
    problem = Problem(loss, (2,), 1.0, fit_intercept=intercept)
    return pose(problem, source, GridSpec().build(torch.device("cpu")))


@pytest.mark.parametrize("loss", [Logistic(), Hinge()], ids=["logistic", "hinge"])
@pytest.mark.parametrize("intercept", [True, False])
def test_bounds_and_optima_stay_the_same(loss, intercept):
    weight = 1.0 + torch.arange(120).remainder(3).double().unsqueeze(1)
    inst = instance(table(weight), loss, intercept)
    fit = fit_supports(inst, 0, zero(inst))
    merged, own_fit = merge_equal_rows(inst, fit)
    assert merged.source.matrix.shape[0] <= 2**6 < inst.source.matrix.shape[0]
    assert float(merged.source.weight.sum()) == float(weight.sum())
    found = []
    for one, minimise in ((inst, fit), (merged, own_fit)):
        relaxation = make_newton(one, 0.0, minimise)
        bounds = relaxation.bound(relaxation.root, relaxation.start(zero(inst)), float("inf"), 60)
        supports = torch.tensor([[True, True, False, False, False]])
        found.append((float(bounds.lower), *(float(part) for part in relaxation.optima(supports, None, 1e9))))
    (lower, value, error), (own_lower, own_value, own_error) = found
    assert own_lower == pytest.approx(lower, rel=2e-4)
    assert own_value == pytest.approx(value, rel=1e-9)
    assert max(error, own_error) <= 1e-7 * value


def test_samples_that_differ_are_kept():
    source = table()
    different = Source(Dense(source.matrix.values + torch.arange(120).unsqueeze(1)), source.target, source.weight)
    inst = instance(different, Logistic())
    assert merge_equal_rows(inst)[0] is inst


def test_labels_count():
    source = table()
    opposite = Source(
        Dense(torch.cat([source.matrix.values, source.matrix.values])),
        torch.cat([source.target, -source.target]),
        torch.ones(240, 1, dtype=torch.float64),
    )
    merged = merge_equal_rows(instance(opposite, Logistic()))[0].source
    # Every row occurs with both labels.
    assert float(merged.target.sum()) == 0
    assert float((merged.weight * merged.target).sum()) == 0
