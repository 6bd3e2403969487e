"""The optimum over all supports, each fitted by a solver that shares nothing with the package."""

import itertools

import numpy as np
from scipy import optimize, sparse, special


def best_objective(problem, source) -> float:
    """The least objective over every support that the limit allows. Weights are whole numbers: rows are repeated."""
    times = source.weight[:, 0].long().numpy()
    assert (times == source.weight[:, 0].numpy()).all()
    A, b = (np.repeat(part.double().numpy(), times, axis=0) for part in (source.matrix.values, source.target))
    return min(_fit(problem, A, b, mask) for mask in _masks(problem, A.shape[1], b.shape[1]))


def quick_best_objective(problem, source) -> float:
    """The same for a smooth loss, by damped Newton steps on all supports at once."""
    return float(all_objectives(problem, source)[1].min())


def hinge_objectives(problem, source):
    """The same as `all_objectives` for the hinge loss."""
    times = source.weight[:, 0].long().numpy()
    A, b = (np.repeat(part.double().numpy(), times, axis=0) for part in (source.matrix.values, source.target))
    masks = np.array(list(_masks(problem, A.shape[1], 1)))
    return masks, np.array([_fit(problem, A, b, mask) for mask in masks])


def all_objectives(problem, source):
    """Every support as a mask ``(B, p, c)``, and its least objective ``(B,)``; the loss is smooth."""
    A, b, weight = (part.double().numpy() for part in (source.matrix.values, source.target, source.weight))
    masks = np.array(list(_masks(problem, A.shape[1], b.shape[1])))
    sizes, values = masks.sum((1, 2)), np.empty(len(masks))
    for k in np.unique(sizes):
        values[sizes == k] = _fit_all(problem, A, b, weight[:, 0], masks[sizes == k])
    return masks, values


def _masks(problem, p, c):
    """The coefficients ``(p, c)`` of every support of full size; of all allowed ones if the limit counts features."""
    group = problem.constraints.group
    if group is None:
        items = p * c if problem.loss.joint and problem.sparsity == "element" else p
        for chosen in itertools.combinations(range(items), problem.kappa[0]):
            yield _mask(problem, chosen, p, c)
        return
    (kappa,), lengths = problem.kappa, np.bincount(group)
    counts = range(1, kappa + 1) if problem.constraints.counts_features else [kappa]
    for chosen in itertools.chain(*(itertools.combinations(range(len(lengths)), count) for count in counts)):
        if not problem.constraints.counts_features or lengths[list(chosen)].sum() <= kappa:
            yield np.repeat(np.isin(group, chosen)[:, None], c, axis=1)


def _fit_all(problem, A, b, weight, masks):
    """Minima ``(B,)`` on the entries of ``masks (B, p, c)`` and on the intercepts, if any."""
    count, p, c = masks.shape
    free = np.full((count, 1, c), problem.fit_intercept)
    places = np.argwhere(np.concatenate([masks, free], axis=1))[:, 1:].reshape(count, -1, 2)
    rows, outputs = places[..., 0], places[..., 1]
    columns = np.hstack([A, np.ones((len(A), 1))])[:, rows].transpose(1, 0, 2)
    ridge = np.where(rows < p, 1 / problem.gamma, 0.0)

    def evaluate(x):
        eta = np.stack([(columns * (x * (outputs == k))[:, None]).sum(2) for k in range(c)], axis=2)
        value, slope, bend = _second_order(problem, eta, b)
        value = (weight * value).sum(1) + 0.5 * (ridge * x**2).sum(1)
        own = np.take_along_axis(slope, outputs[:, None], axis=2)
        gradient = (weight[:, None] * columns * own).sum(1) + ridge * x
        pairs = bend[np.arange(count)[:, None, None], :, outputs[:, :, None], outputs[:, None, :]]
        hessian = np.einsum("bmd,bdfm,bmf->bdf", columns, weight * pairs, columns)
        # Intercepts of several classes may move together, and those of Huber's loss may have no curvature.
        shift = ridge + 1e-9 * (1 + np.trace(hessian, axis1=1, axis2=2)[:, None])
        return value, gradient, hessian + shift[:, None] * np.eye(len(x[0]))

    x = np.zeros(rows.shape)
    value, gradient, hessian = evaluate(x)
    for _ in range(200):
        step = np.linalg.solve(hessian, gradient[..., None])[..., 0]
        if (gradient * step).sum(1).max() <= 1e-13 * np.abs(value).max():
            break
        length = np.ones((count, 1))
        for _ in range(40):
            higher = evaluate(x - length * step)[0] > value
            if not higher.any():
                break
            length[higher] /= 2
        x = x - np.where(higher[:, None], 0.0, length) * step
        value, gradient, hessian = evaluate(x)
    return value


