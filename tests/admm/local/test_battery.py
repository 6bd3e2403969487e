"""One battery for every local solver: its answer is the prox, for every loss and grid."""

from functools import lru_cache
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from oracles import local_prox, loss_gradient, loss_value, random_targets

from psfit.admm.local import Direct, FeatureSplit, Majoriser, Newton, Subproblem, choose
from psfit.admm.local.ridge import GramFactor, WoodburyFactor, ridge_factor
from psfit.comm import Axis, Serial
from psfit.data import Affine, Dense, Source
from psfit.losses import Hinge, Huber, Logistic, Poisson, Softmax, Squared, SquaredHinge

LOSSES = [Squared(), Huber(), Logistic(), Softmax(), Hinge(), SquaredHinge(), Poisson()]
SOLVERS = [Direct(), Majoriser(steps=1000), Newton(), FeatureSplit(max_inner=20_000)]
PAIRS = [
    pytest.param(solver, loss, blocks, id=f"{solver.name}-{loss.name}-M{blocks}")
    for solver in SOLVERS
    for loss in LOSSES
    for blocks in (1, 2, 3, 5)
    if solver.objection(loss, blocks) is None
]
SOME_PAIRS = [pair for pair in PAIRS if pair.values[2] in (1, 3)]
# Uneven on purpose. The last block takes the intercept too; for M = 5 it has nothing else, and without
# an intercept nothing at all, as happens when there are more blocks than features.
WIDTHS = {1: (7,), 2: (2, 5), 3: (1, 4, 2), 5: (1, 1, 2, 3, 0)}
BOUNDS = {"tall": {1: (0, 24), 3: (0, 4, 15, 24)}, "wide": {1: (0, 6), 3: (0, 2, 7, 10)}}
EXACT = 3e-9


def tensor(values, dtype=torch.float64) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


@lru_cache
def pose(loss, nodes: int, intercept: bool, shape: str = "tall") -> SimpleNamespace:
    """A subproblem's numbers, and the reference prox of every node."""
    rng = np.random.default_rng(11)
    bounds, features, outputs = BOUNDS[shape][nodes], 7, 3 if loss.joint else 2
    design = 0.5 * rng.normal(size=(bounds[-1], features))
    base, shift, scale = design, np.zeros(features), np.ones(features)
    if intercept:
        shift, scale = rng.normal(size=features), rng.uniform(0.5, 2, size=features)
        base = design * scale + shift
        design = np.hstack([design, np.ones((len(design), 1))])
    target = random_targets(loss, len(design), outputs, rng)
    sample = rng.uniform(0.3, 2, size=(len(design), 1))
    sample[1] = 0
    n = design.shape[1]
    weight, v = rng.uniform(0.5, 2, size=(n, 1)), 0.5 * rng.normal(size=(nodes, n, outputs))
    # The intercept pays no ridge, so its own weight is smaller than the others'.
    weight[features:] = 0.4
    reference = [
        local_prox(loss, design[a:b], target[a:b], sample[a:b], weight, v[i])
        for i, (a, b) in enumerate(pairwise(bounds))
    ]
    return SimpleNamespace(
        loss=loss,
        nodes=nodes,
        intercept=intercept,
        bounds=bounds,
        outputs=outputs,
        n=n,
        base=base,
        shift=shift,
        scale=scale,
        design=design,
        target=target,
        sample=sample,
        weight=weight,
        v=v,
        reference=reference,
    )


def subproblem(posed: SimpleNamespace, blocks: int, dtype=torch.float64) -> Subproblem:
    matrix = Dense(tensor(posed.base, dtype))
    if posed.intercept:
        matrix = Affine(matrix, tensor(posed.shift), tensor(posed.scale), constant=1.0)
    source = Source(matrix, tensor(posed.target, dtype), tensor(posed.sample, dtype), posed.bounds)
    ends = np.cumsum((0, *WIDTHS[blocks]))
    ends[-1] = posed.n
    # Half the loss's curvature: a penalty at which the inner iteration is quick on these data.
    rho_l = 0.5 * blocks * posed.loss.typical_curvature(2.0, posed.outputs)
    return Subproblem(
        loss=posed.loss,
        split=source.split(posed.nodes),
        weight=tensor(posed.weight, dtype),
        blocks=tuple(slice(int(a), int(b)) for a, b in pairwise(ends)),
        axis=Axis(blocks, Serial()),
        rho_l=rho_l,
    )


