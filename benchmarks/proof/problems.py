"""Problems from easy to hard to prove: samples per feature, correlation, signal and ridge."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "quality"))
from suite import LINEAR, Case, Spec, draw

SPECS = [
    Spec("30 features, ar 0.8", samples=80, features=30, kappa=5, correlation=0.8, snr=2.0),
    Spec("50 features, independent", samples=200, features=50, kappa=5),
    Spec("50 features, ar 0.5, few samples", samples=60, features=50, kappa=5, correlation=0.5),
    Spec("40 features, 40 samples, gamma 1", samples=40, features=40, kappa=4, gamma=1.0),
    Spec("60 features, 30 samples, gamma 0.02", samples=30, features=60, kappa=3, gamma=0.02),
    Spec("100 features, independent", samples=500, features=100, kappa=10),
    Spec("100 features, ar 0.7", samples=300, features=100, kappa=8, correlation=0.7),
    Spec("100 features, ar 0.7, gamma 1000", samples=300, features=100, kappa=8, correlation=0.7, gamma=1000.0),
    Spec("100 features, ar 0.9, high signal", samples=200, features=100, kappa=5, correlation=0.9, snr=20.0),
    Spec("200 features, independent", samples=1000, features=200, kappa=10),
    Spec("200 features, ar 0.5", samples=400, features=200, kappa=10, correlation=0.5),
    Spec("200 features, ar 0.9", samples=400, features=200, kappa=10, correlation=0.9),
    Spec("200 features, equicorrelated 0.5", samples=400, features=200, kappa=10, design="equal", correlation=0.5),
    Spec("200 features, ar 0.8, low signal", samples=400, features=200, kappa=10, correlation=0.8, snr=1.0),
]


def cases(seed: int) -> list[Case]:
    """One problem of each kind."""
    return [draw(spec, seed) for spec in SPECS]


def quality_cases(seeds: int) -> list[Case]:
    """The quality suite's problems with squared loss and at most 200 features."""
    return [draw(spec, seed) for spec in LINEAR if spec.features <= 200 for seed in range(seeds)]
