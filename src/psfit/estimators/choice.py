"""The input and the result of a choice of the limit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psfit.admm.bicadmm import BiCADMM
from psfit.data.raw_form import RawForm
from psfit.estimators.results import Selection


@dataclass(frozen=True)
class Choice:
    """The result of a choice: the selection, texts for a warning, the table of the folds' scores, and the raw form of
    all samples if it is known.
    """

    selection: Selection
    concerns: list[str]
    cv_results: dict[str, Any] | None = None
    raw: RawForm | None = None


@dataclass(frozen=True)
class Candidates:
    """The limits and gammas to choose from, the solver for them, and whether nearly equal gammas count as equal."""

    kappas: Sequence[int]
    gammas: Sequence[float]
    solver: BiCADMM
    careful: bool = False
