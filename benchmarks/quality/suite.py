"""The problems of the quality benchmark: what makes supports hard to find, one family at a time."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from scipy import sparse

Model = Literal["linear", "logistic", "softmax", "svm"]
CLASSES = 4


@dataclass(frozen=True)
class Spec:
    """A family of problems; a seed makes one of it."""

    name: str
    model: Model = "linear"
    samples: int = 400
    features: int = 200
    kappa: int = 10
    design: Literal["ar", "equal"] = "ar"
    correlation: float = 0.0
    snr: float = 5.0
    decay: bool = False
    gamma: float = 10.0
    sparsity: Literal["element", "feature"] = "element"


@dataclass(frozen=True)
class Case:
    """One problem: data, limit, ridge."""

    spec: Spec
    seed: int
    X: np.ndarray
    y: np.ndarray

    @property
    def name(self) -> str:
        return self.spec.name if self.seed < 0 else f"{self.spec.name}#{self.seed}"


LINEAR = [
    Spec("linear independent"),
    Spec("linear ar 0.5", correlation=0.5),
    Spec("linear ar 0.8, low signal", correlation=0.8, snr=1.0),
    Spec("linear ar 0.9", correlation=0.9),
    Spec("linear ar 0.95, high signal", correlation=0.95, snr=20.0),
    Spec("linear equicorrelated 0.5", design="equal", correlation=0.5),
    Spec("linear equicorrelated 0.8, decaying", design="equal", correlation=0.8, decay=True),
    Spec("linear p>n independent", samples=100, features=500),
    Spec("linear p>n ar 0.7", samples=120, features=600, correlation=0.7),
    Spec(
        "linear p>n equicorrelated 0.5, low signal", samples=100, features=400, design="equal", correlation=0.5, snr=1.0
    ),
    Spec("linear ar 0.7, decaying, kappa 40", samples=800, features=400, kappa=40, correlation=0.7, decay=True),
    Spec("linear small ar 0.8", samples=80, features=30, kappa=5, correlation=0.8, snr=2.0),
]
OTHERS = [
    Spec("logistic independent", "logistic"),
    Spec("logistic ar 0.8", "logistic", correlation=0.8),
    Spec("logistic p>n ar 0.5", "logistic", samples=150, features=400, kappa=6, correlation=0.5),
    Spec("softmax ar 0.5", "softmax", samples=400, features=60, kappa=15, correlation=0.5),
    Spec("svm ar 0.5", "svm", correlation=0.5),
    Spec("svm ar 0.9, low signal", "svm", correlation=0.9, snr=1.0),
]


def cases(seeds: list[int], models: list[str] | None = None) -> list[Case]:
    """The whole suite for some seeds."""
    chosen = [spec for spec in LINEAR + OTHERS if models is None or spec.model in models]
    return [draw(spec, seed) for spec in chosen for seed in seeds]


def draw(spec: Spec, seed: int) -> Case:
    """Data of a family; the same seed always gives the same problem."""
    rng = np.random.default_rng([seed, sum(spec.name.encode())])
    X = _design(spec, rng)
    outputs = CLASSES if spec.model == "softmax" else 1
    x = np.zeros(spec.features * outputs)
    place = rng.choice(x.size, spec.kappa, replace=False)
    size = 0.85 ** np.arange(spec.kappa) if spec.decay else np.ones(spec.kappa)
    x[place] = size * rng.choice([-1.0, 1.0], spec.kappa)
    eta = X @ x.reshape(spec.features, outputs)
    eta *= np.sqrt(spec.snr) / eta.std()
    if spec.model == "linear":
        y = eta[:, 0] + rng.normal(size=spec.samples)
    elif spec.model == "softmax":
        y = (eta + rng.gumbel(size=eta.shape)).argmax(axis=1)
    else:
        y = (eta[:, 0] + rng.logistic(size=spec.samples) > 0).astype(int)
    return Case(spec, seed, X, y)


def _design(spec: Spec, rng: np.random.Generator) -> np.ndarray:
    Z = rng.normal(size=(spec.samples, spec.features))
    rho = spec.correlation
    if spec.design == "equal":
        return np.sqrt(1 - rho) * Z + np.sqrt(rho) * rng.normal(size=(spec.samples, 1))
    for j in range(1, spec.features):
        Z[:, j] = rho * Z[:, j - 1] + np.sqrt(1 - rho**2) * Z[:, j]
    return Z


REAL = {
    "communities": Spec("communities", kappa=10),
    "riboflavin": Spec("riboflavin", kappa=8),
    "blogfeedback": Spec("blogfeedback", kappa=20),
    "madelon": Spec("madelon", "logistic", kappa=10),
    "mushrooms": Spec("mushrooms", "logistic", kappa=8),
    "a9a": Spec("a9a", "logistic", kappa=15),
    "sms_spam": Spec("sms_spam", "logistic", kappa=15),
    "leukemia_golub": Spec("leukemia_golub", "logistic", kappa=4),
    "isolet1560": Spec("isolet1560", "softmax", kappa=10, sparsity="feature"),
    "fashion_mnist": Spec("fashion_mnist", "softmax", kappa=15, sparsity="feature"),
}
# Larger sets are cut to their first samples, so that every peer finishes.
MOST_SAMPLES = {"fashion_mnist": 3000}


def real_case(name: str, folder: Path) -> Case:
    """A real data set, its columns standardised (so that every method's own scaling is the same)."""
    spec, first = REAL[name], MOST_SAMPLES.get(name)
    raw = np.load(folder / f"{name}.npz")
    if "X" in raw.files:
        X = raw["X"][:first].astype(float)
    else:
        X = sparse.csr_matrix((raw["X_data"], raw["X_indices"], raw["X_indptr"]), shape=tuple(raw["X_shape"])).toarray()
    X = X[:, X.std(axis=0) > 0]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = raw["y"][:first]
    y = (y - y.mean()) / y.std() if spec.model == "linear" else np.unique(y, return_inverse=True)[1]
    return Case(replace(spec, samples=X.shape[0], features=X.shape[1]), -1, X, y)
