"""Small data for the problems: features, targets of every kind, weights; all of them from a seed."""

import numpy as np


def features(rng: np.random.Generator, samples: int, count: int, correlation: float) -> np.ndarray:
    """Normal features; those that are k places apart have the given correlation to the power of k."""
    X = rng.normal(size=(samples, count))
    for j in range(1, count):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * X[:, j]
    return X


def predictors(
    seed: int, samples: int, count: int, nonzeros: int, correlation: float = 0.0, outputs: int = 1
) -> tuple[np.random.Generator, np.ndarray, np.ndarray]:
    """Features, and true predictors ``(samples, outputs)``, each of a few features; and the generator for the rest."""
    rng = np.random.default_rng(seed)
    X = features(rng, samples, count, correlation)
    truth = np.zeros((count, outputs))
    for output in range(outputs):
        place = rng.choice(count, nonzeros, replace=False)
        truth[place, output] = rng.choice([-1.0, 1.0], nonzeros) * rng.uniform(1, 2, nonzeros)
    return rng, X, X @ truth + 0.3


def numbers(
    seed: int,
    samples: int = 120,
    count: int = 20,
    nonzeros: int = 4,
    correlation: float = 0.0,
    targets: int = 1,
    noise: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """A target of real numbers, or several."""
    rng, X, eta = predictors(seed, samples, count, nonzeros, correlation, targets)
    y = eta + noise * rng.normal(size=eta.shape)
    return X, y[:, 0] if targets == 1 else y


def outliers(seed: int, samples: int = 120, count: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """A target of real numbers, some of them far off."""
    X, y = numbers(seed, samples, count)
    rng = np.random.default_rng(seed + 1000)
    y[rng.choice(samples, samples // 10, replace=False)] += 15
    return X, y


def labels(
    seed: int,
    samples: int = 150,
    count: int = 15,
    nonzeros: int = 3,
    correlation: float = 0.0,
    classes: int = 2,
) -> tuple[np.ndarray, np.ndarray]:
    """Classes 0, 1, ..."""
    rng, X, eta = predictors(seed, samples, count, nonzeros, correlation, 1 if classes == 2 else classes)
    eta = eta + rng.logistic(size=eta.shape)
    return X, (eta[:, 0] > 0).astype(int) if classes == 2 else eta.argmax(axis=1)


def words(seed: int, samples: int = 150, count: int = 15) -> tuple[np.ndarray, np.ndarray]:
    """Two classes with names, one of them rare."""
    rng, X, eta = predictors(seed, samples, count, 3)
    return X, np.where(eta[:, 0] + rng.logistic(size=samples) > 2, "yes", "no")


def counts(
    seed: int, samples: int = 150, count: int = 15, nonzeros: int = 3, correlation: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Counts."""
    rng, X, eta = predictors(seed, samples, count, nonzeros, correlation)
    return X, rng.poisson(np.exp(0.5 * eta[:, 0]).clip(max=50))


def sparse_numbers(seed: int, samples: int, count: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Features of which most entries are zero."""
    X, _ = numbers(seed, samples, count)
    rng = np.random.default_rng(seed + 1000)
    X[rng.random(X.shape) > share] = 0
    return X, 4 * (X[:, 1] - X[:, 5] + 2 * X[:, 9]) + rng.normal(size=samples)


def sparse_labels(seed: int, samples: int, count: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """The same with two classes."""
    X, y = sparse_numbers(seed, samples, count, share)
    return X, (y > 0).astype(int)


def weights(seed: int, samples: int, zeros: float = 0.0) -> np.ndarray:
    """Weights of samples, a share of them zero."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0.5, 2, samples) * (rng.random(samples) >= zeros)