def start(solver, posed: SimpleNamespace, sub: Subproblem):
    return solver.init(sub, torch.zeros(posed.v.shape, dtype=sub.weight.dtype))


# One block meets every number of nodes, with and without an intercept; several blocks meet each once.
EVERY = [(nodes, intercept) for nodes in (1, 3) for intercept in ("plain", "intercept")]
CORNERS = {1: EVERY, 2: [(3, "intercept")], 3: [(3, "intercept"), (1, "plain")], 5: [(3, "plain"), (1, "intercept")]}


@pytest.mark.parametrize(
    ("solver", "loss", "blocks", "nodes", "intercept"),
    [
        pytest.param(*pair.values, nodes, intercept == "intercept", id=f"{pair.id}-N{nodes}-{intercept}")
        for pair in PAIRS
        for nodes, intercept in CORNERS[pair.values[2]]
    ],
)
def test_prox_is_the_reference(solver, loss, blocks, nodes, intercept):
    posed = pose(loss, nodes, intercept)
    sub = subproblem(posed, blocks)
    x = solver.prox(sub, start(solver, posed, sub), tensor(posed.v), EXACT).x
    np.testing.assert_allclose(x, posed.reference, atol=1e-6)


@pytest.mark.parametrize(("solver", "loss", "blocks"), SOME_PAIRS)
@pytest.mark.parametrize("nodes", [1, 3], ids=["N1", "N3"])
def test_prox_of_nodes_with_fewer_rows_than_columns(solver, loss, blocks, nodes):
    posed = pose(loss, nodes, True, "wide")
    sub = subproblem(posed, blocks)
    x = solver.prox(sub, start(solver, posed, sub), tensor(posed.v), EXACT).x
    np.testing.assert_allclose(x, posed.reference, atol=1e-6)


@pytest.mark.parametrize(("solver", "loss", "blocks"), SOME_PAIRS)
def test_float32(solver, loss, blocks):
    posed = pose(loss, 3, True)
    sub = subproblem(posed, blocks, torch.float32)
    x = solver.prox(sub, start(solver, posed, sub), tensor(posed.v, torch.float32), 1e-5).x
    assert x.dtype == torch.float32
    np.testing.assert_allclose(x, posed.reference, atol=2e-3)


@pytest.mark.parametrize(("solver", "loss", "blocks"), SOME_PAIRS)
def test_a_second_call_stays(solver, loss, blocks):
    posed = pose(loss, 3, True)
    sub, v = subproblem(posed, blocks), tensor(posed.v)
    cold = start(solver, posed, sub)
    first = solver.prox(sub, cold, v, EXACT)
    kept = first.x.clone()
    second = solver.prox(sub, first, v, EXACT)
    torch.testing.assert_close(second.x, kept, rtol=0, atol=1e-7)
    # States are passed and returned, never written into.
    torch.testing.assert_close(first.x, kept, rtol=0, atol=0)
    assert (cold.x == 0).all()


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_feature_split_warm_start_carries_everything(loss):
    posed = pose(loss, 3, True)
    sub, v, single = subproblem(posed, 3), tensor(posed.v), FeatureSplit(max_inner=1)
    cold = start(single, posed, sub)
    converged = FeatureSplit(max_inner=20_000).prox(sub, cold, v, EXACT)
    # One step from the whole state stays where it is; the same x with the rest forgotten does not.
    torch.testing.assert_close(single.prox(sub, converged, v, EXACT).x, converged.x, atol=1e-7, rtol=0)
    forgotten = single.prox(sub, single.init(sub, converged.x), v, EXACT).x
    assert (forgotten - converged.x).abs().max() > 1e-3


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_feature_split_accuracy_follows_tol(loss):
    posed = pose(loss, 3, True)
    sub, solver = subproblem(posed, 3), FeatureSplit(max_inner=20_000)
    errors = []
    for tol in (1e-1, 1e-3, torch.tensor(1e-5)):
        x = solver.prox(sub, start(solver, posed, sub), tensor(posed.v), tol).x
        errors.append(np.linalg.norm(x.numpy() - np.stack(posed.reference)) / float(tol))
    assert max(errors) < 20
    # A loose call must also stop early, or the tolerance would mean nothing.
    assert errors[0] * 1e-1 > 1e-5


