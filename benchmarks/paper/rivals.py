"""The methods beside PsFiT in Table 1: the lasso by scikit-learn and, if it is there, SCIP on the exact program."""

import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from common import GAMMA

from psfit.cli.l1_baselines import lasso as lasso_path
from psfit.data.synthetic import Synthetic


def lasso(made: Synthetic) -> tuple[float, float]:
    """Seconds of a path of penalties down to the first model with kappa nonzeros, and the share of the truth in it."""
    kept, seconds = lasso_path(made.A.cpu().numpy(), made.b[:, 0].cpu().numpy(), made.kappa)
    true = made.x[:, 0].cpu().numpy() != 0
    return seconds, float(true[kept].sum() / true.sum())


def scip(made: Synthetic, limit: float) -> tuple[float, float, float] | None:
    """Seconds, recovery and proved gap under a time limit; None where SCIP is not installed."""
    if find_spec("pyscipopt") is None:
        return None
    sys.path.insert(0, str(Path(__file__).parents[1] / "proof"))
    from exact_peers import scip as scip_model

    A, b = made.A.double().cpu().numpy(), made.b[:, 0].double().cpu().numpy()
    dense = np.linalg.solve(A.T @ A + np.eye(A.shape[1]) / (2 * GAMMA), A.T @ b)
    settings = {"kappa": made.kappa, "gamma": GAMMA, "most": 10 * np.abs(dense).max()}
    began = time.perf_counter()
    coef, gap = scip_model(A, b, settings, limit)
    seconds = time.perf_counter() - began
    return seconds, float((coef != 0)[made.x[:, 0].cpu().numpy() != 0].mean()), gap
