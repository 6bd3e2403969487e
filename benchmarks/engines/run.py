"""What an engine costs over torchrun: the same fit on the same Parquet files, two ranks, logistic loss.

``python benchmarks/engines/run.py`` (``pip install 'psfit-toolbox[engines]'``, and Java) measures ``torchrun -m psfit
fit`` from the command to its end, and ``fit`` on Dask, Spark and Ray after each of these has been started. The first
fit meets fresh workers, as torchrun's are; the second finds workers that the engine has kept, if it keeps them. Seconds
are the least of all rounds; CPU seconds are those of the same fit, of all processes together. "Start" is what the
engine itself took to start before the first fit (``Client``, ``SparkSession``, ``ray.init``), which the seconds leave
out.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import psfit

sys.path.insert(0, str(Path(__file__).parents[1]))
from environment import environment

HERE = Path(__file__).parent
ENGINES = ("dask", "spark", "ray")
PACKAGES = ("distributed", "pyspark", "ray")


def write_samples(folder: Path, rows: int, columns: int) -> None:
    """Two files, the second with twice as many rows as the first."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, columns))
    y = (X[:, :5].sum(axis=1) + 2 * rng.normal(size=rows) > 0).astype(int)
    table = pd.DataFrame(X, columns=[f"x{k}" for k in range(columns)]).assign(y=y)
    for k, part in enumerate((table[: rows // 3], table[rows // 3 :])):
        part.to_parquet(folder / f"part-{k}.parquet", index=False)


def run_torchrun(folder: Path) -> dict[str, Any]:
    """The command, with its objective from the model file."""
    with tempfile.TemporaryDirectory() as output:
        model = Path(output, "model.psfit")
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "psfit"]
        fit = ["fit", str(folder), "--target", "y", "--loss", "logistic", "--kappa", "5", "--device", "cpu"]
        before, began = _children(), time.perf_counter()
        subprocess.run([*launch, *fit, "--out", str(model)], check=True, capture_output=True)
        seconds = time.perf_counter() - began
        objective = psfit.load(model).objective_
    return {"engine": "torchrun", "fit": 1, "seconds": seconds, "cpu": _children() - before, "objective": objective}


def run_engine(engine: str, folder: Path) -> list[dict[str, Any]]:
    """Two fits in a new process."""
    program = [sys.executable, str(HERE / "measure.py"), engine, str(folder), "2"]
    done = subprocess.run(program, check=True, capture_output=True, text=True)
    lines = [line.removeprefix("measured ") for line in done.stdout.splitlines() if line.startswith("measured ")]
    return [json.loads(line) for line in lines]


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def describe(rows: list[dict[str, Any]], options: argparse.Namespace) -> str:
    """The page."""
    best = {}
    for row in sorted(rows, key=lambda row: -row["seconds"]):
        best[row["engine"], row["fit"]] = row
    base = best["torchrun", 1]
    head = ["engine", "fit", "seconds", "over torchrun", "start", "CPU seconds", "objective"]
    table = [head, ["---"] * len(head)]
    for (engine, fit), row in sorted(best.items(), key=lambda item: (item[0][0] != "torchrun", item[0])):
        over = "" if engine == "torchrun" else f"{row['seconds'] - base['seconds']:+.1f}"
        name = "whole command" if engine == "torchrun" else ("first", "second")[fit - 1]
        start = f"{row['start']:.1f}" if fit == 1 and "start" in row else ""
        table.append(
            [engine, name, f"{row['seconds']:.1f}", over, start, f"{row['cpu']:.1f}", f"{row['objective']:.6f}"]
        )
    lines = [f"| {' | '.join(row)} |" for row in table]
    known = environment() | {name: version(name) for name in PACKAGES}
    ran = [f"- {name}: {value}" for name, value in known.items()]
    loads = [row["load"] for row in rows]
    sizes = f"{options.rows:,} samples, {options.columns} features, {options.rounds} rounds; "
    sizes += f"load average between {min(loads):.1f} and {max(loads):.1f}."
    return "\n".join(["# Engines", "", " ".join((__doc__ or "").split()), "", sizes, "", *lines, "", *ran, ""])


def main() -> None:
    """Run, and write a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        write_samples(Path(folder), options.rows, options.columns)
        for _ in range(options.rounds):
            for engine in ("torchrun", *ENGINES):
                load = load_average()
                found = [run_torchrun(Path(folder))] if engine == "torchrun" else run_engine(engine, Path(folder))
                rows += [row | {"load": load} for row in found]
                print(*found, sep="\n", flush=True)
    (options.output / "engines.md").write_text(describe(rows, options))


def load_average() -> float:
    """How many processes wanted to run in the last minute, on average."""
    return float(Path("/proc/loadavg").read_text().split()[0])


if __name__ == "__main__":
    main()