def test_max_inner_ends_the_iteration():
    posed = pose(Logistic(), 1, False)
    sub, v = subproblem(posed, 3), tensor(posed.v)
    state = start(FeatureSplit(), posed, sub)
    for _ in range(4):
        state = FeatureSplit(max_inner=1).prox(sub, state, v, 0.0)
    four = FeatureSplit(max_inner=4)
    x = four.prox(sub, start(four, posed, sub), v, 0.0).x
    torch.testing.assert_close(x, state.x, rtol=1e-13, atol=1e-13)


BOUNDED = [loss for loss in LOSSES if loss.most_curvature is not None]


@pytest.mark.parametrize("shape", ["tall", "wide"])
@pytest.mark.parametrize("loss", BOUNDED, ids=lambda loss: loss.name)
def test_a_step_of_the_majoriser_minimises_its_bound(loss, shape):
    posed = pose(loss, 3, True, shape)
    sub, rng = subproblem(posed, 1), np.random.default_rng(4)
    x = rng.normal(size=posed.v.shape)
    found = Majoriser().prox(sub, Majoriser().init(sub, tensor(x)), tensor(posed.v), 0.0).x.numpy()
    c = posed.outputs
    # The bound of softmax holds between the outputs too: half of the identity less the mean over the outputs.
    M = loss.most_curvature * (np.eye(c) - np.ones((c, c)) / c if loss.joint else np.eye(c))
    for i, (a, b) in enumerate(pairwise(posed.bounds)):
        A, D = posed.design[a:b], posed.sample[a:b]
        slope = A.T @ (D * loss_gradient(loss, A @ x[i], posed.target[a:b])) + posed.weight * (x[i] - posed.v[i])
        H = np.kron(A.T @ (D * A), M) + np.kron(np.diag(posed.weight[:, 0]), np.eye(c))
        np.testing.assert_allclose(found[i], x[i] - np.linalg.solve(H, slope.ravel()).reshape(x[i].shape), atol=1e-10)


@pytest.mark.parametrize("shape", ["tall", "wide"])
@pytest.mark.parametrize("loss", BOUNDED, ids=lambda loss: loss.name)
def test_the_objective_falls_with_each_step_of_the_majoriser(loss, shape):
    posed = pose(loss, 1, True, shape)
    sub, v = subproblem(posed, 1), posed.v[0]
    # Far from the minimum, where the slopes say little.
    state = Majoriser().init(sub, tensor(30 * np.random.default_rng(5).normal(size=posed.v.shape)))
    values = []
    for _ in range(30):
        x = state.x[0].numpy()
        fit = (posed.sample * loss_value(loss, posed.design @ x, posed.target)).sum()
        values.append(fit + 0.5 * (posed.weight * (x - v) ** 2).sum())
        state = Majoriser().prox(sub, state, tensor(posed.v), 0.0)
    assert (np.diff(values) <= 1e-12 * values[0]).all()
    assert values[-1] < 0.5 * values[0]


@pytest.mark.parametrize("shape", ["tall", "wide"])
@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("sigma", [0.3, 2.0])
def test_gram_and_woodbury_are_the_same_inverse(shape, nodes, sigma):
    posed = pose(Squared(), nodes, True, shape)
    sub = subproblem(posed, 1)
    rhs = np.random.default_rng(0).normal(size=posed.v.shape)
    expected = []
    for i, (a, b) in enumerate(pairwise(posed.bounds)):
        A, D = posed.design[a:b], posed.sample[a:b]
        H = np.diag(posed.weight[:, 0]) + sigma * A.T @ (D * A)
        expected.append(np.linalg.solve(H, rhs[i]))
    for form in (GramFactor, WoodburyFactor):
        actual = form(sub.split, sub.weight, sigma).solve(tensor(rhs))
        np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-12)
    chosen = {"tall": GramFactor, "wide": WoodburyFactor}[shape]
    assert isinstance(ridge_factor(sub.split, sub.weight, sigma), chosen)


