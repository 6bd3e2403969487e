"""Whole paths: every limit kappa, and every gamma, for little more than one fit.

The data are posed once, and the Gram matrices and factors serve all limits. For scalar losses some limits, spread over
the path, are columns of one batch of the iteration; the others start from their neighbours, up and down the path. The
exact refit and the bounds of all limits share their passes over the data. A joint loss goes up the path by warm starts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

import numpy as np
import torch
from torch import Tensor

from psfit.admm.bicadmm import BiCADMM
from psfit.admm.loop import iterate
from psfit.certificate.path_bounds import BoundsAlong
from psfit.comm import Grid, GridSpec
from psfit.comm.watch import Callback, Watch
from psfit.common.arguments import describe, integer, several
from psfit.common.signals import choose_signals
from psfit.common.status import CUT_SHORT, Status
from psfit.data import Source
from psfit.data.raw_form import RawForm
from psfit.pipeline.solve import guarded, prepared, require_finite
from psfit.problem import Items, Problem, largest
from psfit.problem.instance import Instance
from psfit.problem.pose import pose
from psfit.search.batch import fits_in_memory, supports_in_lockstep
from psfit.search.neighbours import passed_on, refit_along, restarted, supports_along
from psfit.search.objective import FormObjective, Objective, objective_of
from psfit.search.refit import Fit

# Limits of a path that the iteration looks for; the others are found from their neighbours. Those of a joint loss
# share no factors and come one after the other.
OWN_STARTS = 10
JOINT_STARTS = 4
KAPPAS = several("a sequence of integers of at least 1", integer(1, floats=True))


@dataclass(frozen=True)
class Points:
    """A path for one gamma, an entry for each limit: coefficients ``(K, p, c)`` and intercepts ``(K, c)`` in the
    user's units, objectives and lower bounds ``(K,)`` summed over independent problems; and why the iteration or the
    search ended early, if it did.
    """

    coefs: np.ndarray
    intercepts: np.ndarray
    objectives: np.ndarray
    lower_bounds: np.ndarray
    ended: Status | None


@dataclass(frozen=True)
class Plan:
    """How to search: the solver, whether to prove bounds, whether to end at the first answers."""

    solver: BiCADMM
    certify: bool
    brief: bool


@torch.inference_mode()
def solve_path(
    problem: Problem,
    source: Source,
    kappas: Iterable[int],
    gammas: Sequence[float],
    solver: BiCADMM | None = None,
    grid: Grid | GridSpec | None = None,
    certify: bool = True,
    brief: bool = False,
    raw: RawForm | None = None,
    callback: Callback | None = None,
    keyboard: bool = False,
) -> list[Points]:
    """Paths over rising `kappas`, one for each of `gammas`; the `kappa` and `gamma` of the problem do not matter.

    With several targets (independent problems) each limit holds for each of them. A `brief` path ends at supports that
    no swap improves, without restarts or bounds. A known `raw` form of the source spares a pass. `callback` hears of
    `Progress`; if it returns True, or the time limit comes, what is found is refitted and returned. So it is at Ctrl-C
    with `keyboard`.
    """
    solver = solver or BiCADMM()
    items = problem.items(source.matrix.shape[1], source.outputs)
    limits = check_kappas(kappas, items)
    widest = replace(problem, kappa=(limits[-1],) * items.problems)
    grid = prepared(widest, source, solver, grid, kappas=limits, gammas=list(gammas), certify=certify, brief=brief)
    watch = Watch(grid, solver.time_limit, callback, signals=choose_signals(solver.interruptible, keyboard))
    with watch.catch_signals():
        exact = solver.precision == "highest"
        inst = pose(replace(widest, gamma=gammas[0]), source, grid, exact, raw, watch)
        plan = Plan(solver, certify and not brief, brief)
        _require_whole(inst)
        return guarded(grid, lambda: [_path(inst.at_gamma(gamma), list(limits), plan) for gamma in gammas])


def _require_whole(inst: Instance) -> None:
    """Refuse data on whose candidates alone a path would have to live."""
    if inst.costs.uses_candidates:
        raise ValueError(
            f"X: its {inst.items.features:,} columns are too many to factor, or too far away to pass over often; "
            "fit single values of kappa, which look at candidates first, or keep fewer columns"
        )


def check_kappas(kappas: Iterable[int], items: Items) -> tuple[int, ...]:
    """The limits, rising; or an error that says what is wrong with them."""
    rising = tuple(sorted(set(KAPPAS("kappas", kappas))))
    if rising[-1] > items.size:
        raise ValueError(
            f"kappas={describe(list(rising))} must lie between 1 and {items.size}, all there is to choose from "
            f"with n_features={items.features}"
        )
    return rising


def _path(inst: Instance, kappas: list[int], plan: Plan) -> Points:
    """All limits for one gamma."""
    inst.watch.begin("the iteration")
    starts, status = (_starts if inst.items.separate else _warm_starts)(inst, kappas, plan.solver)
    n, c = inst.source.matrix.shape[1], inst.items.outputs
    Z = torch.zeros(len(kappas), n, c, dtype=torch.float64, device=inst.ridge.device)
    values = torch.zeros(len(kappas), dtype=torch.float64, device=Z.device)
    lower = values.clone()
    for number in range(inst.items.problems):
        outputs = inst.items.outputs_of(number)
        fits, bounds = _problem_path(inst, number, kappas, starts[number], plan)
        Z[:, :, outputs] = torch.stack([fit.Z for fit in fits])[:, :, outputs]
        values += _values(fits, Z.device)
        lower += bounds
    answers = [inst.coordinates.to_user(part) for part in Z]
    coefs, intercepts = (torch.stack(parts) for parts in zip(*answers, strict=True))
    # Objectives of a brief path are not exact and nobody reads them.
    require_finite(coefs, intercepts, *([] if plan.brief else [values]))
    return Points(
        coefs=coefs.cpu().numpy(),
        intercepts=intercepts.cpu().numpy(),
        objectives=values.cpu().numpy(),
        lower_bounds=lower.cpu().numpy(),
        ended=inst.watch.ended or (status if status in CUT_SHORT else None),
    )


def _problem_path(
    inst: Instance, number: int, kappas: list[int], starts: dict[int, Tensor], plan: Plan
) -> tuple[list[Fit], Tensor]:
    """Fits and bounds ``(K,)`` of one problem for all limits.

    Where bounds leave something to find, these limits search on, and the others learn from them.
    """
    rel_tol = inst.resolution
    outputs = inst.items.outputs_of(number)
    bounds_along = BoundsAlong(inst.single(number), plan.solver.certified_gap)
    limits = torch.tensor(kappas, device=inst.ridge.device)

    def proved(fits: list[Fit], which: list[int]) -> Tensor:
        inst.watch.begin("the proof")
        if not plan.certify:
            return torch.full((len(which),), -torch.inf, dtype=torch.float64, device=limits.device)
        Z = torch.stack([fits[k].Z[:, outputs] for k in which])
        objectives = _values([fits[k] for k in which], limits.device)
        return bounds_along(limits[which], Z, objectives)

    inst.watch.begin("the polish")
    scene = objective_of(inst, number)
    zero = torch.zeros_like(inst.ridge.expand(-1, inst.items.outputs))
    steps, benign = None, False
    along = supports_in_lockstep(scene, kappas, starts, zero, rel_tol) if _in_lockstep(scene, kappas) else None
    if inst.grid.agree(along is None):
        found = supports_along(scene, kappas, starts, zero, rel_tol)
    else:
        assert along is not None
        found, steps, benign = along.stops, along.steps, inst.grid.agree(along.benign)
    if plan.brief and _known_exactly(inst):
        # Fits from products in float64 are good to many digits; only objectives, which no one asks for, are not.
        fits = [stop.fit for stop in found.values()]
    else:
        fits = refit_along(inst, number, list(found.values()), steps)
    everything = list(range(len(kappas)))
    bounds = proved(fits, everything)
    values = _values(fits, limits.device)
    # Every rank must come to the same decision, also where their processors round differently.
    enough = plan.solver.certified_gap
    wide = [inst.grid.agree(bool(v - b > enough * abs(v))) for v, b in zip(values, bounds, strict=True)]
    # Where different starts have led to the same places, more of them would, too.
    if any(wide) and not plan.brief and not (benign and plan.solver.effort != "high"):
        inst.watch.begin("the polish")
        # First limits that are spread over the path, then the others.
        order = sorted(kappas, key=lambda kappa: kappa not in _spread(kappas, OWN_STARTS))
        doubtful = [kappa for kappa in order if wide[kappas.index(kappa)]]
        better = restarted(scene, found, doubtful, rel_tol, plan.solver.effort)
        better = passed_on(scene, better, rel_tol)
        changed = [k for k, kappa in enumerate(kappas) if better[kappa].chosen is not found[kappa].chosen]
        moved = refit_along(inst, number, [better[kappas[k]] for k in changed]) if changed else []
        for k, fit in zip(changed, moved, strict=True):
            fits[k] = fit
        if changed:
            bounds[changed] = torch.maximum(bounds[changed], proved(fits, changed))
    fits = _monotone(fits)
    return fits, torch.minimum(bounds, _values(fits, limits.device))


def _in_lockstep(scene: Objective, kappas: list[int]) -> TypeGuard[FormObjective]:
    """Whether all limits are searched at once: on a GPU, where many small steps take longer than a large one."""
    if not isinstance(scene, FormObjective) or scene.form.G.device.type != "cuda":
        return False
    return len(scene.outputs) == 1 and fits_in_memory(scene, kappas)


def _known_exactly(inst: Instance) -> bool:
    """Whether products in float64, of columns that were not rounded on any rank, say all about the data."""
    return inst.source.forms.known is not None and not bool(inst.form.curvature.rounded.any())


def _values(fits: list[Fit], device: torch.device) -> Tensor:
    return torch.tensor([fit.value for fit in fits], dtype=torch.float64, device=device)


def _monotone(fits: list[Fit]) -> list[Fit]:
    """Rounding of the refits must not let an objective rise along the path: a smaller support is allowed, too."""
    kept: list[Fit] = []
    for fit in fits:
        kept.append(kept[-1] if kept and kept[-1].value < fit.value else fit)
    return kept


def _starts(inst: Instance, kappas: list[int], solver: BiCADMM) -> tuple[list[dict[int, Tensor]], Status]:
    """Supports of some limits from one batched iteration, for every problem; and how it ended."""
    own = _spread(kappas, OWN_STARTS)
    problems = inst.items.problems
    many = inst.with_limits(tuple(kappa for kappa in own for _ in range(problems)))
    # The limits are many columns already.
    single = replace(solver, portfolio=False)
    setup, state = single.init(many)
    state, status, _ = iterate(single, setup, state)
    chosen = largest(many.items.pack(state.bilinear.z), many.kappa)
    return [dict(zip(own, chosen[number::problems], strict=True)) for number in range(problems)], status


def _spread(kappas: list[int], count: int) -> list[int]:
    """So many of the limits, from the first to the last."""
    places = np.linspace(0, len(kappas) - 1, min(len(kappas), count)).round().astype(int)
    return [kappas[k] for k in np.unique(places)]


def _warm_starts(inst: Instance, kappas: list[int], solver: BiCADMM) -> tuple[list[dict[int, Tensor]], Status]:
    """Supports of some limits of a joint problem, each iteration started where the one before ended; and how the first
    of them that was cut short ended.
    """
    found: dict[int, Tensor] = {}
    start, ended = None, Status.CONVERGED
    for kappa in _spread(kappas, JOINT_STARTS):
        one = replace(inst, problem=replace(inst.problem, kappa=(kappa,)))
        setup, state = solver.init(one, start)
        state, status, _ = iterate(solver, setup, state)
        start = state.bilinear.z
        found[kappa] = largest(one.items.pack(start), one.kappa)[0]
        ended = status if ended not in CUT_SHORT else ended
    return [found], ended
