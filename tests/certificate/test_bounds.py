"""A bound must never exceed the optimum over all supports, which enumeration finds."""

import os

import numpy as np
import torch
from enumeration import best_objective
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import LOSSES, SPARSITIES, make_source

from psfit import BiCADMM, Dense, GridSpec, Problem, Source, solve
from psfit.certificate import Certifier
from psfit.common.status import Status
from psfit.problem.pose import pose

# What the oracle's own solver and summation leave over.
ORACLE = 1e-7


def examples(count):
    """How many problems a test draws; the variable PSFIT_EXAMPLES asks for more, or fewer."""
    return settings(max_examples=int(os.environ.get("PSFIT_EXAMPLES", count)), deadline=None)


@st.composite
def problems(draw):
    loss = draw(st.sampled_from(LOSSES))
    features = draw(st.integers(3, 5 if loss.joint else 7))
    samples = draw(st.integers(8, 30))
    source = make_source(
        loss,
        samples=samples,
        features=features,
        nonzeros=2,
        seed=draw(st.integers(0, 10_000)),
        correlation=draw(st.sampled_from([0.0, 0.5, 0.95])),
    )
    scales = 10.0 ** torch.tensor(draw(st.lists(st.integers(-3, 3), min_size=features, max_size=features)))
    values = source.matrix.values * scales.double()
    if draw(st.booleans()):
        values = values + 10 * scales
    dtype = draw(st.sampled_from([torch.float64, torch.float32]))
    weight = torch.tensor(draw(st.lists(st.integers(0, 3), min_size=samples, max_size=samples))).reshape(-1, 1)
    weight = torch.where(torch.arange(samples).reshape(-1, 1) < 4, 1, weight)
    source = Source(Dense(values.to(dtype)), source.target.to(dtype), weight.to(dtype))
    sparsity = draw(st.sampled_from(SPARSITIES)) if loss.joint else "element"
    problem = Problem(
        loss,
        (draw(st.integers(1, 3)),),
        draw(st.sampled_from([1e-3, 0.01, 1.0, 1000.0, 1e6])),
        sparsity,
        draw(st.booleans()),
    )
    return problem, source, draw(st.integers(1, 3))


@given(problems(), st.sampled_from(["low", "medium"]))
@examples(12)
def test_no_bound_exceeds_the_optimum(case, effort):
    problem, source, nodes = case
    optimum = best_objective(problem, source)
    result = solve(problem, source, BiCADMM(effort=effort), GridSpec(nodes=nodes, device="cpu"))
    assert result.lower_bound <= optimum + ORACLE * (1 + abs(optimum))
    assert result.lower_bound <= result.objective
    assert np.isfinite(result.lower_bound)


@given(problems(), st.integers(0, 1000))
@examples(30)
def test_a_bound_holds_from_any_point(case, seed):
    problem, source, nodes = case
    inst = pose(problem, source, GridSpec(nodes=nodes, device="cpu").build())
    generator = torch.Generator().manual_seed(seed)
    Z = torch.randn(inst.source.matrix.shape[1], inst.source.outputs, generator=generator, dtype=torch.float64)
    optimum = best_objective(problem, source)
    certificate = Certifier(inst, 0).certify(Z, float("inf"))
    assert certificate.lower <= optimum + ORACLE * (1 + abs(optimum))
    # Without a start nothing can be decided.
    assert not bool(certificate.inside.any() | certificate.outside.any())


@given(problems(), st.integers(0, 1000))
@examples(8)
def test_the_proof_for_a_later_answer_is_at_least_as_strong(case, seed):
    problem, source, nodes = case
    inst = pose(problem, source, GridSpec(nodes=nodes, device="cpu").build())
    generator = torch.Generator().manual_seed(seed)
    Z = torch.randn(inst.source.matrix.shape[1], inst.source.outputs, generator=generator, dtype=torch.float64)
    optimum, certifier = best_objective(problem, source), Certifier(inst, 0)
    first, later = (certifier.certify(point, 2 * abs(optimum) + 1).lower for point in (Z, torch.zeros_like(Z)))
    assert later <= optimum + ORACLE * (1 + abs(optimum))
    if not inst.problem.loss.smooth or inst.problem.loss.joint:
        assert later >= first


@given(problems())
@examples(20)
def test_exact_mode_finds_and_proves_the_optimum(case):
    problem, source, nodes = case
    optimum = best_objective(problem, source)
    solver = BiCADMM(effort="low", exact=True, gap_tol=1e-6, max_iter=30, time_limit=60)
    result = solve(problem, source, solver, GridSpec(nodes=nodes, device="cpu"))
    # With hardly any ridge, rounding alone can leave a larger gap.
    weak = problem.gamma >= 1e6
    assert result.status in (Status.PROVED, Status.TIME_LIMIT) or (weak and result.status is Status.ROUNDING)
    assert result.lower_bound <= optimum + ORACLE * (1 + abs(optimum))
    if result.status is Status.PROVED:
        assert result.objective <= optimum + 2e-6 * abs(optimum) + ORACLE * (1 + abs(optimum))
        assert result.gap <= 1e-6
