"""The choice of a local solver by loss, shape and grid."""

from typing import Any

from psfit.admm.local.base import LocalSolver
from psfit.admm.local.direct import Direct
from psfit.admm.local.feature_split import FeatureSplit
from psfit.admm.local.majoriser import Majoriser
from psfit.admm.local.newton import Newton
from psfit.losses import Loss

NEWTON_VARIABLES = 64

BY_NAME: dict[str, LocalSolver[Any]] = {
    solver.name: solver for solver in (Direct(), Majoriser(), Newton(), FeatureSplit())
}


def choose(
    asked: LocalSolver[Any] | str | None, loss: Loss, features: int, outputs: int, blocks: int
) -> LocalSolver[Any]:
    """The solver that was asked for, or else the first of the table that can do the work.

    Direct solves the squared loss exactly. The majoriser needs one Gram product in all and two passes over the data in
    each step, for losses of bounded curvature. Newton computes a Gram product in each step, which is fast for few
    variables. The feature split works for all losses and grids.
    """
    if asked is not None:
        return _require_able(asked, loss, blocks)
    variables = features * outputs if loss.joint else features
    table: list[LocalSolver[Any]] = [Direct(), Majoriser(), FeatureSplit()]
    if variables <= NEWTON_VARIABLES:
        table.insert(2, Newton())
    return next(solver for solver in table if solver.objection(loss, blocks) is None)


def _require_able(asked: LocalSolver[Any] | str, loss: Loss, blocks: int) -> LocalSolver[Any]:
    if isinstance(asked, str):
        asked = BY_NAME[asked]
    objection = asked.objection(loss, blocks)
    if objection is not None:
        raise ValueError(f"local={asked.name!r}: {objection}")
    return asked
