"""Generated problems posed on their data, and supports of them."""

import torch
from problems import make_source

from psfit import GridSpec, Problem
from psfit.problem.pose import pose


CPU = torch.device("cpu")


def posed(loss, kappa, *, nodes=1, blocks=1, sparsity="element", gamma=3.0, dtype=torch.float64, **shape):
    """An instance of 80 samples and 8 features, unless said otherwise."""
    intercept, weight = shape.pop("fit_intercept", True), shape.pop("weight", None)
    source = make_source(loss, **{"samples": 80, "features": 8, "nonzeros": 3, "seed": 0, **shape}).to(dtype)
    if weight is not None:
        source = type(source)(source.matrix, source.target, weight.to(dtype))
    problem = Problem(loss, (kappa,), gamma, sparsity, intercept)
    return pose(problem, source, GridSpec(nodes=nodes, blocks=blocks).build(CPU))


def zero(inst):
    """Coefficients of zero."""
    return torch.zeros(inst.source.matrix.shape[1], inst.source.outputs, dtype=torch.float64)


def support(inst, chosen):
    """A mask of some items."""
    mask = torch.zeros(inst.items.size, dtype=torch.bool)
    mask[list(chosen)] = True
    return mask
