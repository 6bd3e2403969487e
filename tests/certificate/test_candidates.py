"""Bounds from candidate columns, and from raw products."""

import pytest
import torch
from enumeration import best_objective
from problems import make_source

from psfit import Dense, GridSpec, Problem, Source
from psfit.certificate import dual
from psfit.certificate.candidates import bound_by_candidates
from psfit.certificate.data_relaxation import DataRelaxation
from psfit.certificate.dual import dual_bound
from psfit.data import matrix
from psfit.losses import Hinge, Logistic
from psfit.problem.pose import pose
from psfit.search.refit import refit


def posed(loss, seed, *, features=8, offset=0.0, gamma=0.3):
    source = make_source(loss, samples=80, features=features, nonzeros=3, seed=seed, correlation=0.6)
    source = Source(Dense(source.matrix.values + offset), source.target, source.weight)
    problem = Problem(loss, (3,), gamma)
    inst = pose(problem, source, GridSpec(device="cpu").build())
    first = torch.zeros(features, dtype=torch.bool)
    first[:3] = True
    fit = refit(inst, 0, first, torch.zeros(len(inst.ridge), 1, dtype=torch.float64))
    return problem, source, inst, fit


@pytest.mark.parametrize("loss", [Logistic(), Hinge()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("seed", range(3))
def test_candidates_prove_what_all_columns_prove(loss, seed):
    problem, source, inst, fit = posed(loss, seed, features=12, gamma=0.05)
    bound, _ = bound_by_candidates(inst, fit.Z, fit.value)
    relaxation = DataRelaxation(inst)
    other = relaxation.bound(inst.domain, relaxation.start(fit.Z), fit.value, 1000)
    assert float(bound) <= best_objective(problem, source) * (1 + 1e-7)
    assert float(bound) >= float(other.lower) - 0.05 * (fit.value - float(other.lower))


@pytest.mark.parametrize("offset", [0.0, 5.0, 100.0])
def test_raw_products_prove_the_same_where_means_are_moderate(monkeypatch, offset):
    monkeypatch.setattr(matrix, "MOST_KEPT", 0)
    _, _, inst, fit = posed(Logistic(), 2, offset=offset)
    assert (dual._raw_rounding(inst) is None) == (offset > 50)
    slopes = inst.problem.loss.gradient(inst.source.matrix.mv(fit.Z), inst.source.target)
    found = dual_bound(inst, slopes, inst.domain)
    monkeypatch.setattr(dual, "MOST_RAW_ROUNDING", 0.0)
    centred = dual_bound(inst, slopes, inst.domain)
    torch.testing.assert_close(found, centred, rtol=1e-9, atol=1e-12)
    # More rounding is counted for raw products, so they never prove more than rounding allows.
    assert float(found[0]) <= float(centred[0]) + 1e-12 * abs(float(centred[0]))
