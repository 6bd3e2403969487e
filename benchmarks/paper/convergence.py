"""The paper's first experiment: residuals of plain Bi-cADMM for several bilinear penalties.

``python benchmarks/paper/convergence.py`` runs n = 4,000, m = 10,000 on a GPU and a tenth of that on a CPU, N = 4,
s_l = 0.8, rho_b = 2, 4, 8, 16 and rho_c = 2 rho_b, as the paper's alpha = 0.5 says. All runs have the
same number of iterations, whatever their residuals are.
"""

from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from common import data, regression, setting, source_of, table, write_csv, write_page

from psfit import BiCADMM, GridSpec
from psfit.problem.instance import Instance
from psfit.problem.pose import pose

PENALTIES = (2.0, 4.0, 8.0, 16.0)
ALPHA = 0.5
NODES = 4
ITERATIONS = 150
SIZES = {"cuda": (10_000, 4_000), "cpu": (1_000, 400)}
RESIDUALS = ("primal", "dual", "bilinear")


def main() -> None:
    here, _ = setting(__doc__.splitlines()[0])
    m, n = SIZES[here.device]
    made = data(m, n, 0.8, NODES, here.device)
    grid = GridSpec(nodes=NODES, device=here.device).build(torch.device(here.device))
    inst = pose(regression(made.kappa), source_of(made.A, made.b), grid)
    rows, ends = [], []
    for rho_b in PENALTIES:
        found = residuals(inst, rho_b)
        rows += [{"rho_b": rho_b, "iteration": k + 1, **numbers} for k, numbers in enumerate(found)]
        ends.append([f"{rho_b:g}", *(f"{found[-1][name]:.1e}" for name in RESIDUALS)])
    write_csv(rows, here.file("convergence", "csv"))
    lines = [
        f"n = {n:,}, m = {m:,}, s_l = 0.8, N = {NODES}, rho_c = rho_b / {ALPHA:g}. After {ITERATIONS} iterations:",
        "",
        *table(["rho_b", *RESIDUALS], ends),
        "",
        "The bilinear residual is exactly zero once z has at most kappa nonzeros; the picture's lines end there.",
    ]
    write_page("Empirical convergence", lines, here.file("convergence", "md"))
    draw(rows, here.file("convergence", "png"))


@torch.inference_mode()
def residuals(inst: Instance, rho_b: float) -> list[dict[str, float]]:
    """The residuals of every iteration, in the coordinates of the paper, whose columns have norm one in every node."""
    unit = inst.coordinates.column_norm / NODES**0.5
    solver = BiCADMM(effort="low", rho_b=rho_b * unit**2, rho_c=rho_b * unit**2 / ALPHA)
    setup, state = solver.init(inst)
    to_paper = torch.tensor([unit, 1 / unit, unit], dtype=torch.float64)
    found = []
    for _ in range(ITERATIONS):
        state = solver.step(setup, state)
        values = solver.residuals(setup, solver.measure(setup, state).cpu())[0][:, 0]
        found.append(dict(zip(RESIDUALS, (to_paper * values).tolist(), strict=True)))
    return found


def draw(rows: list[dict], path: Path) -> None:
    """A panel for each residual, a line for each penalty."""
    figure, panels = plt.subplots(1, 3, figsize=(15, 4.5), layout="constrained")
    by_penalty = defaultdict(list)
    for row in rows:
        by_penalty[row["rho_b"]].append(row)
    for axes, name in zip(panels, RESIDUALS, strict=True):
        for rho_b, mine in by_penalty.items():
            shown = [row for row in mine if row[name] > 0]
            axes.plot([row["iteration"] for row in shown], [row[name] for row in shown], label=f"rho_b = {rho_b:g}")
        axes.set_yscale("log")
        axes.set_xlabel("iteration")
        axes.set_ylabel(f"{name} residual")
        axes.grid(True, alpha=0.3)
    panels[-1].legend()
    figure.savefig(path, dpi=130)
    print(path)


if __name__ == "__main__":
    main()
