"""Information criteria: the fit of a model, with a penalty for its coefficients."""

import numpy as np
from scipy.special import gammaln

from psfit.losses import Loss

CRITERIA = ("aic", "bic", "ebic", "gic")


def criterion_values(
    criterion: str, loss: Loss, losses: np.ndarray, weight: float, chosen: np.ndarray, free: np.ndarray, size: int
) -> np.ndarray:
    """Values ``(J,)`` of a criterion up to a constant; smaller is better.

    Parameters
    ----------
    losses : ndarray (J, d)
        Losses of each model, summed over the samples, for each output.
    weight : float
        The total weight of the samples, read as their number.
    chosen : ndarray (J, problems)
        How many of the `size` items of each problem each model uses.
    free : ndarray (J,)
        Free parameters: nonzero coefficients and intercepts.
    """
    if loss.quadratic:
        # The variance is not known, so the likelihood uses its best value.
        tiny = np.finfo(float).tiny
        deviance = (weight * np.log(np.maximum(losses / weight, tiny))).sum(axis=1)
    else:
        deviance = 2 * losses.sum(axis=1)
    if criterion == "aic":
        return np.asarray(deviance + 2 * free)
    if criterion == "gic":
        return np.asarray(deviance + np.log(size) * np.log(np.log(max(weight, 3.0))) * free)
    value = deviance + np.log(weight) * free
    if criterion == "ebic":
        # All supports of a size share the prior weight of that size.
        ways = gammaln(size + 1) - gammaln(chosen + 1) - gammaln(size - chosen + 1)
        value = value + 2 * ways.sum(axis=1)
    return np.asarray(value)
