"""The model of all items by one pass over the data: gains of swaps are those of refits where the model is exact."""

import pytest
import torch
from posed import posed, support, zero
from problems import make_source

from psfit import GridSpec, Problem
from psfit.losses import Squared
from psfit.problem.pose import pose
from psfit.search.objective import DataObjective
from psfit.search.refit import refit


def assert_gains_are_those_of_refits(inst, chosen):
    objective = DataObjective(inst, 0)
    fit = objective.fit(chosen, zero(inst))
    scored = 0
    for gains, leaving, joining in objective.domain.swap_scores(objective.model(fit, chosen), chosen):
        for a, out in enumerate(leaving.tolist()):
            for b, into in enumerate(joining.tolist()):
                trial = chosen.clone()
                trial[out], trial[into] = False, True
                actual = fit.value - refit(inst, 0, trial, zero(inst)).value
                assert float(gains[a, b]) == pytest.approx(actual, rel=1e-7, abs=1e-9)
                scored += 1
    assert scored == 3 * 5


@pytest.mark.parametrize("nodes", [1, 2])
def test_gains_for_the_squared_loss(nodes):
    inst = posed(Squared(), 3, nodes=nodes)
    assert_gains_are_those_of_refits(inst, support(inst, [0, 4, 7]))


def test_gains_for_whole_rows():
    source = make_source(Squared(), samples=80, features=8, nonzeros=3, seed=0)
    target = torch.cat([source.target, source.target.flip(0)], dim=1)
    problem = Problem(Squared(), (3,), 3.0, "feature")
    inst = pose(problem, source.with_target(target), GridSpec().build(torch.device("cpu")))
    assert_gains_are_those_of_refits(inst, support(inst, [0, 4, 7]))
