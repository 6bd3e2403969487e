"""Which local solver: a small table over loss, shape and grid."""

from typing import Any

from psfit.admm.local.base import LocalSolver
from psfit.admm.local.direct import Direct
from psfit.admm.local.feature_split import FeatureSplit
from psfit.admm.local.newton import Newton
from psfit.losses import Loss

NEWTON_VARIABLES = 64

BY_NAME: dict[str, LocalSolver[Any]] = {solver.name: solver for solver in (Direct(), FeatureSplit(), Newton())}


def choose(
    asked: LocalSolver[Any] | str | None, loss: Loss, features: int, outputs: int, blocks: int
) -> LocalSolver[Any]:
    """The solver asked for, if it can work; else the first of the table that can.

    Direct solves the squared loss exactly. Newton's Gram product per step pays while it has few variables. The feature
    split works for everything.
    """
    if asked is not None:
        return _checked(asked, loss, blocks)
    variables = features * outputs if loss.joint else features
    table: list[LocalSolver[Any]] = [Direct(), FeatureSplit()]
    if variables <= NEWTON_VARIABLES:
        table.insert(1, Newton())
    return next(solver for solver in table if solver.objection(loss, blocks) is None)


def _checked(asked: LocalSolver[Any] | str, loss: Loss, blocks: int) -> LocalSolver[Any]:
    if isinstance(asked, str):
        asked = BY_NAME[asked]
    objection = asked.objection(loss, blocks)
    if objection is not None:
        raise ValueError(f"local={asked.name!r}: {objection}")
    return asked
