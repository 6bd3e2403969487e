"""Data larger than memory, written to disk in pieces: a dense matrix with targets for both losses."""

import argparse
from pathlib import Path

import numpy as np

PIECE = 20_000
TRUE = 20
NOISE = 1.0


def write(folder: Path, samples: int, features: int, seed: int = 0) -> None:
    """``X.npy`` in float32, ``y.npy`` with numbers and ``label.npy`` with classes; correlated neighbouring columns."""
    rng = np.random.default_rng(seed)
    place = np.sort(rng.choice(features, TRUE, replace=False))
    x = rng.choice([-1.0, 1.0], TRUE) * rng.uniform(0.5, 1.5, TRUE)
    folder.mkdir(parents=True, exist_ok=True)
    header = {"descr": "<f4", "fortran_order": False, "shape": (samples, features)}
    y, label = np.empty(samples), np.empty(samples, dtype=np.int8)
    with (folder / "X.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, samples, PIECE):
            rows = slice(start, min(start + PIECE, samples))
            block = rng.standard_normal((rows.stop - rows.start, features), dtype=np.float32)
            block[:, 1:] += block[:, :-1]
            eta = block[:, place] @ x
            y[rows] = eta + NOISE * rng.standard_normal(len(block))
            label[rows] = eta + rng.logistic(size=len(block)) > 0
            block.tofile(file)
    np.save(folder / "y.npy", y)
    np.save(folder / "label.npy", label)
    np.save(folder / "truth.npy", place)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--samples", type=int, default=1_500_000)
    parser.add_argument("--features", type=int, default=2_000)
    options = parser.parse_args()
    write(options.folder, options.samples, options.features)
