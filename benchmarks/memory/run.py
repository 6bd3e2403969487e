"""Fits of data larger than the memory they may use.

``python benchmarks/memory/run.py --output benchmarks/results --scratch /tmp`` writes a matrix of 12 GB to the scratch
folder, fits it with squared and logistic loss in processes that may use 3 GB of address space, fits a sparse matrix of
200,000 x 50,000 in 4 GB, and writes a table.
"""

import argparse
import csv
import json
import subprocess
import sys
from pathlib import Path

from generate import write

sys.path.insert(0, str(Path(__file__).parents[1]))
from environment import environment

CHILD = Path(__file__).with_name("child.py")
LIMITS = {"squared": 3.0, "logistic": 3.0, "sparse": 4.0}
TITLES = {
    "squared": "squared loss, {m:,} x {n:,} float32 on disk",
    "logistic": "logistic loss, the same file",
    "sparse": "logistic loss, CSR 200,000 x 50,000, 0.1 % nonzeros, kappa 100",
}


def measured(kind: str, folder: Path) -> dict:
    """The figures of one fit in its own process."""
    arguments = [kind, "--limit", str(LIMITS[kind]), "--folder", str(folder)]
    done = subprocess.run([sys.executable, str(CHILD), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{kind}: {done.stderr.splitlines()[-1]}")
    figures: dict = json.loads(done.stdout.splitlines()[-1])
    print(figures, flush=True)
    return figures


def table(rows: list[dict], samples: int, features: int) -> list[str]:
    """The figures as a table."""
    head = [
        "case",
        "limit GB",
        "peak resident GB",
        "peak virtual GB",
        "seconds",
        "passes",
        "candidates",
        "found",
        "gap",
    ]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in rows:
        cells = [TITLES[row["case"]].format(m=samples, n=features), f"{row['limit GB']:g}"]
        cells += [f"{row[name]:.2f}" for name in ("peak resident GB", "peak virtual GB")]
        cells += [f"{row['seconds']:.0f}", f"{row['passes']:.1f}", f"{row['candidates']:,}"]
        cells += [f"{row['true features found']} of {row['true features']}", f"{row['gap']:.1e}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    """Run everything and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--scratch", type=Path, default=Path("/tmp"), help="a folder with room for the matrix")
    parser.add_argument("--samples", type=int, default=1_500_000)
    parser.add_argument("--features", type=int, default=2_000)
    options = parser.parse_args()
    folder = options.scratch / f"psfit-memory-{options.samples}-{options.features}"
    if not (folder / "truth.npy").exists():
        write(folder, options.samples, options.features)
    rows = [measured(kind, folder) for kind in LIMITS]
    size = options.samples * options.features * 4 / 1e9
    page = ["# Memory", "", f"The file holds {size:.1f} GB. The limit is on address space, which counts everything,"]
    page += ["the interpreter and its libraries included. Passes count how often the file was read.", ""]
    page += table(rows, options.samples, options.features)
    about = ", ".join(f"{name} {value}" for name, value in environment().items())
    page += ["", f"Run on: {about}."]
    (options.output / "memory.md").write_text("\n".join(page) + "\n")
    with (options.output / "memory.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
