"""The problems: the quality suite, real data at several limits, and large generated data; squared and logistic loss."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "quality"))
from suite import LINEAR, OTHERS, Case, Model, Spec, draw, real_case

SETS = ("quick", "suite", "fresh", "real", "large")
MODELS: tuple[Model, ...] = ("linear", "logistic")
SEEDS = {"suite": (0, 1, 2), "fresh": (1000, 1001, 1002)}
QUICK = ("linear ar 0.9", "linear p>n ar 0.7", "linear small ar 0.8", "logistic ar 0.8")
KAPPAS = {
    "communities": (5, 10, 20, 40),
    "blogfeedback": (10, 20, 40),
    "riboflavin": (4, 8, 16),
    "a9a": (5, 15, 30),
    "mushrooms": (4, 8, 16),
    "madelon": (5, 10, 20),
    "leukemia_golub": (2, 4, 8),
    "sms_spam": (5, 15, 40),
}
# Samples, features and kappa.
SIZES = ((500, 8_000, 10), (5_000, 10_000, 100), (20_000, 1_000, 200), (100_000, 1_000, 50))
# Correlation and signal-to-noise ratio.
DESIGNS = {"ar 0.5": (0.5, 5.0), "ar 0.9": (0.9, 5.0), "ar 0.5, low signal": (0.5, 0.2)}


@dataclass(frozen=True)
class Problem:
    """A problem by its name; `make` reads or draws its data."""

    group: str
    name: str
    make: Callable[[], Case]


def problems(sets: list[str], folder: Path | None, parts: list[str]) -> Iterator[Problem]:
    """Those of some sets whose names contain one of some parts; all if there are no parts."""
    for chosen in sets:
        for problem in _set(chosen, folder):
            if not parts or any(part in problem.name for part in parts):
                yield problem


def _set(name: str, folder: Path | None) -> Iterator[Problem]:
    specs = [spec for spec in LINEAR + OTHERS if spec.model in MODELS]
    if name == "real":
        for data, kappas in KAPPAS.items() if folder else ():
            for kappa in kappas:
                yield Problem(name, f"{data}, kappa {kappa}", partial(_real, data, kappa, folder))
    elif name == "large":
        for spec in _large():
            yield Problem(name, spec.name, partial(draw, spec, 0))
    elif name == "quick":
        for spec in specs:
            if spec.name in QUICK:
                yield Problem(name, f"{spec.name}#0", partial(draw, spec, 0))
    else:
        for spec in specs:
            for seed in SEEDS[name]:
                yield Problem(name, f"{spec.name}#{seed}", partial(draw, spec, seed))


def _real(name: str, kappa: int, folder: Path) -> Case:
    case = real_case(name, folder)
    return replace(case, spec=replace(case.spec, kappa=kappa))


def _large() -> Iterator[Spec]:
    for model in MODELS:
        for samples, features, kappa in SIZES:
            for design, (correlation, snr) in DESIGNS.items():
                name = f"{model} {samples:,} x {features:,}, kappa {kappa}, {design}"
                yield Spec(name, model, samples, features, kappa, correlation=correlation, snr=snr)
