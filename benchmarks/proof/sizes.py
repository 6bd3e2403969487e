"""Problems of the sizes on which other exact methods report their times: 6,000 x 3,000 and 500 x 5,000, kappa 10.

``python benchmarks/proof/sizes.py --output benchmarks/results`` proves generated problems of these sizes with the
squared and the logistic loss, and writes time, gap and tree nodes to a page. ``--device cuda`` runs them on a GPU; rows
of other devices stay on the page. OKRidge reports 27 s for the first size; for the second, L0BnB 1,175 s and
BackboneLearn 206 s, on machines and data of their own.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch

from psfit import BiCADMM, Dense, GridSpec, Problem, Source, solve
from psfit.losses import Logistic, Loss, Squared

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "quality"))
from environment import environment
from suite import Spec, draw

CASES: list[tuple[Spec, Loss]] = [
    (Spec("6,000 x 3,000", samples=6000, features=3000, kappa=10, correlation=0.5, gamma=1.0), Squared()),
    (Spec("500 x 5,000", samples=500, features=5000, kappa=10, correlation=0.1, gamma=0.05), Squared()),
    (Spec("6,000 x 3,000", "logistic", samples=6000, features=3000, kappa=10, correlation=0.5, gamma=0.05), Logistic()),
    (Spec("500 x 5,000", "logistic", samples=500, features=5000, kappa=10, correlation=0.1, gamma=0.05), Logistic()),
]


def measure(spec: Spec, loss: Loss, limit: float, device: str) -> str:
    """One row of the table: a whole fit in exact mode."""
    case = draw(spec, 0)
    y = torch.from_numpy(case.y if loss.quadratic else 2.0 * case.y - 1).double().unsqueeze(1).to(device)
    source = Source(Dense(torch.from_numpy(case.X).double().to(device)), y, torch.ones_like(y))
    problem = Problem(loss, (spec.kappa,), spec.gamma)
    began = time.perf_counter()
    found = solve(problem, source, BiCADMM(exact=True, time_limit=limit), GridSpec(device=device), certify=False)
    seconds = time.perf_counter() - began
    row = f"| {spec.name} | {loss.name} | {spec.gamma:g} | {device} | {seconds:.1f} | {found.gap:.2%} |"
    print(row, f"{found.tree_nodes:,}", flush=True)
    return f"{row} {found.tree_nodes:,} |"


def main() -> None:
    """Run all problems and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each problem")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    kept = options.output / "proof-sizes.json"
    known: dict[str, list[str]] = json.loads(kept.read_text()) if kept.exists() else {}
    rows = [measure(spec, loss, options.limit, options.device) for spec, loss in CASES]
    where = ", ".join(f"{key} {value}" for key, value in environment().items())
    known[options.device] = [*rows, f"Run on {options.device}, at most {options.limit:g} s each: {where}."]
    kept.write_text(json.dumps(known, indent=1))
    head = ["# Proofs at published sizes, kappa 10", "", "Goal: a gap of 1e-4. Times are of whole fits.", ""]
    table = ["| size | loss | gamma | device | seconds | gap | tree nodes |", "|---|---|---|---|---|---|---|"]
    rows = [row for lines in known.values() for row in lines[:-1]]
    notes = [note for lines in known.values() for note in ("", lines[-1])]
    (options.output / "proof-sizes.md").write_text("\n".join([*head, *table, *rows, *notes, ""]))


if __name__ == "__main__":
    main()