def _second_order(problem, eta, b):
    """Values ``(B, m)``, slopes ``(B, m, c)`` and second derivatives ``(B, m, c, c)`` of predictors ``(B, m, c)``."""
    name = problem.loss.name
    if name == "softmax":
        share = special.softmax(eta, axis=2)
        bend = share[..., None] * np.eye(b.shape[1]) - share[..., None] * share[..., None, :]
        return special.logsumexp(eta, axis=2) - (b * eta).sum(2), share - b, bend
    value, slope = _pointwise(name, problem, eta, b)
    bend = {
        "logistic": lambda: special.expit(eta) * special.expit(-eta),
        "squared_hinge": lambda: 2.0 * (b * eta < 1),
        "poisson": lambda: np.exp(eta),
        "huber": lambda: 2.0 * (np.abs(eta - b) <= problem.loss.delta),
        "gamma": lambda: np.exp(b - eta),
        "tweedie": lambda: _tweedie(problem.loss.power, eta, b)[2],
        "squared": lambda: np.full_like(eta, 2.0),
    }[name]()
    return value[..., 0], slope, bend[..., None]


def _mask(problem, chosen, p, c):
    if problem.loss.joint and problem.sparsity == "element":
        mask = np.zeros(p * c, bool)
        mask[list(chosen)] = True
        return mask.reshape(p, c)
    mask = np.zeros((p, c), bool)
    mask[list(chosen)] = True
    return mask


def _fit(problem, A, b, mask):
    name = problem.loss.name
    if name == "squared":
        return _ridge(A[:, mask[:, 0]], b, problem.gamma, problem.fit_intercept)
    if name == "hinge":
        return fit_hinge(A[:, mask[:, 0]], b[:, 0], problem.gamma, problem.fit_intercept)
    return _smooth(name, problem, A, b, mask)


def _ridge(A, b, gamma, fit_intercept):
    if fit_intercept:
        A, b = A - A.mean(0), b - b.mean(0)
    H = 2 * A.T @ A + np.eye(A.shape[1]) / gamma
    x = np.linalg.solve(H, 2 * A.T @ b)
    return ((A @ x - b) ** 2).sum() + (x**2).sum() / (2 * gamma)


def fit_hinge(A, b, gamma, fit_intercept, offset=0.0):
    """The support vector machine as a quadratic program in (x, intercept, slacks)."""
    # The other losses are enumerated where this solver is missing, too.
    import clarabel

    m, k = A.shape
    P = sparse.diags(np.r_[np.full(k, 1 / gamma), np.zeros(1 + m)], format="csc")
    q = np.r_[np.zeros(k + 1), np.ones(m)]
    margin = sparse.hstack([-b[:, None] * A, -b[:, None] * fit_intercept, -sparse.eye(m)])
    positive = sparse.hstack([sparse.csc_matrix((m, k + 1)), -sparse.eye(m)])
    rows = sparse.vstack([margin, positive], format="csc")
    rhs = np.r_[b * offset - np.ones(m), np.zeros(m)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.NonnegativeConeT(2 * m)]
    return clarabel.DefaultSolver(P, q, rows, rhs, cones, settings).solve().obj_val


def _smooth(name, problem, A, b, mask):
    """Quasi-Newton on value and gradient written out here."""
    c, gamma = b.shape[1], problem.gamma

    # Columns of unit size: the quasi-Newton method depends on the units of the data.
    unit = np.maximum(np.sqrt((A**2).mean(0)), 1e-300)[:, None]

    def objective(v):
        x = np.zeros(mask.shape)
        x[mask], shift = v[: mask.sum()], v[mask.sum() :]
        x = x / unit
        eta = A @ x + shift * problem.fit_intercept
        with np.errstate(over="ignore"):
            value, slope = _pointwise(name, problem, eta, b)
        gradient = np.r_[((A.T @ slope + x / gamma) / unit)[mask], slope.sum(0) * problem.fit_intercept]
        return value.sum() + (x**2).sum() / (2 * gamma), gradient

    start = np.zeros(mask.sum() + c)
    return optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-13, "gtol": 1e-8}).fun


def _pointwise(name, problem, eta, b):
    if name == "logistic":
        return np.logaddexp(0, -b * eta), -b * special.expit(-b * eta)
    if name == "squared_hinge":
        gap = np.maximum(0, 1 - b * eta)
        return gap**2, -2 * b * gap
    if name == "poisson":
        return np.exp(eta) - b * eta, np.exp(eta) - b
    if name == "huber":
        r, delta = eta - b, problem.loss.delta
        return special.huber(delta, r) * 2, 2 * np.clip(r, -delta, delta)
    if name == "softmax":
        return special.logsumexp(eta, axis=1) - (b * eta).sum(1), special.softmax(eta, axis=1) - b
    if name == "gamma":
        return np.exp(b - eta) - (b - eta) - 1, 1 - np.exp(b - eta)
    if name == "tweedie":
        return _tweedie(problem.loss.power, eta, b)[:2]
    if name == "squared":
        return (eta - b) ** 2, 2 * (eta - b)
    raise KeyError(name)


def _tweedie(power, eta, b):
    """Half the unit deviance of a mean ``exp(eta)``, its slope and its second derivative."""
    up, down, mean = 2 - power, power - 1, np.exp(eta)
    least = b**up * (1 / up + 1 / down)
    value = mean**up / up + b * mean**-down / down - least
    return value, mean**up - b * mean**-down, up * mean**up + down * b * mean**-down
