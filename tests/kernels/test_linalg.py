"""Factors of singular matrices, and Newton's method against SciPy on batches of convex problems."""

import numpy as np
import pytest
import torch
from scipy import optimize, special

from psfit.kernels.linalg import cholesky, newton, solve_spd

every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])


def semidefinite(kind: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(30, 8))
    match kind:
        case "duplicate column":
            A[:, 5] = A[:, 2]
        case "fewer rows than columns":
            A = A[:3]
        case "rank one":
            A = A[:1]
        case "zero column":
            A[:, 4] = 0
        case "one huge, one tiny, one doubled":
            A *= np.logspace(-3, 3, 8)
            A[:, 0] = A[:, 1]
        case "five rows, two hundred columns":
            # The shift of the first try, eps, is too small for this many roundings.
            A = rng.normal(size=(5, 200))
        case "zero":
            A *= 0
    return A.T @ A


KINDS = ["regular", "duplicate column", "fewer rows than columns", "rank one", "zero column"]
KINDS += ["one huge, one tiny, one doubled", "five rows, two hundred columns", "zero"]


@every_dtype
@pytest.mark.parametrize("kind", KINDS)
def test_cholesky_always_exists(kind, dtype):
    H = torch.tensor(semidefinite(kind), dtype=dtype)
    L = cholesky(H)
    assert L.dtype == dtype
    assert L.isfinite().all()
    assert (L.diagonal() > 0).all()
    assert (L.triu(1) == 0).all()
    # A factor of H up to a shift near rounding of its largest entry.
    error = (L @ L.T - H).abs().max()
    assert error <= 1e3 * torch.finfo(dtype).eps * H.abs().max() + torch.finfo(dtype).tiny


@every_dtype
def test_regular_matrices_are_not_shifted(dtype):
    H = torch.tensor(semidefinite("regular"), dtype=dtype)
    np.testing.assert_array_equal(cholesky(H), torch.linalg.cholesky(H))


@every_dtype
def test_cholesky_of_a_batch_with_one_singular_member(dtype):
    batch = np.stack([semidefinite(kind) for kind in ("regular", "duplicate column", "regular")])
    H = torch.tensor(batch, dtype=dtype)
    L = cholesky(H)
    assert L.isfinite().all()
    error = (L @ L.mT - H).abs().amax()
    assert error <= 1e3 * torch.finfo(dtype).eps * H.abs().max()


def test_solve_spd():
    rng = np.random.default_rng(1)
    A = rng.normal(size=(4, 20, 6))
    H, rhs = A.swapaxes(1, 2) @ A, rng.normal(size=(4, 6, 3))
    actual = solve_spd(torch.tensor(H), torch.tensor(rhs))
    np.testing.assert_allclose(actual, np.linalg.solve(H, rhs), rtol=1e-10)


def test_solve_spd_of_a_consistent_singular_system():
    # Duplicate columns leave many solutions; any of them must reproduce the right-hand side.
    H = semidefinite("duplicate column")
    rhs = H @ np.random.default_rng(2).normal(size=(8, 2))
    x = solve_spd(torch.tensor(H), torch.tensor(rhs)).numpy()
    np.testing.assert_allclose(H @ x, rhs, rtol=1e-8, atol=1e-8)


# Newton's method ----------------------------------------------------------------------------------


