"""The range in which a mean loss is read as a share that is explained: from a constant to perfect predictions."""

import numpy as np
from scipy.special import xlogy

from psfit.estimators.posing import Posed
from psfit.estimators.reading import sum_over_nodes
from psfit.estimators.targets import Counts, LogitLabels, Numbers


def find_losses(posed: Posed) -> tuple[str, float, float] | None:
    """The name of the share, and the mean losses of the best constant and of perfect predictions on all samples.

    None where these have no simple form, as with offsets. All ranks must call this.
    """
    target, loss = posed.learned.target, posed.problem.loss
    if posed.offset is not None or not posed.problem.fit_intercept or posed.y.ndim > 1:
        return None
    weights = posed.source.weight[:, 0].cpu().numpy()
    if isinstance(target, LogitLabels):
        counts = np.bincount(target.codes(posed.y), weights=weights, minlength=len(target.classes))
        shares = sum_over_nodes(posed.grid, counts)
        shares = shares / shares.sum()
        return "D2", -float(xlogy(shares, shares).sum()), 0.0
    if not isinstance(target, Numbers) or not (loss.quadratic or isinstance(target, Counts)):
        return None
    y = posed.y.reshape(-1, 1)
    sums = sum_over_nodes(posed.grid, target.sum_baseline(y, weights, None))
    baseline = target.predict_baseline(sums, len(y), None)
    # The Poisson loss of perfect predictions is not zero.
    best = weights @ (y - xlogy(y, y))[:, 0] if loss.name == "poisson" else 0.0
    left, best = sum_over_nodes(posed.grid, np.array([target.deviances(y, baseline, weights)[0], best])) / sums[1, 0]
    if not left > 0:
        return None
    # The losses with a log link are half of their deviances.
    return ("R2", float(left), 0.0) if loss.quadratic else ("D2", float(best + left / 2), float(best))
