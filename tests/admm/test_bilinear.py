"""The bilinear step against quadratic and cone programs, and the facts that the design uses."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from oracles import row_step, s_step, zt_step
from scipy.optimize import minimize

from psfit.admm.bilinear import BilinearState, bilinear_start, bilinear_step, restricted_step, threshold
from psfit.problem import Domain, EntryItems, Items, OutputItems, RowItems, largest
from psfit.problem.box import CoefficientBox

GAP = 1e-7  # of the programs' objectives; ours is exact


def tensor(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def state(s, v, items: Items) -> BilinearState:
    """A state from which only `s` and `v` are read."""
    v = tensor(v).reshape(-1, 1)
    z = torch.full((items.features + items.free, items.outputs), torch.nan, dtype=torch.float64)
    return BilinearState(z, tensor(np.atleast_2d(s)), v * torch.nan, v, v * torch.nan)


def step(c, s, v, kappa, ratio, items: Items) -> BilinearState:
    kappa, ratio = torch.tensor(kappa).reshape(-1, 1), tensor(ratio).reshape(-1, 1)
    return bilinear_step(state(s, v, items), tensor(c), kappa, ratio, items)


def check_against_programs(c, s, v, kappa, node_rho, rho_b, out: BilinearState, z) -> None:
    """Each of the three updates of one problem in turn; `z` is the packed answer."""
    t, s_new = out.t.item(), out.s[0].numpy()

    def objective(z, t):
        return node_rho / 2 * ((z - c) ** 2).sum() + rho_b / 2 * (s @ z - t + v) ** 2

    scale = 1 + np.abs(c).sum() + abs(v)
    assert np.abs(z).sum() <= t + 1e-14 * scale
    assert objective(z, t) <= objective(*zt_step(c, s, v, node_rho, rho_b)) + GAP * scale
    check_s_and_v(z, t, s_new, v, kappa, out)


def check_s_and_v(z, t, s, v, kappa, out: BilinearState) -> None:
    assert np.abs(s).max() <= 1
    assert np.abs(s).sum() <= kappa
    assert (s @ z - t + v) ** 2 <= s_step(z, t, v, kappa) + GAP
    assert out.v.item() == pytest.approx(v + s @ z - t, abs=1e-12)
    assert out.residual.item() == pytest.approx(abs(s @ z - t), abs=1e-12)


SIGNS = np.array([1.0, -1, 1, 1, -1, 1])
MIXED = np.array([0.9, -2.0, 0.4, 1.3, -0.1, 0.0])
HALF = np.array([1.0, 0, 0, 1, -1, 0])
EDGES = {  # center, s, v, kappa
    "zero center": (np.zeros(6), 0.5 * SIGNS, -0.4, 2),
    "zero center, positive v": (np.zeros(6), 0.5 * SIGNS, 0.4, 2),
    "all tied": (1.5 * SIGNS, np.zeros(6), 0.0, 3),
    "tied kinks": (np.array([2.0, -2, 1, -1, 1, 2]), HALF, -0.5, 2),
    "kappa = n": (MIXED, HALF, 0.0, 6),
    "kappa = n, no weight": (MIXED, np.sign(MIXED), 0.0, 6),
    "negative v": (MIXED, HALF, -3.0, 2),
    "v so negative that all vanishes": (MIXED, np.zeros(6), -60.0, 2),
    "small positive v": (MIXED, HALF, 0.5, 2),
    "large positive v": (MIXED, HALF, 30.0, 2),
    "all w = 0": (MIXED, np.sign(MIXED), -1.0, 2),
    "all w = 2": (MIXED, -np.sign(MIXED), -1.0, 2),
    "w of 0, 1 and 2": (MIXED, np.array([1.0, 1, 0, 1, -1, 1]), 0.2, 3),
    "fractions": (MIXED, np.array([0.3, -0.7, -0.2, 0.9, 1.0, -0.5]), -0.2, 2),
    "one entry": (np.array([1.2]), np.array([0.25]), -0.3, 1),
}


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize(("node_rho", "rho_b"), [(1.0, 0.3), (0.2, 5.0)])
def test_edge_cases(name, node_rho, rho_b):
    c, s, v, kappa = EDGES[name]
    out = step(c[:, None], s, v, kappa, rho_b / node_rho, OutputItems(len(c), 1, 0))
    check_against_programs(c, s, v, kappa, node_rho, rho_b, out, out.z[:, 0].numpy())


@pytest.mark.parametrize("seed", range(40))
def test_random_instances(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 15))
    c, s, v = 2 * rng.normal(size=n), rng.uniform(-1, 1, size=n), 2 * rng.normal()
    kappa, (node_rho, rho_b) = int(rng.integers(1, n + 1)), 10 ** rng.uniform(-1, 1, size=2)
    out = step(c[:, None], s, v, kappa, rho_b / node_rho, OutputItems(n, 1, 0))
    check_against_programs(c, s, v, kappa, node_rho, rho_b, out, out.z[:, 0].numpy())


def test_no_pressure_when_v_exceeds_h():
    c, s, v, kappa = EDGES["large positive v"]
    out = step(c[:, None], s, v, kappa, 0.3, OutputItems(6, 1, 0))
    np.testing.assert_array_equal(out.z[:, 0], c)
    assert out.t.item() == pytest.approx(s @ c + v)
    # s'z = t - v is then within reach of the old s, so nothing is left to correct.
    assert out.v.item() == pytest.approx(0, abs=1e-12)


def test_several_problems_are_one_at_a_time():
    rng = np.random.default_rng(1)
    n, problems = 9, 5
    c, s = rng.normal(size=(n, problems)), rng.uniform(-1, 1, size=(problems, n))
    v, kappa = rng.normal(size=problems), np.array([1, 3, 5, 9, 2])
    ratio = 10 ** rng.uniform(-1, 1, size=problems)
    together = step(c, s, v, kappa, ratio, OutputItems(n, problems, 0))
    for k in range(problems):
        alone = step(c[:, [k]], s[k], v[k], kappa[k], ratio[k], OutputItems(n, 1, 0))
        torch.testing.assert_close(together.z[:, [k]], alone.z, rtol=1e-14, atol=1e-14)
        for field in ("s", "t", "v", "residual"):
            mine, its = getattr(together, field)[[k]], getattr(alone, field)
            torch.testing.assert_close(mine, its, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("kind", [OutputItems, EntryItems, RowItems])
def test_free_rows_pass_through(kind):
    rng = np.random.default_rng(2)
    bound, free = kind(6, 3, 0), kind(6, 3, 1)
    c, s = rng.normal(size=(7, 3)), rng.uniform(0, 1, size=(bound.problems, bound.size))
    v, kappa = np.full(bound.problems, -1.0), [2] * bound.problems
    ratio = [0.7] * bound.problems
    with_row, without = step(c, s, v, kappa, ratio, free), step(c[:6], s, v, kappa, ratio, bound)
    np.testing.assert_array_equal(with_row.z[6], c[6])
    for name, mine in vars(without).items():
        its = getattr(with_row, name)
        torch.testing.assert_close(its[:6] if name == "z" else its, mine, rtol=0, atol=0)


@pytest.mark.parametrize("seed", range(5))
def test_entries_are_one_problem(seed):
    rng = np.random.default_rng(seed)
    C, s, v = rng.normal(size=(4, 3)), rng.uniform(-1, 1, size=12), rng.normal()
    out = step(C, s, v, 5, 0.8 / 1.5, EntryItems(4, 3, 0))
    z = out.z.numpy()
    # Item number j of the table is the coefficient (j // 3, j % 3).
    packed = np.array([z[j // 3, j % 3] for j in range(12)])
    check_against_programs(C.reshape(-1), s, v, 5, 1.5, 0.8, out, packed)


@pytest.mark.parametrize("seed", range(8))
def test_rows_are_a_cone_program(seed):
    rng = np.random.default_rng(seed)
    C, s, v = rng.normal(size=(6, 3)), rng.uniform(0, 1, size=6), rng.normal()
    C[0], s[1], s[2] = 0.0, 0.0, 1.0
    out = step(C, s, v, 2, 0.8 / 1.5, RowItems(6, 3, 0))
    np.testing.assert_allclose(out.z, row_step(C, s, v, 1.5, 0.8), atol=1e-5)
    norms = np.linalg.norm(out.z, axis=1)
    # Over t >= sum of norms, (s'z - t + v)^2 vanishes if it can and is least at the bound if not.
    assert out.t.item() == pytest.approx(max(norms.sum(), s @ norms + v))
    check_s_and_v(norms, out.t.item(), out.s[0].numpy(), v, 2, out)


def test_float32_agrees():
    rng = np.random.default_rng(3)
    items = OutputItems(50, 2, 1)
    start = bilinear_start(tensor(rng.normal(size=(51, 2))), torch.tensor([[5], [9]]), items)
    narrow = BilinearState(*(field.float() for field in vars(start).values()))
    kappa, ratio = torch.tensor([[5], [9]]), torch.tensor([[0.5], [0.1]], dtype=torch.float64)
    for _ in range(5):
        c = tensor(rng.normal(size=(51, 2)))
        start = bilinear_step(start, c, kappa, ratio, items)
        narrow = bilinear_step(narrow, c.float(), kappa, ratio.float(), items)
    for wide, its in zip(vars(start).values(), vars(narrow).values(), strict=True):
        assert its.dtype == torch.float32
        torch.testing.assert_close(its.double(), wide, rtol=1e-5, atol=1e-5)


def test_start_has_no_pressure():
    z = tensor([[3.0, 0.0], [-1.0, 2.0], [0.5, -2.5], [7.0, 7.0]])
    out = bilinear_start(z, torch.tensor([[1], [2]]), OutputItems(3, 2, 1))
    np.testing.assert_array_equal(out.s, [[1, 0, 0], [0, 1, -1]])
    np.testing.assert_array_equal(out.t, [[4.5], [4.5]])
    np.testing.assert_array_equal(out.v, [[0], [0]])
    torch.testing.assert_close(out.z, z, rtol=0, atol=0)


def test_largest_breaks_ties_by_index():
    packed = tensor([[1.0, -3, 3, 1, -1], [0, 0, 0, 0, 0], [5, 4, -3, 2, 1]])
    mask = largest(packed, torch.tensor([[3], [2], [5]]))
    expected = [[1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 1, 1]]
    np.testing.assert_array_equal(mask, np.array(expected, dtype=bool))


# Subnormal numbers are zero on some processors, and nothing depends on them.
floats = partial(st.floats, allow_subnormal=False)
numbers = floats(-10, 10)
quick = settings(max_examples=80, deadline=None, derandomize=True)


@quick
@given(st.data(), st.integers(1, 9), floats(0.01, 100))
def test_from_v_zero_pressure_only_grows(data, n, ratio):
    kappa = data.draw(st.integers(1, n))
    items, limit = OutputItems(n, 1, 0), torch.tensor([[kappa]])
    means = data.draw(st.lists(arrays(float, (n, 1), elements=numbers), min_size=2, max_size=6))
    now = bilinear_start(tensor(means[0]), limit, items)
    for mean in means[1:]:
        old, now = now, bilinear_step(now, tensor(mean), limit, tensor([[ratio]]), items)
        z, s = now.z[:, 0].numpy(), now.s[0].numpy()
        rounding = 1e-13 * (1 + np.abs(mean).sum() + abs(old.v.item()))
        assert set(np.abs(s)) <= {0.0, 1.0}, "s was scaled back, so it had overshot"
        assert now.t.item() == pytest.approx(np.abs(z).sum(), abs=rounding)
        assert now.v.item() <= old.v.item() + rounding
        trimmed = np.sort(np.abs(z))[: n - kappa].sum()
        assert now.residual.item() == pytest.approx(trimmed, abs=rounding)


@quick
@given(st.data(), st.integers(1, 8), numbers, floats(0.01, 100))
def test_threshold_solves_its_equation(data, n, v, ratio):
    a = data.draw(arrays(float, n, elements=floats(0, 10)))
    # w = 1 - s sign(c) with s in [-1, 1]: zero, or at least half a unit of rounding.
    w = 1 - data.draw(arrays(float, n, elements=floats(-1, 1)))
    tau = threshold(tensor(a)[None], tensor(w)[None], tensor([[v]]), tensor([[ratio]])).item()
    h = (w * np.maximum(a - tau * w, 0)).sum()
    # The map falls in tau with slope at least -ratio ||w||^2, which scales the rounding of tau.
    steep = 1 + ratio * (w**2).sum()
    assert tau == pytest.approx(ratio * max(h - v, 0), abs=1e-13 * steep * (1 + tau + ratio * h))


def test_state_is_not_modified():
    items = OutputItems(6, 1, 0)
    before = bilinear_start(tensor(MIXED[:, None]), torch.tensor([[2]]), items)
    copy = replace(before, **{name: field.clone() for name, field in vars(before).items()})
    bilinear_step(before, tensor(-MIXED[:, None]), torch.tensor([[2]]), tensor([[0.5]]), items)
    for name, field in vars(copy).items():
        torch.testing.assert_close(getattr(before, name), field, rtol=0, atol=0)


@pytest.mark.parametrize("seed", range(12))
def test_the_step_between_bounds_is_the_minimum_in_the_box(seed):
    rng = np.random.default_rng(seed)
    size, v, ratio = 7, float(rng.normal()), float(10 ** rng.uniform(-1, 1))
    c, s = rng.normal(size=size), np.clip(rng.normal(size=size), -1, 1)
    low, high = -0.6 * np.abs(rng.normal(size=size)), 0.6 * np.abs(rng.normal(size=size))
    low[rng.random(size) < 0.4], high[rng.random(size) < 0.4] = 0.0, np.inf
    items = OutputItems(size, 1, 0)
    box = CoefficientBox(tensor(low[:, None]), tensor(high[:, None]))
    domain = replace(Domain.of(items, 2, torch.device("cpu")), box=box)
    found = restricted_step(state(s, v, items), tensor(c[:, None]), torch.tensor([[2]]), tensor([[ratio]]), domain)
    z = found.z[:, 0].numpy()
    sign, w = np.sign(c), 1 - s * np.sign(c)

    def value(y):
        excess = max(w @ y - v, 0.0)
        return 0.5 * np.square(y - np.abs(c)).sum() + 0.5 * ratio * excess**2, y - np.abs(c) + ratio * excess * w

    limits = [(0.0, high[j] if sign[j] > 0 else -low[j]) for j in range(size)]
    expected = minimize(value, np.zeros(size), jac=True, method="L-BFGS-B", bounds=limits, tol=1e-15).fun
    assert ((z >= low) & (z <= high)).all()
    assert value(np.abs(z))[0] <= expected + 1e-9


def test_items_that_are_decided_pass_through_or_stay_out():
    items = OutputItems(4, 1, 1)
    domain = Domain.of(items, 2, torch.device("cpu"))
    inside, outside = torch.tensor([[True, False, False, False]]), torch.tensor([[False, True, False, False]])
    mean = tensor(np.array([[0.3], [9.0], [2.0], [1.0], [5.0]]))
    found = restricted_step(
        state(np.zeros(4), 0.0, items), mean, torch.tensor([[2]]), tensor([[1e6]]), domain.decide(inside, outside)
    )
    assert found.z[0, 0] == 0.3
    assert found.z[1, 0] == 0
    assert found.z[4, 0] == 5
    assert (found.s != 0).sum() == 1
