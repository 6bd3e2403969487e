"""Independent references: NumPy formulas, SciPy minimisers and clarabel programs.

Nothing here imports psfit. A loss under test is known only by its `name` and, for Huber, its
`delta`, for Tweedie, its `power`; every formula is written down a second time in float64, so that a test compares two
derivations and not one with itself.
"""

import clarabel
import numpy as np
from scipy import optimize, sparse, special

Array = np.ndarray


# Losses: value, gradient and targets --------------------------------------------------------------


def loss_value(loss, eta: Array, b: Array) -> Array:
    """Loss of each sample, ``(m, c)``, or ``(m, 1)`` for softmax."""
    margin, r = b * eta, np.abs(eta - b)
    match loss.name:
        case "squared":
            return r**2
        case "huber":
            return np.where(r <= loss.delta, r**2, 2 * loss.delta * r - loss.delta**2)
        case "logistic":
            return np.maximum(-margin, 0) + np.log1p(np.exp(-np.abs(margin)))
        case "softmax":
            # Relative to the true class, so that a large common offset does not cancel.
            relative = eta - margin.sum(axis=1, keepdims=True)
            return special.logsumexp(relative, axis=1, keepdims=True)
        case "hinge":
            return np.maximum(1 - margin, 0)
        case "squared_hinge":
            return np.maximum(1 - margin, 0) ** 2
        case "poisson":
            return np.exp(eta) - margin
        case "gamma":
            return np.expm1(b - eta) - (b - eta)
        case "tweedie":
            return _half_deviance(loss.power, b, eta)
    raise KeyError(loss.name)


def loss_gradient(loss, eta: Array, b: Array) -> Array:
    """Derivative in ``eta`` of a smooth loss, ``(m, c)``."""
    margin, r = b * eta, eta - b
    match loss.name:
        case "squared":
            return 2 * r
        case "huber":
            return np.where(np.abs(r) <= loss.delta, 2 * r, 2 * loss.delta * np.sign(r))
        case "logistic":
            return -b * special.expit(-margin)
        case "softmax":
            return special.softmax(eta, axis=1) - b
        case "squared_hinge":
            return np.where(margin < 1, -2 * b * (1 - margin), 0.0)
        case "poisson":
            return np.exp(eta) - b
        case "gamma":
            return -np.expm1(b - eta)
        case "tweedie":
            # A target of zero has no falling part, also where the exponential overflows.
            falling = np.where(b > 0, (1 - loss.power) * eta, 0.0)
            return np.exp((2 - loss.power) * eta) - b * np.exp(falling)
    raise KeyError(loss.name)


def _half_deviance(power: float, y: Array, eta: Array) -> Array:
    """Half the unit deviance of the Tweedie family at the mean ``exp(eta)``, by its textbook formulas.

    Its terms cancel near the target, so it is made with the digits of a long double.
    """
    y, eta = y.astype(np.longdouble), eta.astype(np.longdouble)
    if power == 1:
        found = np.exp(eta) - y + y * (np.log(np.where(y > 0, y, 1)) - eta)
    elif power == 2:
        found = y * np.exp(-eta) - np.log(y) + eta - 1
    else:
        up, down = np.longdouble(2) - power, np.longdouble(power) - 1
        found = np.exp(up * eta) / up + y * np.exp(-down * eta) / down - y**up / (up * down)
    return found.astype(float)


def kink_distance(loss, eta: Array, b: Array) -> Array:
    """How far ``eta`` is from where the second derivative jumps."""
    match loss.name:
        case "huber":
            return np.abs(np.abs(eta - b) - loss.delta)
        case "hinge" | "squared_hinge":
            return np.abs(1 - b * eta)
    return np.full_like(eta, np.inf)


def random_targets(loss, m: int, c: int, rng: np.random.Generator) -> Array:
    """Targets ``(m, c)`` of the kind that a loss is for."""
    match loss.name:
        case "squared" | "huber":
            return rng.normal(size=(m, c)) * 2
        case "softmax":
            return np.eye(c)[rng.integers(c, size=m)]
        case "poisson":
            return rng.poisson(2.0, size=(m, c)).astype(float)
        case "gamma":
            return np.log(rng.gamma(2.0, size=(m, c)))
        case "tweedie":
            return rng.gamma(2.0, size=(m, c)) * (rng.random((m, c)) < (0.7 if loss.power < 2 else 1.0))
    return rng.choice([-1.0, 1.0], size=(m, c))


# Proximal operators -------------------------------------------------------------------------------


