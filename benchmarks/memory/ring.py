"""A fit from host memory on a GPU, beside the copy that it needs and the fit of resident data.

``python benchmarks/memory/ring.py --output benchmarks/results`` writes a table; medians of several runs, all in one
process.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from psfit import BiCADMM, GridSpec, SparseLinearRegression
from psfit.data.streamed import ArrayRows, Streamed
from psfit.data.synthetic import paper_recipe

sys.path.insert(0, str(Path(__file__).parents[1]))
from environment import environment

REPEATS = 5


def seconds(action: Callable[[], object], repeats: int = REPEATS) -> float:
    """The median time of an action that uses the GPU, after one run to warm up."""
    action()
    taken = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        began = time.perf_counter()
        action()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def compare(samples: int = 300_000, features: int = 4_000) -> list[str]:
    """A table of the three times, for the plain algorithm and for the default."""
    device = torch.device("cuda")
    data = paper_recipe(samples, features, 0.9, 4, dtype=torch.float32, device=device)
    X, y = data.A.cpu().numpy(), data.b[:, 0].cpu().numpy()
    stream = Streamed(ArrayRows(X), device, torch.float32, 0)
    copy = seconds(stream.load)
    lines = [f"{samples:,} x {features:,} float32 ({X.nbytes / 1e9:.1f} GB); medians of {REPEATS}.", ""]
    lines += ["| effort | copy through the ring s | fit, resident s | fit from host s | (host - resident) / copy |"]
    lines += ["|---|---|---|---|---|"]
    for effort in ("low", "medium"):
        model = SparseLinearRegression(
            data.kappa, gamma=10.0, fit_intercept=False, solver=BiCADMM(effort=effort), grid=GridSpec(device="cuda")
        )
        # In turns, so that both see the same machine.
        pairs = [
            (seconds(lambda m=model: m.fit(data.A, y), 1), seconds(lambda m=model: m.fit(X, y), 1))
            for _ in range(REPEATS)
        ]
        resident, host = (statistics.median(times) for times in zip(*pairs, strict=True))
        cells = [f"{copy:.3f}", f"{resident:.3f}", f"{host:.3f}", f"{(host - resident) / copy:.2f}"]
        lines.append(f"| {effort} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    about = ", ".join(f"{name} {value}" for name, value in environment().items())
    page = ["# From host memory to a GPU", "", *compare(), "", f"Run on: {about}."]
    (options.output / "memory-gpu.md").write_text("\n".join(page) + "\n")
    print("\n".join(page))


if __name__ == "__main__":
    main()