def test_newton_converges_where_the_curvature_misleads():
    # Far from the minimum a sharp Huber loss has no curvature; with a small weight steps go in a wrong direction.
    rng, loss, sample = np.random.default_rng(0), Huber(0.1), np.ones((24, 1))
    A, weight, v = rng.normal(size=(24, 7)), np.full((7, 1), 0.05), np.zeros((1, 7, 30))
    b = A @ (2 * rng.normal(size=(7, 30))) + 2 * rng.standard_t(2, size=(24, 30))
    source = Source(Dense(tensor(A)), tensor(b), tensor(sample))
    sub = Subproblem(loss, source.split(1), tensor(weight), (slice(0, 7),), Axis(1, Serial()), 1.0)
    x = Newton().prox(sub, Newton().init(sub, tensor(v)), tensor(v), EXACT).x[0].numpy()
    expected = [local_prox(loss, A, b[:, [k]], sample, weight, v[0, :, [k]].T) for k in range(30)]
    np.testing.assert_allclose(x, np.hstack(expected), atol=1e-6)


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.name)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("blocks", [1, 4])
def test_objections_are_sentences(solver, loss, blocks):
    objection = solver.objection(loss, blocks)
    able = {
        "direct": loss.name == "squared" and blocks == 1,
        "majoriser": loss.name not in ("hinge", "poisson") and blocks == 1,
        "newton": loss.name != "hinge" and blocks == 1,
        "feature_split": True,
    }
    assert (objection is None) == able[solver.name]
    if objection is not None:
        # It names the obstacle, and a solver that would work.
        assert loss.name in objection or "4 blocks" in objection
        assert "use 'feature_split'" in objection
        assert len(objection.split()) > 6


@pytest.mark.parametrize(
    ("loss", "features", "outputs", "blocks", "expected"),
    [
        (Squared(), 5, 1, 1, "direct"),
        (Squared(), 5000, 3, 1, "direct"),
        (Squared(), 5, 1, 2, "feature_split"),
        (Logistic(), 64, 9, 1, "majoriser"),
        (Softmax(), 5000, 3, 1, "majoriser"),
        (Huber(), 5, 1, 1, "majoriser"),
        (SquaredHinge(), 5, 1, 2, "feature_split"),
        (Poisson(), 64, 9, 1, "newton"),
        (Poisson(), 65, 1, 1, "feature_split"),
        (Poisson(), 10, 1, 2, "feature_split"),
        (Hinge(), 5, 1, 1, "feature_split"),
    ],
)
def test_choose_follows_its_table(loss, features, outputs, blocks, expected):
    assert choose(None, loss, features, outputs, blocks).name == expected


def test_choose_takes_what_is_asked_for():
    assert choose("newton", Squared(), 1000, 1, 1) == Newton()
    assert choose("direct", Squared(), 5, 1, 1) == Direct()
    assert choose("feature_split", Logistic(), 5, 1, 3) == FeatureSplit()
    mine = FeatureSplit(max_inner=3)
    assert choose(mine, Logistic(), 5, 1, 1) is mine


@pytest.mark.parametrize(
    ("asked", "loss", "blocks", "word"),
    [
        ("direct", Logistic(), 1, "logistic"),
        ("direct", Squared(), 2, "2 blocks"),
        ("majoriser", Poisson(), 1, "poisson"),
        ("newton", Hinge(), 1, "hinge"),
        (Newton(), Logistic(), 3, "3 blocks"),
    ],
)
def test_choose_refuses_and_says_why(asked, loss, blocks, word):
    with pytest.raises(ValueError, match=rf"^local=.*{word}"):
        choose(asked, loss, 5, 1, blocks)
