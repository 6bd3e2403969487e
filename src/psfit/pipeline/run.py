"""The stages from posed data to answers. A fit is a path of one limit and has the same stages."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from psfit.admm.checkpoint import Store
from psfit.common.status import Status
from psfit.kernels import cpu
from psfit.kernels.cpu.threads import use_one_thread
from psfit.pipeline.answers import Answers
from psfit.pipeline.candidates import search_candidates
from psfit.pipeline.exact_mode import close_gap
from psfit.pipeline.forced_columns import shorten_forced_columns
from psfit.pipeline.one_limit import OneLimit, OneLimitSearch
from psfit.pipeline.proofs import OneLimitProver, Proofs, Prover, SeveralLimitsProver
from psfit.pipeline.several_limits import SeveralLimits, SeveralLimitsSearch
from psfit.pipeline.task import Task
from psfit.problem.instance import Instance
from psfit.search.equal_samples import FEWEST_SAMPLES
from psfit.search.explore import EFFORTS
from psfit.search.refit import Fit

# Data of at most so many numbers have small products, if their Gram matrix takes at most so many multiplications.
SMALL = 1 << 20
SMALL_PRODUCT = 1 << 29

# The budget of a certificate with the effort "high", as a multiple of the usual one.
PATIENCE = 4

Method = OneLimit | SeveralLimits
Search = OneLimitSearch | SeveralLimitsSearch


@dataclass(frozen=True)
class Outcome:
    """Answers for all limits, what is proved about them, and how the run ended."""

    answers: Answers
    proofs: Proofs
    status: Status


def run(
    inst: Instance,
    kappas: Sequence[int] | None,
    task: Task,
    start: tuple[Tensor, Tensor] | None = None,
    store: Store | None = None,
) -> Outcome:
    """Find answers, prove bounds, and search further where the bounds leave a gap.

    Parameters
    ----------
    inst : Instance
        The problem posed on the data, with the largest of its limits.
    kappas : sequence of int or None
        Rising limits, which hold for each independent problem; None for the limits of the instance alone.
    start : tuple of Tensor, optional
        Coefficients and intercepts of the user to start a single limit from.
    store : Store, optional
        Where checkpoints of a single limit are kept.
    """
    _prepare_kernels(inst)
    # Limits of the user count what the user's kappa counts; from here on they count all items of a support.
    kappas = None if kappas is None else [kappa + inst.extra for kappa in kappas]
    numbers = inst.samples * len(inst.ridge)
    with use_one_thread(numbers <= SMALL and numbers * len(inst.ridge) <= SMALL_PRODUCT):
        return _run_stages(inst, kappas, task, start, store)


def _run_stages(
    inst: Instance,
    kappas: Sequence[int] | None,
    task: Task,
    start: tuple[Tensor, Tensor] | None,
    store: Store | None,
) -> Outcome:
    begin = None if start is None else inst.coordinates.from_user(*start).to(inst.source.matrix.dtype)
    limits = [] if kappas is None or (len(kappas) == 1 and not task.brief) else list(kappas)
    prover: Prover | None = None
    if task.certify and not task.exact:
        gap = task.solver.certified_gap
        patience = PATIENCE if task.effort == "high" else 1
        prover = SeveralLimitsProver(inst, gap, limits, patience) if limits else OneLimitProver(inst, gap, patience)

    searches = EFFORTS[task.effort] is not None

    def find(
        part: Instance, start: Tensor | None, known: Tensor | None, store: Store | None, complete: bool = True
    ) -> Answers:
        if known is not None and not searches:
            # Without a search only an iteration leads from known supports to better ones.
            start, known = known[0], None
        method: Method = OneLimit(part, task, start, None if known is None else known[0], store, complete)
        if limits:
            method = SeveralLimits(part, limits, task, known)
        return find_answers(part, method, prover if part is inst else None)

    short = shorten_forced_columns(inst) if searches else None
    if short is not None:
        limits = short.lower(limits)
        begin = None if begin is None else inst.pick_rows(begin, short.kept)
    part = inst if short is None else short.rest
    if part.costs.uses_candidates:
        thorough = part.source.matrix.streamed or not searches
        in_stages = searches and not limits and not part.problem.loss.quadratic
        answers = search_candidates(part, find, begin, store, thorough, in_stages)
    else:
        answers = find(part, begin, None, store)
    answers = answers if short is None else short.restore(answers)
    status, proofs = answers.iteration.status, Proofs.none(answers)
    if task.exact:
        inst.watch.begin("the proof")
        answers, proofs, status = close_gap(inst, answers, task.solver.gap_tol, store)
    elif prover is not None:
        inst.watch.begin("the proof")
        proofs = prover.prove(answers)
    if inst.watch.ended is not None and status is not Status.PROVED:
        status = inst.watch.ended
    return Outcome(answers, proofs, status)


def _prepare_kernels(inst: Instance) -> None:
    """Compile what a fit on a CPU needs; the first fit on a machine reports that it waits for it."""
    if inst.source.matrix.device.type == "cpu":
        loss = inst.problem.loss
        names = ["sparsify", "summarise"]
        names += [] if loss.quadratic else ["weighted_gram", "support_sums"]
        names += [] if loss.quadratic or inst.samples < FEWEST_SAMPLES else ["equal_samples"]
        names += [] if inst.source.matrix.centres_entries else ["sparse_gram"]
        names += ["perspective"] if inst.costs.uses_form else ["joint_steps" if loss.joint else "node_models"]
        swaps = "bounded_swaps" if inst.box is not None else "swaps"
        names += ["block_swaps"] if inst.items.in_blocks else [swaps]
        names += ["shrink_groups"] if inst.items.in_groups else []
        names += ["share_rows"] if inst.items.in_blocks or inst.box is not None else []
        cpu.prepare(names, lambda: inst.watch.begin("the compilation of kernels, once on this machine"))


def find_answers(inst: Instance, method: Method, prover: Prover | None) -> Answers:
    """Find starts for all problems by the iteration; then search, refit and prove for each problem."""
    iteration = method.iterate()
    searches = [method.search(number) for number in range(inst.items.problems)]
    fits = [solve_problem(inst, number, search, prover) for number, search in enumerate(searches)]
    made = [replace(one, problem=number) for number, search in enumerate(searches) for one in search.contributions]
    return Answers.of(inst, fits, iteration, made)


def solve_problem(inst: Instance, number: int, search: Search, prover: Prover | None) -> list[Fit]:
    """Fits for all limits: search further until the proof closes the gap, or no search is left."""
    inst.watch.begin("the polish")
    found = search.first()
    open_limits = list(range(len(found)))
    while True:
        # A fit that must stop still proves its answer, but does not search further.
        stopped = inst.watch.must_stop()
        if prover is not None:
            open_limits = prover.open_limits(number, search.refit(found))
        if stopped or not open_limits:
            break
        better = search.further(open_limits)
        if better is None:
            break
        found = better
    return _keep_falling(search.refit(found))


def _keep_falling(fits: list[Fit]) -> list[Fit]:
    """Use the fit of a smaller limit where, by rounding, the objective would rise with the limit."""
    kept: list[Fit] = []
    for fit in fits:
        kept.append(kept[-1] if kept and kept[-1].value < fit.value else fit)
    return kept
