"""The squared loss in one sum: the products of all columns, pooled once, contain the whole problem.

With ``Z = [X, y, 1]`` the clients sum ``Z' W Z``. Every client then makes a few samples with exactly these weights,
means and products, and fits them alone: objective, answer and proof are those of all samples together.
"""

from dataclasses import dataclass

import numpy as np
import torch

from psfit.comm import Communicator
from psfit.federated.privacy import Privacy, clip_rows, draw_noise

# Means that are so many standard deviations from zero cost too many digits of the products.
FAR_FROM_ZERO = 1e4


@dataclass(frozen=True)
class Moments:
    """The weight of all samples, and means ``(p + 1,)`` and products ``(p + 1, p + 1)`` about them of X and y."""

    weight: float
    means: np.ndarray
    scatter: np.ndarray

    def make_samples(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Samples X, y and weights with these moments: two for each direction, on both sides of the mean."""
        values, directions = np.linalg.eigh(self.scatter)
        count = len(values)
        steps = (directions * np.sqrt(np.maximum(values, 0.0) * count / self.weight)).T
        rows = np.concatenate([self.means + steps, self.means - steps])
        return rows[:, :-1], rows[:, -1], np.full(2 * count, self.weight / (2 * count))


def pool_moments(
    X: np.ndarray, y: np.ndarray, weight: np.ndarray | None, world: Communicator, privacy: Privacy | None
) -> Moments:
    """The moments of the samples of all clients, by one sum; with `privacy`, of clipped samples and with noise."""
    columns = np.column_stack([np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)])
    if not np.isfinite(columns).all():
        raise ValueError("X or y: the samples hold NaN or infinite numbers; remove or replace them")
    if privacy is not None:
        if weight is not None:
            raise ValueError("sample_weight: differential privacy counts every sample once; leave the weights out")
        columns = clip_rows(columns, privacy.clip)
    Z = np.column_stack([columns, np.ones(len(columns))])
    local = Z.T @ (Z if weight is None else Z * np.asarray(weight, dtype=np.float64)[:, None])
    above = np.triu_indices(len(local))
    numbers = local[above]
    if privacy is not None:
        numbers = numbers + draw_noise(privacy, len(numbers))
    total = np.zeros_like(local)
    total[above] = world.all_reduce(torch.from_numpy(numbers)).numpy()
    total = total + np.triu(total, 1).T
    if privacy is not None:
        total[-1, -1] = max(total[-1, -1], 1.0)
    means = total[-1, :-1] / total[-1, -1]
    scatter = total[:-1, :-1] - total[-1, -1] * np.outer(means, means)
    if privacy is None:
        _require_moderate_means(means, scatter, total[-1, -1])
    return Moments(float(total[-1, -1]), means, scatter)


def _require_moderate_means(means: np.ndarray, scatter: np.ndarray, weight: float) -> None:
    spread = np.sqrt(np.maximum(np.diag(scatter), 0.0) / weight)
    far = (np.abs(means) > FAR_FROM_ZERO * spread) & (spread > 0)
    if far.any():
        worst = int(far.argmax())
        name = "y" if worst == len(means) - 1 else f"X, column {worst}"
        raise ValueError(
            f"{name}: its mean is more than {FAR_FROM_ZERO:g} standard deviations from zero; subtract a number that "
            "all clients agree on, or fit without pooled=true"
        )
