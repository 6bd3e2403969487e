"""Random small problems of every loss: bounds, exact mode and lists of near-optimal models against enumeration.

``python tests/proof_hunt.py FIRST LAST`` draws problems by these numbers and prints those with wrong answers. They
have 5 to 8 features (softmax 4 or 5, three classes) and 12 to 39 samples. Some have equal columns, columns in other
units, weights, no intercept, float32 data or no noise; gamma goes from 1e-3 to 1e6.
"""

import sys
import time
import traceback
from importlib.util import find_spec

import enumeration
import numpy as np
import torch

from psfit import BiCADMM, Dense, GridSpec, Problem, Source, solve
from psfit.common.status import Status
from psfit.losses import Gamma, Hinge, Huber, Logistic, Poisson, Softmax, Squared, SquaredHinge, Tweedie
from psfit.pipeline.near_optimal import find_close_supports

LOSSES = [Squared(), Logistic(), SquaredHinge(), Huber(), Poisson(), Softmax(), Gamma(), Tweedie()]
# The hinge loss is enumerated by a solver that is not everywhere.
LOSSES += [Hinge()] if find_spec("clarabel") else []
# How close the fits of the enumeration are to their minima, as a share of the objective; those of the hinge are by an
# interior point method with its own tolerance.
ACCURACY, HINGE_ACCURACY = 1e-8, 1e-5
WITHIN = 0.05
GOAL = 1e-6


def draw(number):
    """A problem and its samples."""
    rng, loss = np.random.default_rng(number), LOSSES[number % len(LOSSES)]
    p, c = (int(rng.integers(4, 6)), 3) if loss.joint else (int(rng.integers(5, 9)), 1)
    m, kappa = int(rng.integers(12, 40)), int(rng.integers(1, 4))
    sparsity = "feature" if loss.joint and rng.random() < 0.5 else "element"
    X, rho = rng.normal(size=(m, p)), rng.choice([0, 0.5, 0.95])
    X[:, 1:] = rho * X[:, :-1] + np.sqrt(1 - rho**2) * X[:, 1:]
    if rng.random() < 0.3:
        X[:, -1] = X[:, 0]
    if rng.random() < 0.3:
        X *= np.exp(1.5 * rng.normal(size=p))
    dtype = torch.float32 if rng.random() < 0.4 else torch.float64
    X = torch.from_numpy(X).to(dtype)
    x = np.zeros((p, c))
    x[rng.choice(p, kappa, replace=False)] = rng.normal(size=(kappa, c)) * rng.choice([0.3, 1, 5])
    plain = X.double().numpy()
    y = targets(loss, np.clip(plain / plain.std(axis=0) @ x, -4, 4), rng)
    weight = rng.integers(1, 4, size=(m, 1)) if rng.random() < 0.5 else np.ones((m, 1))
    problem = Problem(loss, (kappa,), float(10 ** rng.uniform(-3, 6)), sparsity, bool(rng.random() < 0.6))
    y = torch.from_numpy(y).to(dtype).double()
    return problem, Source(Dense(X), y, torch.from_numpy(weight).double())


def targets(loss, eta, rng):
    """Targets of the predictors, of several kinds and never all equal."""
    noise, (m, c) = float(rng.random() < 0.8), eta.shape
    if loss.name == "softmax":
        y = np.eye(c)[(eta + noise * rng.gumbel(size=eta.shape)).argmax(axis=1)]
        y[:c] = np.eye(c)
        return y
    if loss.name in ("logistic", "hinge", "squared_hinge"):
        y = np.where(eta + noise * rng.logistic(size=(m, 1)) > 0, 1.0, -1.0)
        y[0], y[1] = 1, -1
        return y
    if loss.name == "gamma":
        return eta + np.log(rng.gamma(2, 0.5, size=(m, 1)))
    if loss.name in ("poisson", "tweedie"):
        mean = np.exp(np.clip(eta, -3, 3))
        y = rng.poisson(mean).astype(float) if loss.name == "poisson" else rng.gamma(2, mean / 2)
        y = np.where(rng.random((m, 1)) < 0.2, 0.0, y)
        y[0] = 1
        return y
    return eta + noise * rng.standard_t(3, size=(m, 1))


def enumerate_supports(problem, source):
    """The items of every support, and its least objective."""
    if problem.loss.name == "hinge":
        masks, values = enumeration.hinge_objectives(problem, source)
    else:
        masks, values = enumeration.all_objectives(problem, source)
    entries = problem.loss.joint and problem.sparsity == "element"
    return masks.reshape(len(masks), -1) if entries else masks[:, :, 0], values


def check(number):
    """What is wrong with the answers to a problem, and how exact mode ended."""
    problem, source = draw(number)
    supports, values = enumerate_supports(problem, source)
    best, wrong, grid = float(values.min()), [], GridSpec(device="cpu")
    start = problem.loss.value(torch.zeros_like(source.target), source.target)
    accuracy = HINGE_ACCURACY if problem.loss.name == "hinge" else ACCURACY
    slack = accuracy * abs(best) + 1e-9 * float((source.weight * start).sum().abs())
    default = solve(problem, source, BiCADMM(), grid)
    exact = solve(problem, source, BiCADMM(exact=True, gap_tol=GOAL), grid)
    for name, found in (("default", default), ("exact", exact)):
        if found.lower_bound > best + slack:
            wrong.append(f"{name}: bound {found.lower_bound} above {best}")
        if found.objective < best - slack:
            wrong.append(f"{name}: objective {found.objective} below {best}")
    if exact.objective > best + 2 * GOAL * abs(best) + slack:
        wrong.append(f"exact: objective {exact.objective} above {best}, gap {exact.gap}")
    if exact.status not in (Status.PROVED, Status.ROUNDING):
        wrong.append(f"exact: {exact.status.name}")
    answer = torch.from_numpy(exact.coef), torch.from_numpy(exact.intercept)
    built = grid.build(torch.device("cpu"))
    close = find_close_supports(problem, source, BiCADMM(), built, answer, exact.objective, WITHIN, 10_000)
    cutoff, room = best + WITHIN * abs(best), 1e-5 * abs(best) + slack
    listed = {tuple(map(bool, support)) for support in close.supports}
    needed = {tuple(support) for support, value in zip(supports, values, strict=True) if value < cutoff - room}
    allowed = {tuple(support) for support, value in zip(supports, values, strict=True) if value < cutoff + room}
    if not needed <= listed <= allowed:
        wrong.append(f"list: {len(listed)} supports where {len(needed)} to {len(allowed)} are close")
    return problem, exact, wrong


def main():
    first, last = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    failed = rounding = 0
    began = time.process_time()
    for number in range(first, last):
        try:
            problem, exact, wrong = check(number)
            rounding += exact.status is Status.ROUNDING
        except Exception:
            problem, wrong = draw(number)[0], [traceback.format_exc()]
        if wrong:
            failed += 1
            print(number, problem.loss.name, problem.sparsity, f"gamma {problem.gamma:g}", problem, *wrong, flush=True)
        if (number - first) % 10 == 9:
            print(number - first + 1, "problems", failed, "wrong", rounding, "end by rounding", flush=True)
    print(f"numbers {first} to {last}: {failed} wrong, {rounding} end by rounding, {time.process_time() - began:.0f} s")


if __name__ == "__main__":
    main()
