"""What a choice of the limit starts from, and what it ends with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psfit.admm.bicadmm import BiCADMM
from psfit.data.raw_form import RawForm
from psfit.estimators.results import Selection


@dataclass(frozen=True)
class Choice:
    """How a limit was chosen: the selection, what to warn of, the table of scores of folds, and the raw form of
    all samples if it is known.
    """

    selection: Selection
    concerns: list[str]
    cv_results: dict[str, Any] | None = None
    raw: RawForm | None = None


@dataclass(frozen=True)
class Candidates:
    """The limits and gammas to choose from, and the solver for them."""

    kappas: Sequence[int]
    gammas: Sequence[float]
    solver: BiCADMM