class Functions:
    """A batch of ``sum_k phi(a_k'x - b_k) + ridge / 2 ||x||^2`` with phi given by three derivatives."""

    def __init__(self, phi, slope, bend, batch=5, m=20, d=4, ridge=0.1, seed=0):
        rng = np.random.default_rng(seed)
        self.phi, self.slope, self.bend, self.ridge = phi, slope, bend, ridge
        # Of unlike sizes, so that the members need different numbers of steps.
        sizes = np.logspace(-1, 0.5, batch)[:, None, None]
        self.A, self.b = sizes * rng.normal(size=(batch, m, d)), rng.normal(size=(batch, m))

    def member(self, i: int, x: np.ndarray) -> tuple[float, np.ndarray]:
        r = self.A[i] @ x - self.b[i]
        value = self.phi(r).sum() + self.ridge / 2 * x @ x
        return value, self.A[i].T @ self.slope(r) + self.ridge * x

    def value(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tensor([self.member(i, row)[0] for i, row in enumerate(x.numpy())])

    def evaluate(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        r = np.einsum("bmd,bd->bm", self.A, x.numpy()) - self.b
        gradient = np.stack([self.member(i, row)[1] for i, row in enumerate(x.numpy())])
        H = np.einsum("bmd,bm,bme->bde", self.A, self.bend(r), self.A)
        H += self.ridge * np.eye(x.shape[1])
        return self.value(x), torch.tensor(gradient), torch.tensor(H)

    def minimisers(self) -> np.ndarray:
        rows = []
        for i in range(len(self.A)):
            near = optimize.minimize(lambda x, i=i: self.member(i, x), np.zeros(4), jac=True).x
            rows.append(optimize.root(lambda x, i=i: self.member(i, x)[1], near, tol=1e-14).x)
            assert np.linalg.norm(self.member(i, rows[-1])[1]) < 1e-9
        return np.stack(rows)


def root_bend(r):
    return (1 + r**2) ** -1.5


SMOOTH = {
    "quadratic": Functions(lambda r: r**2, lambda r: 2 * r, lambda r: 0 * r + 2),
    "logistic": Functions(lambda r: np.logaddexp(0, r), special.expit, lambda r: special.expit(r) * special.expit(-r)),
    "exponential": Functions(lambda r: np.exp(r) - r, lambda r: np.exp(r) - 1, np.exp),
    # Nearly flat far out: full steps overshoot ever further, so the line search has to work.
    "root": Functions(lambda r: np.sqrt(1 + r**2), lambda r: r / np.sqrt(1 + r**2), root_bend),
    "quartic": Functions(lambda r: r**4, lambda r: 4 * r**3, lambda r: 12 * r**2),
}


@pytest.mark.parametrize("distance", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("name", SMOOTH)
def test_newton_finds_what_scipy_finds(name, distance):
    f = SMOOTH[name]
    x = distance * np.random.default_rng(3).normal(size=(5, 4))
    result = newton(f.evaluate, f.value, torch.tensor(x), tol=1e-10, max_iter=40)
    expected = f.minimisers()
    np.testing.assert_allclose(result.x, expected, atol=1e-6)
    values = [f.member(i, row)[0] for i, row in enumerate(expected)]
    np.testing.assert_allclose(result.value, values, rtol=1e-10)
    assert (result.residual <= 1e-10).all()


def test_newton_stops_at_once_at_the_minimum():
    f, calls = SMOOTH["logistic"], []

    def counted(x):
        calls.append(x)
        return f.evaluate(x)

    best = torch.tensor(f.minimisers())
    result = newton(counted, f.value, best, tol=1e-6, max_iter=50)
    assert len(calls) == 1
    np.testing.assert_array_equal(result.x, best)


def test_newton_obeys_max_iter_and_admits_it():
    f = SMOOTH["exponential"]
    x = torch.full((5, 4), 1.0, dtype=torch.float64)
    stopped = newton(f.evaluate, f.value, x, tol=1e-10, max_iter=1)
    assert stopped.residual.max() > 1e-6
    np.testing.assert_allclose(stopped.value, f.value(stopped.x))
    untouched = newton(f.evaluate, f.value, x, tol=1e-10, max_iter=0)
    np.testing.assert_array_equal(untouched.x, x)


def exponential(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``sum_j exp(x_j) - x_j``, least at zero."""
    return (x.exp() - x).sum(dim=1), x.exp() - 1, torch.diag_embed(x.exp())


@pytest.mark.parametrize("start", [-20.0, 5.0, 25.0, 100.0])
def test_newton_is_as_accurate_from_afar(start):
    # The value at the start, exp(100), must not become the unit in which the answer is judged.
    x = torch.full((1, 2), start, dtype=torch.float64)
    result = newton(exponential, lambda x: exponential(x)[0], x, tol=1e-7, max_iter=300)
    np.testing.assert_allclose(result.x, 0, atol=1e-6)


@every_dtype
def test_newton_stays_where_nothing_changes_the_value(dtype):
    # No gradient, and a Hessian that is zero or has entries too small to be normal numbers.
    flat = torch.zeros(2, 3, 3, dtype=dtype)
    flat[1] = torch.finfo(dtype).tiny / 4 * torch.eye(3, dtype=dtype)
    x = torch.arange(6, dtype=dtype).reshape(2, 3)
    result = newton(lambda x: (x.new_ones(2), 0 * x, flat), lambda x: x.new_ones(2), x, tol=1e-6, max_iter=5)
    np.testing.assert_array_equal(result.x, x)
    assert (result.residual == 0).all()


def test_newton_with_a_singular_hessian():
    # (x_1 + x_2 - 3)^2 leaves a direction free; some minimiser must come out, not a NaN.
    def evaluate(x):
        r = x.sum(dim=1, keepdim=True) - 3
        return r.square().squeeze(1), 2 * r.expand(-1, 2), torch.full((len(x), 2, 2), 2.0).double()

    start = torch.tensor([[0.0, 0.0], [10.0, -3.0], [1.5, 1.5]], dtype=torch.float64)
    result = newton(evaluate, lambda x: evaluate(x)[0], start, tol=1e-8, max_iter=20)
    np.testing.assert_allclose(result.x.sum(dim=1), 3, atol=1e-6)
