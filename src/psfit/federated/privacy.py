"""Differential privacy for the pooled products: clipped samples, Gaussian noise, and a proved epsilon.

Each sample is scaled so that ``(x, y)`` has length at most `clip`. One sample more or less then changes the pooled
products by at most ``clip^2 + 1``. Each client adds Gaussian noise; the noise of any `fewest` clients together is
enough for the promised epsilon and delta, so the promise holds even if all others pool what they know.
"""

import math
import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from psfit.federated.requirements import REMEDY


@dataclass(frozen=True)
class Privacy:
    """The promise, and the noise that keeps it.

    Parameters
    ----------
    epsilon, delta : float
        The promise for one sample more or less.
    clip : float
        The greatest length of a sample (x, y).
    noise_multiplier : float
        Standard deviation of the noise in the sum, in units of the greatest change by one sample.
    fewest : int
        How many clients' noise together has this standard deviation.
    """

    epsilon: float
    delta: float
    clip: float
    noise_multiplier: float
    fewest: int

    @classmethod
    def calibrate(cls, epsilon: float, delta: float, clip: float, fewest: int) -> "Privacy":
        """The least noise for a promise."""
        if not (epsilon > 0 and 0 < delta < 1 and clip > 0 and math.isfinite(clip)):
            raise ValueError("privacy: epsilon and clip must be positive numbers, and delta between 0 and 1")
        multiplier = float(_import_accounting().get_sigma_gaussian(epsilon, delta))
        return cls(account(multiplier, delta), delta, clip, multiplier, fewest)

    @property
    def sensitivity(self) -> float:
        """The greatest change of the pooled products, as a vector of their different entries, by one sample."""
        return self.clip**2 + 1.0

    def as_facts(self) -> dict[str, Any]:
        """The promise as JSON can hold it."""
        return {"epsilon": self.epsilon, "delta": self.delta, "clip": self.clip}


def account(noise_multiplier: float, delta: float) -> float:
    """The epsilon of one Gaussian mechanism, computed by dp-accounting."""
    return float(_import_accounting().get_epsilon_gaussian(noise_multiplier, delta))


def clip_rows(rows: np.ndarray, length: float) -> np.ndarray:
    """The rows, those that are longer than `length` scaled down to it."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    clipped: np.ndarray = rows * np.minimum(1.0, length / np.maximum(norms, np.finfo(float).tiny))
    return clipped


def draw_noise(privacy: Privacy, count: int) -> np.ndarray:
    """One client's share of the noise, from the system's source of randomness."""
    source = random.SystemRandom()
    scale = privacy.noise_multiplier * privacy.sensitivity / math.sqrt(privacy.fewest)
    return np.array([source.gauss(0.0, scale) for _ in range(count)])


def _import_accounting() -> Any:
    try:
        import dp_accounting
    except ImportError:
        raise ImportError(f"differential privacy needs dp-accounting; {REMEDY}") from None
    return dp_accounting
