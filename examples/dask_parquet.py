"""A sparse regression on a Dask DataFrame from Parquet files; no process reads all of them.

pip install 'psfit-toolbox[dask]'
python examples/dask_parquet.py
python examples/dask_parquet.py tcp://scheduler:8786     # a cluster whose workers see the same folder
"""

import sys
import tempfile
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from psfit import GridSpec
from psfit.dask import DaskSparseLinearRegression

FEATURES = [f"sensor {k}" for k in range(40)]


def write_days(folder: Path) -> None:
    """One file for each day; the days have different numbers of rows."""
    rng = np.random.default_rng(0)
    for day, rows in enumerate([200, 900, 400, 100]):
        table = pd.DataFrame(rng.normal(size=(rows, len(FEATURES))), columns=FEATURES)
        table["yield"] = 2 * table["sensor 3"] - table["sensor 17"] + 0.5 * table["sensor 31"] + rng.normal(size=rows)
        table.to_parquet(folder / f"day-{day}.parquet")


def main(client: Client, folder: Path) -> None:
    days = dd.read_parquet(folder, index=False)
    model = DaskSparseLinearRegression(kappa=3, grid=GridSpec(device="cpu"), client=client)
    model.fit(days[FEATURES], days["yield"])
    print("features:", ", ".join(model.feature_names_in_[model.support_]))
    print(f"samples: {model.result_.samples}, gap: {model.gap_:.0e}")
    predicted = model.predict(days[FEATURES])
    print(f"mean error: {(predicted - days['yield']).abs().mean().compute():.2f}")
    print("without Dask:", type(model.to_local()).__name__)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        write_days(Path(folder))
        address = sys.argv[1] if len(sys.argv) > 1 else None
        settings = {} if address else {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
        with Client(address, **settings) as client:
            main(client, Path(folder))
