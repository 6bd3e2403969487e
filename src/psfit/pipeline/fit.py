"""From an instance to a polished answer: Bi-cADMM finds a support, the polish improves it and refits it exactly."""

from dataclasses import dataclass

from torch import Tensor

from psfit.admm.bicadmm import BiCADMM
from psfit.admm.checkpoint import Store
from psfit.admm.loop import iterate
from psfit.admm.record import Record
from psfit.common.status import Status
from psfit.problem.instance import Instance
from psfit.search.polish import Polished, Settled, polish

# Passes over the data that an iteration costs, roughly: the inner steps of the feature split.
PASSES = 4


@dataclass(frozen=True)
class Fitted:
    """An answer and how it was found; `candidates` is the number of features that were looked at closely."""

    answer: Polished
    status: Status
    history: tuple[Record, ...]
    local: str
    penalties: dict[str, float]
    candidates: int


def fit(
    inst: Instance,
    solver: BiCADMM,
    start: Tensor | None,
    known: Tensor | None = None,
    settled: Settled | None = None,
    store: Store | None = None,
) -> Fitted:
    """Iterate from coefficients ``start (n, c)`` (or zero) and polish; the support of `known` is polished, too.

    The search ends early where `settled` can prove that there is nothing left to find. `store` is for checkpoints.
    """
    inst.watch.begin("the first factorisation")
    setup, state = solver.init(inst, start)
    inst.watch.begin("the iteration")
    state, status, history = iterate(solver, setup, state, store)
    inst.watch.begin("the polish")
    passes = PASSES * state.iteration
    answer = polish(setup.instance, state.bilinear.z, setup.copies, solver.thoroughness, passes, known, settled)
    penalties = {"rho_c": setup.rho_c, "rho_b": float(setup.rho_b[0]), "rho_l": setup.sub.rho_l}
    return Fitted(answer, status, history, setup.solver.name, penalties, inst.items.features)
