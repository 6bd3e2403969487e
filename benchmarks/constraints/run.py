"""What constraints cost, and nonnegative least squares with many features.

    OMP_NUM_THREADS=1 python benchmarks/constraints/run.py costs --sets suite real --folder DATA
    python benchmarks/constraints/run.py nonnegative --features 50000 --device cuda

The page is ``benchmarks/results/constraints.md``. Each part keeps the results of the others, in ``constraints.json``.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
import costs
import nonnegative
from environment import environment

RESULTS = Path(__file__).parents[1] / "results"
NOTES = {
    "costs": "Processor time of fits with constraints, as a multiple of the fit without them: one process, one thread, "
    "the least of several rounds, certificates included. With 10 % of the features forced the support has that many "
    "more features, so it is also compared with a fit of as many features, unless these are more than the samples. "
    "Groups have five features, and kappa counts groups, so that the model has about as many features as without "
    "groups.",
    "nonnegative": "Noise of standard deviation 2, coefficients from 0.5 to 1.5, float32. The limit is the number of "
    "true features. The judge refits every support in float64, nonnegative, with the ridge of PsFiT. "
    "scipy.optimize.nnls only runs on the small problem: its time grows too fast. With more features than samples it "
    "can fit all samples exactly, and then its largest coefficients need not be the true ones. The first fit of a "
    "process also loads compiled code.",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=list(NOTES))
    parser.add_argument("--sets", nargs="+", default=["suite"], help="sets of benchmarks/peers")
    parser.add_argument("--only", nargs="+", default=[], help="only problems whose names contain one of these")
    parser.add_argument("--folder", type=Path, help="where the real data are")
    parser.add_argument("--features", type=int, nargs="+", default=[2_000, 50_000])
    parser.add_argument("--correlations", type=float, nargs="+", default=[0.0, 0.5])
    parser.add_argument("--methods", nargs="+", default=list(nonnegative.METHODS), choices=list(nonnegative.METHODS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.part == "costs":
        lines = costs.table(costs.measure(arguments.sets, arguments.folder, arguments.only))
        lines += ["", f"Only problems with these names: {', '.join(arguments.only)}."] if arguments.only else []
    else:
        tasks = [
            nonnegative.Task(max(1_000, features // 10), features, features // 100, correlation)
            for features in arguments.features
            for correlation in arguments.correlations
        ]
        lines = nonnegative.table(nonnegative.measure(tasks, arguments.device, arguments.methods))
    write_page(arguments.results, f"{arguments.part}, {arguments.device}", arguments.part, lines)


def write_page(folder: Path, name: str, part: str, lines: list[str]) -> None:
    """Add or replace a part of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    known = folder / "constraints.json"
    parts = json.loads(known.read_text()) if known.exists() else {}
    parts[name] = [NOTES[part], "", *lines, "", *(f"- {key}: {value}" for key, value in environment().items())]
    known.write_text(json.dumps(parts, indent=1) + "\n")
    page = ["# Constraints on coefficients", ""]
    for title, text in sorted(parts.items()):
        page += [f"## {title[0].upper()}{title[1:]}", "", *text, ""]
    (folder / "constraints.md").write_text("\n".join(page))


if __name__ == "__main__":
    main()
