"""The bound of a root is close to the optimum of the perspective relaxation, which a conic solver finds."""

import clarabel
import numpy as np
import pytest
import torch
from posed import posed, zero
from scipy import sparse

from psfit.certificate import joint_nodes, joint_relaxation
from psfit.certificate.choose import choose_relaxation
from psfit.certificate.dense_slopes import DenseSlopes
from psfit.certificate.dual import dual_bound
from psfit.certificate.joint_models import BlockModel
from psfit.certificate.joint_nodes import JointNewtonRelaxation
from psfit.certificate.joint_relaxation import JointRelaxation
from psfit.certificate.kink_relaxation import KinkRelaxation
from psfit.certificate.wide_slopes import find_wide_slopes
from psfit.losses import Hinge, Logistic, Softmax, SquaredHinge
from psfit.pipeline.proofs import fit_supports


class Conic:
    """A conic program in named blocks of variables: rows ``b - A v`` lie in cones."""

    def __init__(self, **sizes):
        ends = np.cumsum([0, *(int(np.prod(size)) for size in sizes.values())])
        self.count = int(ends[-1])
        starts = zip(sizes.items(), ends, strict=False)
        self.at = {name: start + np.arange(np.prod(size)).reshape(size) for (name, size), start in starts}
        self.rows, self.right, self.cones = [], [], []

    def add(self, terms, right, cone):
        """Rows ``right - sum of coefficient * variable`` in a cone; terms are lists of (variable, coefficient)."""
        for row, value in zip(terms, right, strict=True):
            line = np.zeros(self.count)
            for variable, coefficient in row:
                line[variable] += coefficient
            self.rows.append(line)
            self.right.append(value)
        self.cones.append(cone)

    def minimise(self, cost):
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        A, P = sparse.csc_matrix(np.array(self.rows)), sparse.csc_matrix((self.count, self.count))
        return clarabel.DefaultSolver(P, cost, A, np.array(self.right), self.cones, settings).solve().obj_val


def conic_optimum(inst):
    """The optimum of the perspective relaxation of a hinge or softmax problem in the instance's own coordinates."""
    source, p, c = inst.source, inst.items.features, inst.source.outputs
    A, b = source.matrix.chunk(0, source.matrix.shape[0], torch.float64).numpy(), source.target.numpy()
    weight, ridge = source.weight[:, 0].numpy(), inst.ridge[:p, 0].numpy()
    (m, n), items = A.shape, inst.items.size
    program = Conic(Z=(n, c), pay=(items,), share=(items,), loss=(m,), part=(m, c))
    at, soft = program.at, inst.problem.loss.joint
    members = [at["Z"][j] for j in range(p)] if items == p else [[v] for v in at["Z"][:p].flatten()]
    ridges = ridge if items == p else np.repeat(ridge, c)
    for j, variables in enumerate(members):
        # |x|^2 <= pay share.
        t, s = at["pay"][j], at["share"][j]
        rows = [[(t, -1), (s, -1)], [(t, -1), (s, 1)], *([(v, -2)] for v in variables)]
        program.add(rows, np.zeros(len(rows)), clarabel.SecondOrderConeT(len(rows)))
        program.add([[(s, 1)], [(s, -1)]], [1, 0], clarabel.NonnegativeConeT(2))
    program.add([[(s, 1) for s in at["share"]]], [inst.problem.kappa[0]], clarabel.NonnegativeConeT(1))
    for i in range(m):
        eta = [[(at["Z"][j, k], A[i, j]) for j in range(n)] for k in range(c)]
        loss = at["loss"][i]
        if not soft:
            rows = [[(loss, -1), *((v, -b[i, 0] * a) for v, a in eta[0])], [(loss, -1)]]
            program.add(rows, [-1, 0], clarabel.NonnegativeConeT(2))
            continue
        label = int(b[i].argmax())
        for k in range(c):
            # exp(eta_k - eta_label - loss) <= part_k, and the parts add up to at most one.
            rows = [[*((v, -a) for v, a in eta[k]), *eta[label], (loss, 1)], [], [(at["part"][i, k], -1)]]
            program.add(rows, [0, 1, 0], clarabel.ExponentialConeT())
        program.add([[(v, 1) for v in at["part"][i]]], [1], clarabel.NonnegativeConeT(1))
    cost = np.zeros(program.count)
    cost[at["pay"]], cost[at["loss"]] = ridges / 2, weight
    return program.minimise(cost)


