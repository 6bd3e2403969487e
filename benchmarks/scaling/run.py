"""Scale on paper, checked by runs: what a fit sends and computes, how long that takes, and how iterations grow.

``python benchmarks/scaling/run.py --output benchmarks/results`` counts messages on 1, 2 and 4 ranks (torchrun), times
iterations in one process and on ranks beside the cost model of `model.py`, puts the model's figures for 1,000 nodes
together, and counts iterations with 1 to 1,000 simulated nodes. One thread for each process.
"""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch
from grow import growth, jobs
from model import Shape, iteration, product, reductions, ring_seconds, set_up, tree_seconds
from ranks import Case, clock, measure, parts
from report import Count, Far, Network, Sent, Timing, write

RANKS = (1, 2, 4)
IN_PROCESS = (2, 4, 8, 16, 32, 64)
COUNTED = [
    Case("squared", 4, 60, 20, "low"),
    Case("squared", 4, 60, 20, intercept=True),
    Case("logistic", 4, 60, 20, "low", intercept=True),
    Case("logistic", 4, 60, 20, "low", blocks=2),
    Case("logistic", 4, 60, 20, blocks=2, intercept=True),
]
FITTED = [Case("squared", 4, 500, 100), Case("logistic", 4, 500, 100)]
TIMED = [Case("squared", 8, 800, 800), Case("logistic", 8, 2000, 100)]
ALONE = [Case("squared", 2, 300, 300), Case("logistic", 2, 400, 100)]
NETWORK = Network(nodes=1000, latency=25e-6, bandwidth=10e9)


@dataclass(frozen=True)
class Measured:
    """All that was found on ranks."""

    counts: list[Count]
    sent: list[Sent]
    timings: list[Timing]


def on_ranks(ranks: int, tasks: list[tuple[str, Case]]) -> list[dict]:
    """What rank 0 of so many real ranks finds."""
    torchrun, script = Path(sys.executable).parent / "torchrun", Path(__file__).parent / "ranks.py"
    given = json.dumps([(name, asdict(case)) for name, case in tasks])
    command = [str(torchrun), "--standalone", "--nproc-per-node", str(ranks), str(script), given]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise RuntimeError(f"{ranks} ranks failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def from_ranks() -> Measured:
    """Messages and times on real ranks; what a whole fit sends is counted on two of them."""
    found = Measured([], [], [])
    for ranks in RANKS:
        fitted = FITTED if ranks == 2 else []
        tasks = [("count", c) for c in COUNTED] + [("measure", c) for c in TIMED] + [("fit", c) for c in fitted]
        answers = on_ranks(ranks, tasks)
        for (task, case), answer in zip(tasks, answers, strict=True):
            shape = Shape(**answer["shape"])
            if task == "count":
                found.counts.append(_count(case, shape, answer))
            elif task == "measure":
                found.timings.append(timing(case, shape, answer))
            else:
                found.sent.append(_sent(case, shape, answer))
            print(ranks, task, case, answer, flush=True)
    return found


def _count(case: Case, shape: Shape, answer: dict) -> Count:
    costs = set_up(shape), iteration(shape)
    model = [(cost.reductions, cost.numbers, cost.numbers * shape.itemsize) for cost in costs]
    return Count(
        case=f"{case.loss}, {case.effort}" + ", intercept" * case.intercept,
        nodes=case.nodes,
        blocks=case.blocks,
        ranks=answer["ranks"],
        model=(*model[0], *model[1]),
        counted=(*answer["set_up"], *answer["iteration"]),
    )


def _sent(case: Case, shape: Shape, answer: dict) -> Sent:
    """A fit's traffic by phase; the iteration's share follows from the counts, which were exact."""
    each = iteration(shape)
    before, during = set_up(shape), (answer["n_iter"] * each.reductions, answer["n_iter"] * each.numbers)
    unproved, proved = answer["unproved"], answer["proved"]
    polish = [unproved[k] - during[k] - (before.reductions, before.numbers)[k] for k in range(2)]
    proof = [proved[k] - unproved[k] for k in range(2)]
    phases = {"set-up": (before.reductions, before.numbers), "iterations": during, "polish": polish, "proof": proof}
    return Sent(case.loss, case.nodes * case.rows, case.features, answer["ranks"], answer["n_iter"], phases)


def timing(case: Case, shape: Shape, answer: dict) -> Timing:
    """The model's parts beside the measured time: products grow by the bytes of the other vectors."""
    cost = iteration(shape)
    size = cost.numbers * shape.itemsize
    return Timing(
        loss=case.loss,
        nodes=case.nodes,
        ranks=answer["ranks"],
        rows=case.rows,
        columns=shape.columns,
        gflops=product(shape)[0] / answer["product"] / 1e9,
        other_gflops=product(shape)[0] / answer["other_layout"] / 1e9,
        by_rows=answer["by_rows"],
        local=answer["product"] * cost.bytes / product(shape)[1],
        reduction=cost.reductions * answer["latency"] + size * answer["per_byte"],
        central=answer["global"],
        rest=answer["rest"],
        measured=answer["seconds"],
    )


def far(network: Network, rows: int = 10_000) -> list[Far]:
    """An iteration on many nodes, each as fast as one core here, from parts measured here one by one."""
    A = torch.rand(4000, 1000, dtype=torch.float64)
    rate = 2 * A.numel() * A.shape[1] / clock(lambda: A.T @ A)
    tree = partial(tree_seconds, latency=network.latency, bandwidth=network.bandwidth)
    found = []
    for n in (1000, 10_000):
        for loss, blocks in (("squared", 1), ("logistic", 1), ("logistic", 4)):
            inner = 5 if loss == "logistic" else 0
            s = Shape(rows, n, 3, 1, copies=3, blocks=blocks, across=blocks, down=network.nodes, inner=inner)
            answer, cost = parts(loss, s), iteration(s)
            (_, numbers, ranks), *inside = reductions(s)
            found.append(
                Far(
                    loss=loss,
                    columns=n,
                    blocks=blocks,
                    local=answer["product"] * cost.bytes / product(s)[1],
                    within=sum(times * tree(among, s.itemsize * size) for times, size, among in inside),
                    tree=tree(ranks, s.itemsize * numbers),
                    ring=ring_seconds(ranks, s.itemsize * numbers, network.latency, network.bandwidth),
                    central=answer["global"],
                    rest=answer["rest"],
                    set_up=set_up(s).flops / rate,
                    gigabytes=set_up(s).bytes / 1e9,
                )
            )
            print(found[-1], flush=True)
    return found


def main() -> None:
    """Measure, print as it goes, write everything at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    found, alone = from_ranks(), []
    for case in (replace(case, nodes=nodes) for case in ALONE for nodes in IN_PROCESS):
        answer = measure(case)
        alone.append(timing(case, Shape(**answer["shape"]), answer))
        print(alone[-1], flush=True)
    distant = far(NETWORK)
    grown = growth(list(jobs()), workers=2)
    write(options.output, found.counts, found.sent, alone, found.timings, NETWORK, distant, grown)


if __name__ == "__main__":
    main()
