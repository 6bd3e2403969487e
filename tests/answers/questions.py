"""The kinds of questions: a fit, a choice of the limit, a path, a stability selection, `psfit.solve`."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from answers import forms, outcome
from answers.place import Place

import psfit
from psfit.losses import Loss

Data = tuple[np.ndarray, np.ndarray]
Form = Callable[[np.ndarray, np.ndarray, Path], dict]


@dataclass(frozen=True)
class Question(ABC):
    """Data in some form, and a grid."""

    data: Data
    options: dict[str, Any] = field(default_factory=dict)
    form: Form = forms.arrays
    weight: np.ndarray | None = None
    grid: dict[str, Any] = field(default_factory=dict)

    def given(self, place: Place) -> dict[str, Any]:
        """What `fit` is called with, of this rank's samples."""
        X, y = self.data
        rows = place.rows(len(X), self.grid.get("blocks", 1))
        weighted = {} if self.weight is None else {"sample_weight": self.weight[rows]}
        return self.form(X[rows], y[rows], place.folder) | weighted

    @abstractmethod
    def solve(self, place: Place) -> dict[str, Any]:
        """Its answer at a place."""


@dataclass(frozen=True, kw_only=True)
class Fit(Question):
    """A model with a given limit; with `earlier`, it starts from the answer for that limit."""

    model: Callable[..., Any]
    kappa: int | float | None
    earlier: int | None = None
    groups: str | None = "categories"

    def solve(self, place: Place) -> dict[str, Any]:
        options = {"gamma": 1.0} | self.options
        model = self.model(self.kappa, grid=place.grid(**self.grid), groups=self.groups, **options)
        given = self.given(place)
        if self.earlier is not None:
            model.set_params(kappa=self.earlier, warm_start=True).fit(**given)
            model.set_params(kappa=self.kappa)
        return outcome.of_fit(model.fit(**given).result_)


@dataclass(frozen=True, kw_only=True)
class Choice(Question):
    """A model that chooses its limit."""

    model: Callable[..., Any]
    kappas: tuple[int, ...]

    def solve(self, place: Place) -> dict[str, Any]:
        model = self.model(self.kappas, grid=place.grid(**self.grid), **{"gammas": 1.0} | self.options)
        return outcome.of_choice(model.fit(**self.given(place)))


@dataclass(frozen=True, kw_only=True)
class Along(Question):
    """Many limits at once."""

    kappas: tuple[int, ...]

    def solve(self, place: Place) -> dict[str, Any]:
        given = self.given(place)
        options = {"gammas": 1.0} | self.options
        path = psfit.sparse_path(kappas=self.kappas, grid=place.grid(**self.grid), **given, **options)
        return outcome.of_path(path)


@dataclass(frozen=True, kw_only=True)
class Halves(Question):
    """A stability selection."""

    kappas: tuple[int, ...]

    def solve(self, place: Place) -> dict[str, Any]:
        chosen = psfit.stability_selection(
            kappas=self.kappas,
            resamples=10,
            random_state=0,
            grid=place.grid(**self.grid),
            **self.given(place),
            **{"gamma": 1.0} | self.options,
        )
        return outcome.of_stability(chosen)


@dataclass(frozen=True, kw_only=True)
class Below(Question):
    """`psfit.solve`, on tensors; with `start`, from all coefficients at that number."""

    loss: Loss
    kappa: tuple[int, ...]
    start: float | None = None

    def solve(self, place: Place) -> dict[str, Any]:
        X, y = (torch.from_numpy(part).to(place.device) for part in self.data)
        target = y.double().reshape(len(X), -1)
        source = psfit.Source(psfit.Dense(X), target, torch.ones_like(target[:, :1]))
        problem = psfit.Problem(self.loss, self.kappa, **self.options)
        start = None
        if self.start is not None:
            outputs = target.shape[1]
            start = torch.full((X.shape[1], outputs), self.start).to(X), torch.zeros(outputs).to(X)
        return outcome.of_fit(psfit.solve(problem, source, grid=place.grid(**self.grid), start=start))
