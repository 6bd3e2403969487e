"""Where the time of a fit goes: each step beside its floor, and one outer iteration.

``python benchmarks/paper/parts.py`` fits the largest cell of the paper's Table 1 with default settings, on a GPU at its
own size and on a CPU at a tenth of it. The floor of a step is what its flops or bytes take at the fastest rate that
plain products and copies reach in the same run.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module

import torch
from common import Setting, data, fit, regression, setting, source_of, table, write_csv, write_page

from psfit import BiCADMM, GridSpec
from psfit.admm.steps import choose_steps
from psfit.problem.pose import pose

NODES = 4
SIZES = {"cuda": (300_000, 4_000), "cpu": (30_000, 400)}
LEVELS = (0.9, 0.6)
WARM, ITERATIONS = 10, 200
# What is timed: module, name and what it is called on the page. They follow one another in a fit.
STEPS = (
    ("psfit.pipeline.task", "pose", "moments of the data (Gram)"),
    ("psfit.admm.bicadmm.BiCADMM", "init", "penalties and factors"),
    ("psfit.pipeline.one_limit", "iterate", "iterations"),
    ("psfit.search.restarts", "swap_search", "swap search"),
    ("psfit.pipeline.one_limit", "refit", "exact refit"),
    ("psfit.pipeline.proofs.OneLimitProver", "open_limits", "certificate"),
)


def main() -> None:
    here, _ = setting(__doc__.splitlines()[0])
    m, n = SIZES[here.device]
    rows = []
    for level in LEVELS:
        rows += parts(m, n, level, here)
    for columns, effort in ((3, "medium"), (1, "low")):
        took = iteration(m // 3, n, effort, here)
        rows.append({"s_l": 0.9, "step": f"one outer iteration, {columns} column(s)", "ms": took, "calls": ITERATIONS})
    rows += floors(m, n, here)
    write_csv(rows, here.file("parts", "csv"))
    body = [[row["s_l"], row["step"], row["calls"], f"{row['ms']:.3g}"] for row in rows]
    lines = [f"{m:,} x {n:,} float32, N = {NODES}, default settings; medians of {here.repeats}.", ""]
    write_page("Parts of a fit", [*lines, *table(["s_l", "step", "calls", "ms"], body)], here.file("parts", "md"))


def parts(m: int, n: int, level: float, here: Setting) -> list[dict]:
    """Milliseconds of each step of a fit, and of all of it without the clocks between."""
    made = data(m, n, level, NODES, here.device)
    source, problem = source_of(made.A, made.b), regression(made.kappa)
    fit(problem, source, NODES, here)
    whole = statistics.median(_clock(lambda: fit(problem, source, NODES, here), here) for _ in range(here.repeats))
    found = defaultdict(list)
    for _ in range(here.repeats):
        with _watched(here) as seen:
            fit(problem, source, NODES, here)
        for name, times in seen.items():
            found[name].append((sum(times), len(times)))
    rows = [{"s_l": level, "step": "a whole fit", "ms": 1e3 * whole, "calls": 1}]
    for _, _, name in STEPS:
        if name in found:
            took = statistics.median(total for total, _ in found[name])
            rows.append({"s_l": level, "step": name, "ms": 1e3 * took, "calls": found[name][0][1]})
    return rows


@contextmanager
def _watched(here: Setting) -> Iterator[dict[str, list[float]]]:
    """Clocks around all steps; the device is waited for at both ends of each."""
    seen, before = defaultdict(list), []
    for place, name, label in STEPS:
        owner = _find(place)
        plain = getattr(owner, name)
        before.append((owner, name, plain))

        def clocked(*given: object, _plain: Callable = plain, _label: str = label, **named: object) -> object:
            answer = []
            seen[_label].append(_clock(lambda: answer.append(_plain(*given, **named)), here))
            return answer[0]

        setattr(owner, name, clocked)
    try:
        yield seen
    finally:
        for owner, name, plain in before:
            setattr(owner, name, plain)


def _find(place: str) -> object:
    try:
        return import_module(place)
    except ModuleNotFoundError:
        module, name = place.rsplit(".", 1)
        return getattr(import_module(module), name)


def _clock(action: Callable[[], object], here: Setting) -> float:
    if here.gpu:
        torch.cuda.synchronize()
    began = time.perf_counter()
    action()
    if here.gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - began


@torch.inference_mode()
def iteration(m: int, n: int, effort: str, here: Setting) -> float:
    """Milliseconds of an outer iteration."""
    made = data(m, n, 0.9, NODES, here.device)
    grid = GridSpec(nodes=NODES, device=here.device).build(torch.device(here.device))
    solver = BiCADMM(effort=effort)
    setup, state = solver.init(pose(regression(made.kappa), source_of(made.A, made.b), grid))
    step = choose_steps(solver, setup)
    for _ in range(WARM):
        state = step(state)

    def run() -> None:
        now = state
        for _ in range(ITERATIONS):
            now = step(now)

    return 1e3 * statistics.median(_clock(run, here) for _ in range(here.repeats)) / ITERATIONS


def floors(m: int, n: int, here: Setting) -> list[dict]:
    """Plain products of the same size: what the parts are made of, as the libraries make it."""
    made = data(m, n, 0.9, NODES, here.device)
    A, rows = made.A, []
    square = torch.eye(n, device=A.device).expand(NODES, n, n).contiguous() * n
    actions = {
        "Gram product, float32": lambda: A.T @ A,
        "A'r": lambda: A.T @ made.b,
        "four Cholesky factors, float32": lambda: [torch.linalg.cholesky(part) for part in square],
        "Cholesky factor, float64": lambda: torch.linalg.cholesky(square[0].double()),
    }
    for name, action in actions.items():
        action()
        took = statistics.median(_clock(action, here) for _ in range(here.repeats))
        rows.append({"s_l": "", "step": name, "ms": 1e3 * took, "calls": 1})
    if here.gpu:
        torch.backends.cuda.matmul.allow_tf32 = True
        took = statistics.median(_clock(actions["Gram product, float32"], here) for _ in range(here.repeats))
        torch.backends.cuda.matmul.allow_tf32 = False
        rows.append({"s_l": "", "step": "Gram product, TF32", "ms": 1e3 * took, "calls": 1})
    return rows


if __name__ == "__main__":
    main()
