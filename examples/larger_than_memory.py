"""A fit of files that may not be held in memory: a folder of Parquet files, of which a model may keep only a share.

``python examples/larger_than_memory.py`` writes the files to a temporary folder, fits a logistic regression to them
while at most a fifth of their features may be in memory, and predicts from one of the files. The same program under
``torchrun --standalone --nproc-per-node 2`` divides the files between two ranks.
"""

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from psfit import FileSource, GridSpec, SparseLogisticRegression

FILES, TRUE = 4, 5


def write(folder: Path, samples: int, features: int) -> list[str]:
    """Visits to a shop: many measurements, a few of which tell who buys."""
    rng = np.random.default_rng(0)
    names = [f"x{j}" for j in range(features)]
    true = sorted(rng.choice(features, TRUE, replace=False).tolist())
    for k in range(FILES):
        X = rng.normal(size=(samples // FILES, features)).astype(np.float32)
        eta = X[:, true] @ np.linspace(1, 2, TRUE)
        bought = np.where(eta + rng.logistic(size=len(X)) > 0, "yes", "no")
        pd.DataFrame(X, columns=names).assign(bought=bought).to_parquet(folder / f"part-{k}.parquet")
    return [names[j] for j in true]


def main() -> None:
    """Write, fit, predict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=500)
    options = parser.parse_args()
    grid = GridSpec(device="cpu").build()
    # All ranks of a host see the same folder; the first one fills it.
    folder = Path(tempfile.gettempdir()) / f"psfit-example-{os.environ.get('TORCHELASTIC_RUN_ID', os.getpid())}"
    folder.mkdir(exist_ok=True)
    true = grid.run_together(lambda: write(folder, options.samples, options.features) if grid.world.rank == 0 else [])
    size = options.samples * options.features * 4
    source = FileSource(folder, target="bought", memory=size // 5)
    model = SparseLogisticRegression(TRUE, gamma=10.0, grid=GridSpec(device="cpu")).fit(source)
    if grid.world.rank == 0:
        print(model.result_)
        print(f"  found      {', '.join(model.feature_names_in_[model.support_])}")
        print(f"  true       {', '.join(true)}")
        first = folder / "part-0.parquet"
        right = np.mean(model.predict(first) == pd.read_parquet(first, columns=["bought"])["bought"])
        print(f"  accuracy   {right:.3f} on {first.name}")
    grid.run_together(lambda: [file.unlink(missing_ok=True) for file in folder.glob("*") if grid.world.rank == 0])


if __name__ == "__main__":
    main()