@pytest.mark.parametrize(
    ("loss", "sparsity", "gamma", "kind"),
    [
        (Hinge(), "element", 0.1, KinkRelaxation),
        (Hinge(), "element", 100.0, KinkRelaxation),
        (Softmax(), "element", 1.0, JointNewtonRelaxation),
        (Softmax(), "feature", 100.0, JointNewtonRelaxation),
    ],
)
def test_the_bound_is_that_of_the_perspective(loss, sparsity, gamma, kind):
    weight = 1.0 + torch.arange(40).remainder(3).unsqueeze(1)
    inst = posed(loss, 2, sparsity=sparsity, gamma=gamma, samples=40, features=6, weight=weight)
    relaxation, steps = choose_relaxation(inst)
    assert type(relaxation) is kind
    lower = float(relaxation.bound(relaxation.root, relaxation.start(zero(inst)), float("inf"), steps).lower)
    optimum = conic_optimum(inst)
    assert optimum * (1 - 2e-4) <= lower <= optimum * (1 + 1e-6)


@pytest.mark.parametrize("full", [True, False], ids=["all second derivatives", "blocks"])
@pytest.mark.parametrize(("sparsity", "gamma"), [("element", 1.0), ("element", 100.0), ("feature", 100.0)])
def test_one_node_at_a_time_proves_the_same(sparsity, gamma, full, monkeypatch):
    monkeypatch.setattr(joint_nodes, "MOST_VARIABLES", 0)
    monkeypatch.setitem(joint_relaxation.MOST_VARIABLES, "cpu", 1024 if full else 0)
    weight = 1.0 + torch.arange(40).remainder(3).unsqueeze(1)
    inst = posed(Softmax(), 2, sparsity=sparsity, gamma=gamma, samples=40, features=6, weight=weight)
    relaxation, steps = choose_relaxation(inst)
    assert type(relaxation) is JointRelaxation
    assert relaxation.full == full
    lower = float(relaxation.bound(relaxation.root, relaxation.start(zero(inst)), float("inf"), steps).lower)
    optimum = conic_optimum(inst)
    assert optimum * (1 - 2e-4) <= lower <= optimum * (1 + 1e-6)


def test_a_model_of_blocks_is_solved_with_its_penalty():
    generator = torch.Generator().manual_seed(0)
    roots = torch.randn(3, 30, 7, dtype=torch.float64, generator=generator)
    penalty = torch.full((7,), 5.0, dtype=torch.float64)
    blocks = roots.transpose(1, 2) @ roots
    model, R = BlockModel(blocks, penalty), torch.randn(7, 3, dtype=torch.float64, generator=generator)
    # The same form, with the common shift as a further variable.
    wide = torch.block_diag(*blocks)
    among = torch.cat([blocks[k] for k in range(3)], dim=1)
    wide = wide - among.T @ torch.linalg.solve(blocks.sum(dim=0), among)
    expected = torch.linalg.solve(wide + 5.0 * torch.eye(21, dtype=torch.float64), R.T.flatten()).view(3, 7).T
    assert torch.allclose(model.solve(model.parts, R), expected)
    assert torch.allclose(model.apply(R), (wide @ R.T.flatten()).view(3, 7).T)


@pytest.mark.parametrize("loss", [Hinge(), Softmax()], ids=["hinge", "softmax"])
def test_an_unsolved_relaxation_proves_at_least_the_dense_optimum(loss):
    inst = posed(loss, 2, gamma=1e4, samples=30, features=20)
    relaxation, _ = choose_relaxation(inst)
    poor = relaxation.bound(relaxation.root, relaxation.start(zero(inst)), float("inf"), 1)
    fit = fit_supports(inst, 0, zero(inst))
    dense = fit(torch.ones(inst.items.size, dtype=torch.bool))[0]
    assert float(poor.lower) < dense * (1 - 1e-4)
    better = DenseSlopes(inst, fit).improve(poor, relaxation.root, float("inf"))
    assert dense * (1 - 1e-6) <= float(better.lower)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge(), Logistic()], ids=["hinge", "squared hinge", "logistic"])
def test_slopes_of_wide_data_prove_at_least_the_dense_optimum(loss, intercept):
    inst = posed(loss, 2, gamma=10.0, samples=24, features=150, fit_intercept=intercept)
    dense = fit_supports(inst, 0, zero(inst))(torch.ones(inst.items.size, dtype=torch.bool))[0]
    lower = float(dual_bound(inst, find_wide_slopes(inst), inst.domain)[0])
    assert dense * (1 - 2e-4) <= lower
