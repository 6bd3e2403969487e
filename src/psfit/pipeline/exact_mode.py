"""Exact mode: branch and bound for each problem, until no support can be better by more than the gap."""

import signal
from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import Tensor

from psfit.admm.checkpoint import Store
from psfit.admm.loop import StoppedError
from psfit.certificate import Proof, Request, Standing, prove
from psfit.certificate.exact import has_small_form
from psfit.certificate.newton_cases import serves
from psfit.common.status import Status
from psfit.pipeline.answers import Answers
from psfit.pipeline.proofs import Proofs, fit_supports
from psfit.pipeline.tree_checkpoint import TreeCheckpoint
from psfit.problem.instance import Instance
from psfit.search.refit import refit

# The most numbers in the open nodes of a search tree together; on a GPU the share of its memory that they may fill.
MOST_STORED = 250_000_000
MEMORY_SHARE = 1 / 8


def close_gap(
    inst: Instance, answers: Answers, gap_tol: float, store: Store | None = None
) -> tuple[Answers, Proofs, Status]:
    """Search for better supports than those of the answers; return better answers, proofs, and why it ended.

    With a store the trees of an earlier run are continued, and SIGTERM ends the run after its checkpoint.
    """
    proofs: list[Proof] = []
    reasons: list[Status] = []
    watch = inst.watch
    for number, value in enumerate(answers.objectives[0].tolist()):
        keeper = None if store is None else TreeCheckpoint(store, inst, number, gap_tol)

        def stop(state: Standing, number: int = number) -> bool:
            watch.reporter.report_objective(number, state.upper)
            watch.reporter.report_bound(number, state.lower)
            watch.reporter.report(explored=state.explored, open=state.open)
            if watch.must_stop():
                assert watch.ended is not None
                reasons.append(watch.ended)
                return True
            return store is not None and watch.was_terminated()

        fit = fit_supports(inst, number, answers.Z[0])
        request = Request(value, gap_tol, stop, count_open(inst), keeper)
        with nullcontext() if store is None else watch.signals.catch(signal.SIGTERM):
            proof = prove(inst, number, answers.Z[0], fit, request)
            _end_if_terminated(inst, proof, store)
        if proof.support is not None:
            answers = _improve(inst, number, answers, proof.support)
        proofs.append(proof)
    closed = all(proof.upper - proof.lower <= gap_tol * abs(proof.upper) for proof in proofs)
    if closed:
        return answers, Proofs.of(proofs), Status.PROVED
    return answers, Proofs.of(proofs), reasons[0] if reasons else Status.ROUNDING


def _end_if_terminated(inst: Instance, proof: Proof, store: Store | None) -> None:
    """Raise an error if SIGTERM has come: the tree is kept, and can be continued."""
    if store is None or not inst.watch.was_terminated():
        return
    raise StoppedError(
        f"stopped by a signal after {proof.explored} tree nodes; the same command goes on from the checkpoint in "
        f"{store.folder.path}",
        inst.grid.world.rank,
    )


def count_open(inst: Instance) -> float:
    """About how many tree nodes may wait: each keeps coefficients, multipliers, masks and, without a form, slopes."""
    slopes = 0 if has_small_form(inst) or serves(inst) else inst.sizes.most_rows
    device, node_size = inst.ridge.device, inst.source.matrix.shape[1] * len(inst.items.outputs_of(0)) * 3 + slopes
    if device.type == "cpu":
        return MOST_STORED / node_size
    return MEMORY_SHARE * torch.cuda.get_device_properties(device).total_memory / (8 * node_size)


def _improve(inst: Instance, number: int, answers: Answers, support: Tensor) -> Answers:
    """The answers with one problem refitted on another support, if that is better."""
    exact = refit(inst, number, support, answers.Z[0])
    if exact.value >= float(answers.objectives[0, number]):
        return answers
    objectives = answers.objectives.clone()
    objectives[0, number] = exact.value
    residual = max(answers.residual, exact.residual)
    return replace(answers, Z=exact.Z.unsqueeze(0), objectives=objectives, residual=residual)
