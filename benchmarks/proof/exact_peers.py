"""One exact peer on one problem, as a program of its own: the peers need older libraries than PsFiT does.

``python exact_peers.py NAME PROBLEM.npz SECONDS`` prints a line of JSON with the support, the proved gap and the time.
The problem file holds centred ``X``, ``y``, ``kappa``, ``gamma`` and, for peers that charge for a nonzero in place of a
limit, a ``price`` at which the limited optimum is also theirs, and a bound on the coefficients, ``most``.
"""

import json
import os
import sys
import time
from collections.abc import Callable

import numpy as np

Answer = tuple[np.ndarray, float]
ONE_THREAD = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def l0bnb(X: np.ndarray, y: np.ndarray, data: dict, limit: float) -> Answer:
    from l0bnb import BNBTree

    tree = BNBTree(X, y)
    found = tree.solve(l0=data["price"] / 2, l2=1 / (4 * data["gamma"]), m=data["most"], gap_tol=1e-4, time_limit=limit)
    return found.beta, float(found.gap)


def el0ps(X: np.ndarray, y: np.ndarray, data: dict, limit: float) -> Answer:
    from el0ps.datafit import Leastsquares, Logistic, Squaredhinge
    from el0ps.penalty import L2norm
    from el0ps.solver import BnbSolver

    # Its square has a factor of one half, its other losses have none.
    kinds = {"squared": (Leastsquares, 0.5), "logistic": (Logistic, 1.0), "squared_hinge": (Squaredhinge, 1.0)}
    loss, factor = kinds[str(data.get("loss", "squared"))]
    solver = BnbSolver(relative_gap=1e-4, time_limit=limit, verbose=False)
    penalty = L2norm(factor / (2 * data["gamma"]))
    found = solver.solve(loss(y), penalty, np.asfortranarray(X), factor * data["price"])
    proved = "optimal" in str(found.status)
    return found.x, 1e-4 if proved else float("nan")


def okridge(X: np.ndarray, y: np.ndarray, data: dict, limit: float) -> Answer:
    from okridge.tree import BNBTree

    tree = BNBTree(X=X, y=y, lambda2=1 / (2 * data["gamma"]))
    upper, beta, _, lower, _ = tree.solve(k=int(data["kappa"]), gap_tol=1e-4, verbose=False, time_limit=limit)
    # Its objective lacks the constant y'y.
    constant = float(y @ y)
    return np.asarray(beta), float((upper - lower) / (upper + constant))


def gurobi(X: np.ndarray, y: np.ndarray, data: dict, limit: float) -> Answer:
    import gurobipy

    n = X.shape[1]
    with gurobipy.Env(params={"OutputFlag": 0}) as environment, gurobipy.Model(env=environment) as model:
        model.Params.TimeLimit, model.Params.MIPGap, model.Params.Threads = limit, 1e-4, 1
        x = model.addMVar(n, lb=-data["most"], ub=data["most"])
        on = model.addMVar(n, vtype="B")
        model.addConstr(x <= data["most"] * on)
        model.addConstr(x >= -data["most"] * on)
        model.addConstr(on.sum() <= int(data["kappa"]))
        H = X.T @ X + np.eye(n) / (2 * data["gamma"])
        model.setObjective(x @ H @ x - 2 * (y @ X) @ x + float(y @ y))
        model.optimize()
        return np.where(on.X > 0.5, x.X, 0.0), float(model.MIPGap)


def scip(X: np.ndarray, y: np.ndarray, data: dict, limit: float) -> Answer:
    from pyscipopt import Model, quicksum

    n, most = X.shape[1], float(data["most"])
    # The objective is ||R x - r||^2 + rest with a triangular R.
    R = np.linalg.cholesky(X.T @ X + np.eye(n) / (2 * data["gamma"])).T
    r = np.linalg.solve(R.T, X.T @ y)
    rest = float(y @ y - r @ r)
    model = Model()
    model.hideOutput()
    model.setParam("limits/time", limit)
    model.setParam("limits/gap", 1e-4)
    x = [model.addVar(lb=-most, ub=most) for _ in range(n)]
    on = [model.addVar(vtype="B") for _ in range(n)]
    off = [model.addVar(lb=None) for _ in range(n)]
    total = model.addVar(lb=0)
    for j in range(n):
        model.addCons(x[j] <= most * on[j])
        model.addCons(x[j] >= -most * on[j])
        model.addCons(off[j] == quicksum(R[j, k] * x[k] for k in range(j, n)) - r[j])
    model.addCons(quicksum(on) <= int(data["kappa"]))
    model.addCons(quicksum(g * g for g in off) <= total)
    model.setObjective(total + rest)
    model.optimize()
    if not model.getNSols():
        return np.zeros(n), float("inf")
    return np.array([model.getVal(v) * (model.getVal(o) > 0.5) for v, o in zip(x, on, strict=True)]), model.getGap()


PEERS: dict[str, Callable[[np.ndarray, np.ndarray, dict, float], Answer]] = {
    "L0BnB": l0bnb,
    "El0ps": el0ps,
    "OKRidge": okridge,
    "Gurobi": gurobi,
    "SCIP": scip,
}


def main() -> None:
    """Warm up on a small problem (some peers compile themselves), then solve and report."""
    name, path, limit = sys.argv[1], sys.argv[2], float(sys.argv[3])
    data = {key: value if value.ndim else value.item() for key, value in np.load(path).items()}
    X, y = data["X"], data["y"]
    few = min(5, X.shape[1])
    PEERS[name](X[:, :few].copy(), y, data | {"kappa": 2}, 10.0)
    began = time.perf_counter()
    beta, gap = PEERS[name](X, y, data, limit)
    seconds = time.perf_counter() - began
    print(json.dumps({"support": np.flatnonzero(np.abs(beta) > 1e-9).tolist(), "gap": gap, "seconds": seconds}))


if __name__ == "__main__":
    main()