def assert_prox_optimal(loss, ours: Array, v: Array, b: Array, step: Array, eps: float, rng) -> None:
    """No point of a search around `ours`, nor SciPy's minimiser, has a smaller prox objective.

    `ours`, `v`, `b` are ``(m, c)`` and `step` is ``(m, c)``, or ``(m, 1)`` for softmax; `eps` is
    the precision `ours` was computed in. Its rounding costs second order in the objective, so a
    multiple of ``eps`` is generous.
    """
    with np.errstate(over="ignore"):
        least = prox_objective(loss, ours, v, b, step)
        assert np.isfinite(least).all()
        slack = 8 * eps * (1 + np.abs(least))
        # Convex, so a point that rays at every scale cannot improve is the minimum.
        for radius in np.logspace(-10, 2, 49):
            ray = radius * (1 + np.abs(ours)) * rng.choice([-1.0, 1.0], size=ours.shape)
            for candidate in (ours + ray, ours - ray):
                found = prox_objective(loss, candidate, v, b, step)
                assert (least <= found + slack).all(), f"a point {radius:.0e} away is better"
        found = prox_objective(loss, _minimised(loss, v, b, step), v, b, step)
        assert (least <= found + slack).all(), "an independent minimiser is better"


def prox_objective(loss, w: Array, v: Array, b: Array, step: Array) -> Array:
    """``loss(w; b) + ||w - v||^2 / (2 step)`` of each entry, or of each row for softmax."""
    distance = (w - v) ** 2 / (2 * step)
    joint = loss.name == "softmax"
    return loss_value(loss, w, b) + (distance.sum(axis=1, keepdims=True) if joint else distance)


def prox_residual(loss, w: Array, v: Array, b: Array, step: Array) -> Array:
    """Distance of ``(v - w) / step`` from the subdifferential at ``w``, times ``step``."""
    if loss.name == "hinge":
        up, margin = b * (w - v), b * w
        least, most = np.where(margin < 1, step, 0.0), np.where(margin > 1, 0.0, step)
        return np.maximum(0, np.maximum(least - up, up - most))
    return np.abs(w - v + step * loss_gradient(loss, w, b))


def _minimised(loss, v: Array, b: Array, step: Array) -> Array:
    if loss.name == "softmax":
        return np.array([_minimised_row(loss, *row) for row in zip(v, b, step, strict=True)])
    # |w - v| <= step |slope at v|; ternary search over all entries at once, kinks and all.
    slope = -b if loss.name == "hinge" else loss_gradient(loss, v, b)
    low, high = np.minimum(v, v - step * slope), np.maximum(v, v - step * slope)
    for _ in range(200):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        up = prox_objective(loss, left, v, b, step) < prox_objective(loss, right, v, b, step)
        low, high = np.where(up, low, left), np.where(up, right, high)
    return (low + high) / 2


def _minimised_row(loss, v: Array, b: Array, step: Array) -> Array:
    def objective(w: Array) -> tuple[float, Array]:
        slope = loss_gradient(loss, w[None], b[None])[0] + (w - v) / step
        return prox_objective(loss, w[None], v[None], b[None], step[None]).item(), slope

    return optimize.minimize(objective, v, jac=True, method="BFGS").x


# The local subproblem -----------------------------------------------------------------------------


def local_prox(loss, A: Array, b: Array, sample: Array, w: Array, v: Array) -> Array:
    """``argmin sum_k sample_k loss(A x; b)_k + 1/2 ||x - v||_w^2`` of one node, ``(n, c)``.

    The objective is strongly convex, so the gradient left over bounds the error of the answer.
    """
    if loss.name == "hinge":
        return np.stack([_hinge_prox(A, b[:, k], sample, w, v[:, k]) for k in range(b.shape[1])], axis=1)

    def gradient(x: Array) -> Array:
        X = x.reshape(v.shape)
        return (A.T @ (sample * loss_gradient(loss, A @ X, b)) + w * (X - v)).ravel()

    def objective(x: Array) -> tuple[float, Array]:
        X = x.reshape(v.shape)
        fit = (sample * loss_value(loss, A @ X, b)).sum()
        return fit + 0.5 * (w * (X - v) ** 2).sum(), gradient(x)

    near = optimize.minimize(objective, np.zeros(v.size), jac=True, method="BFGS").x
    x = optimize.root(gradient, near, tol=1e-14).x
    assert np.linalg.norm(gradient(x)) <= 1e-9 * w.min(), "the reference itself did not converge"
    return x.reshape(v.shape)


