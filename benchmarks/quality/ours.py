"""A case as PsFiT takes it."""

import numpy as np
import torch
from formulas import target_of
from suite import Case

from psfit import Dense, Problem, Result, Source
from psfit.losses import Logistic, Loss, Softmax, Squared, SquaredHinge

LOSSES: dict[str, Loss] = {
    "linear": Squared(),
    "logistic": Logistic(),
    "softmax": Softmax(),
    "svm": SquaredHinge(),
}


def problem_of(case: Case, kappa: int | None = None) -> Problem:
    """The problem with the case's limit, or with another."""
    spec = case.spec
    return Problem(LOSSES[spec.model], (spec.kappa if kappa is None else kappa,), spec.gamma, spec.sparsity)


def source_of(case: Case) -> Source:
    """The data with equal weights."""
    target = torch.as_tensor(target_of(case.spec.model, case.y))
    return Source(Dense(torch.as_tensor(case.X)), target, torch.ones(len(case.X), 1, dtype=torch.float64))


def items_of(case: Case, result: Result) -> np.ndarray:
    """What the answer counts against the limit: entries, or features."""
    return np.flatnonzero(result.coef) if case.spec.sparsity == "element" else result.support
