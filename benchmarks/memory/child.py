"""One fit in a process of its own, under a limit on its memory; prints what it cost as JSON."""

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np
import scipy.sparse


def limit(gigabytes: float) -> None:
    """No more address space than this, whatever it is used for."""
    size = int(gigabytes * 1e9)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def peak() -> tuple[float, float]:
    """The most resident and the most virtual memory so far, in GB."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    resident, virtual = (int(status[name].split()[0]) / 1e6 for name in ("VmHWM", "VmPeak"))
    return resident, virtual


def sparse_problem(samples: int, features: int, density: float, true: int) -> tuple:
    """A CSR matrix of normal entries, labels that depend on a few columns, and those columns."""
    rng = np.random.default_rng(0)
    entries = int(samples * features * density)
    index = np.sort(rng.integers(0, samples * features, entries))
    index = index[np.concatenate([[True], np.diff(index) > 0])]
    values = rng.standard_normal(len(index), dtype=np.float32)
    starts = np.searchsorted(index // features, np.arange(samples + 1))
    A = scipy.sparse.csr_matrix((values, (index % features).astype(np.int32), starts), shape=(samples, features))
    place = np.sort(rng.choice(features, true, replace=False))
    x = np.zeros(features)
    x[place] = rng.choice([-1.0, 1.0], true) * rng.uniform(2, 5, true)
    return A, (A @ x + 0.3 * rng.logistic(size=samples) > 0).astype(int), place


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["squared", "logistic", "sparse"])
    parser.add_argument("--limit", type=float, required=True)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    limit(options.limit)
    # Imported under the limit: the library itself takes part of it.
    from psfit import FileSource, SparseLinearRegression, SparseLogisticRegression

    ready = peak()[0]
    if options.kind == "sparse":
        X, y, place = sparse_problem(200_000, 50_000, 0.001, 100)
        model = SparseLogisticRegression(100, gamma=10.0)
    else:
        y, place = None, np.load(options.folder / "truth.npy")
        name = {"squared": "y.npy", "logistic": "label.npy"}[options.kind]
        X = FileSource(options.folder / "X.npy", target=name)
        kind = {"squared": SparseLinearRegression, "logistic": SparseLogisticRegression}[options.kind]
        model = kind(len(place), gamma=10.0)
    began = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - began
    resident, virtual = peak()
    result = model.result_
    print(
        json.dumps(
            {
                "case": options.kind,
                "limit GB": options.limit,
                "seconds": seconds,
                "peak resident GB": resident,
                "resident before GB": ready,
                "peak virtual GB": virtual,
                "passes": result.passes,
                "candidates": result.candidates,
                "objective": result.objective,
                "gap": result.gap,
                "true features found": len(set(model.support_) & set(place.tolist())),
                "true features": len(place),
            }
        )
    )


if __name__ == "__main__":
    main()