def _hinge_prox(A: Array, b: Array, sample: Array, w: Array, v: Array) -> Array:
    """The quadratic program in ``(x, xi)``: ``xi >= 0``, ``xi >= 1 - b A x``."""
    (m, n), weight = A.shape, w[:, 0]
    P = sparse.diags(np.r_[weight, np.zeros(m)], format="csc")
    q = np.r_[-weight * v, sample[:, 0]]
    G = sparse.bmat([[None, -sparse.eye(m)], [-b[:, None] * A, -sparse.eye(m)]], format="csc")
    h = np.r_[np.zeros(m), -np.ones(m)]
    return conic(P, q, G, h, [clarabel.NonnegativeConeT(2 * m)], 1e-10)[:n]


# The bilinear step --------------------------------------------------------------------------------


def zt_step(c: Array, s: Array, v: float, node_rho: float, rho_b: float) -> tuple[Array, float]:
    """``min_{||z||_1 <= t} node_rho / 2 ||z - c||^2 + rho_b / 2 (s'z - t + v)^2``.

    A quadratic program in ``(z, y, t, g)`` with ``y >= |z|`` and ``g = s'z - t + v``.
    """
    n = len(c)
    eye, none, one = sparse.eye(n), sparse.csc_matrix((n, 2)), np.ones((1, n))
    P = sparse.diags(np.r_[np.full(n, node_rho), np.zeros(n + 1), rho_b], format="csc")
    q = np.r_[-node_rho * c, np.zeros(n + 2)]
    G = sparse.bmat(
        [
            [s[None], np.zeros((1, n)), np.array([[-1.0, -1.0]])],
            [eye, -eye, none],
            [-eye, -eye, none],
            [np.zeros((1, n)), one, np.array([[-1.0, 0.0]])],
        ],
        format="csc",
    )
    h = np.r_[-v, np.zeros(2 * n + 1)]
    x = conic(P, q, G, h, [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(2 * n + 1)])
    return x[:n], x[2 * n]


def row_step(C: Array, s: Array, v: float, node_rho: float, rho_b: float) -> Array:
    """The (z, t) step on the norms of rows, t eliminated: a cone program in ``(Z, d, g)``.

    ``min node_rho / 2 ||Z - C||^2 + rho_b / 2 g^2`` subject to ``d_j >= ||Z_j||`` and
    ``g >= max(0, sum_j (1 - s_j) d_j - v)``.
    """
    p, c = C.shape
    P = sparse.diags(np.r_[np.full(p * c, node_rho), np.zeros(p), rho_b], format="csc")
    q = np.r_[-node_rho * C.ravel(), np.zeros(p + 1)]
    G = sparse.lil_matrix((2 + p * (c + 1), p * c + p + 1))
    G[0, -1] = -1
    G[1, p * c : p * c + p] = 1 - s
    G[1, -1] = -1
    for j in range(p):
        G[2 + j * (c + 1), p * c + j] = -1
        for k in range(c):
            G[3 + j * (c + 1) + k, j * c + k] = -1
    h = np.r_[0.0, v, np.zeros(p * (c + 1))]
    cones = [clarabel.NonnegativeConeT(2)] + [clarabel.SecondOrderConeT(c + 1)] * p
    return conic(P, q, G.tocsc(), h, cones)[: p * c].reshape(p, c)


def s_step(z: Array, t: float, v: float, kappa: int) -> float:
    """The least ``(s'z - t + v)^2`` over ``||s||_inf <= 1``, ``||s||_1 <= kappa``.

    A quadratic program in ``(s, y, g)`` with ``y >= |s|`` and ``g = s'z - t + v``.
    """
    n = len(z)
    eye, none = sparse.eye(n), sparse.csc_matrix((n, 1))
    P = sparse.diags(np.r_[np.zeros(2 * n), 2.0], format="csc")
    zero, one = np.zeros((1, n)), np.ones((1, n))
    G = sparse.bmat(
        [
            [z[None], zero, -np.ones((1, 1))],
            [eye, -eye, none],
            [-eye, -eye, none],
            [None, eye, none],
            [zero, one, np.zeros((1, 1))],
        ],
        format="csc",
    )
    h = np.r_[t - v, np.zeros(2 * n), np.ones(n), kappa]
    x = conic(P, np.zeros(2 * n + 1), G, h, [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(3 * n + 1)])
    return x[-1] ** 2


def conic(P, q: Array, G, h: Array, cones: list, tol: float = 1e-8) -> Array:
    """``min 1/2 x'Px + q'x`` with ``h - Gx`` in the cones, to a duality gap of `tol`."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tol
    solution = clarabel.DefaultSolver(sparse.triu(P, format="csc"), q, G, h, cones, settings).solve()
    assert solution.status == clarabel.SolverStatus.Solved, solution.status
    return np.array(solution.x)
