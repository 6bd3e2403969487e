"""PsFiT on a real Ray with two CPUs."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import ray
import ray.data
from engine_jobs import (
    CUTS,
    JOBS,
    LONG,
    NAMES,
    X,
    die_at_work,
    require_predictions,
    require_same,
    settings,
    torchrun_answers,
    wait_for_end,
)
from launch import HERE, environment, run
from ray.train import RunConfig

from psfit import PeerLostError, SparseLinearRegression
from psfit.ray import fit_on_ray, predict_on_ray

pytestmark = [pytest.mark.filterwarnings("ignore")]
NAMED = [f"c{k}" for k in range(X.shape[1])]
# Starts a fit, prints the processes that work, and shuts Ray down in the middle of it.
SHUT_DOWN = """
import sys, threading
from pathlib import Path
import pandas as pd, ray, ray.data
from engine_jobs import JOBS, LONG, X, work_slowly, workers_of
from psfit import SparseLinearRegression
from psfit.ray import fit_on_ray
from ray.train import RunConfig
folder = Path(sys.argv[1])
(folder / "at work").mkdir()
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
frame = pd.DataFrame(X).rename(columns=str).assign(y=JOBS["squared"].y)
dataset = ray.data.from_pandas([frame[:50], frame[50:]])
estimator = SparseLinearRegression(3, solver=LONG, callback=work_slowly(folder / "at work"))
def stop():
    print("processes", *workers_of(folder / "at work", 2, 200), flush=True)
    ray.shutdown()
threading.Thread(target=stop).start()
fit_on_ray(estimator, dataset, 2, label="y", run_config=RunConfig(storage_path=str(folder)))
"""


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def storage(tmp_path):
    return RunConfig(storage_path=str(tmp_path / "storage"))


def frames(y, features=X):
    table = pd.DataFrame(features, columns=NAMED).assign(y=y)
    return ray.data.from_pandas([table[a:b] for a, b in CUTS])


@pytest.mark.long
def test_answers_and_predictions_are_those_of_torchrun(storage, tmp_path):
    answers = torchrun_answers(tmp_path)
    for name in NAMES:
        job, dataset = JOBS[name], frames(JOBS[name].y)
        model = fit_on_ray(job.model(**settings(job)), dataset, 2, label="y", run_config=storage)
        assert model.feature_names_in_.tolist() == NAMED
        # Two workers share three blocks, of which one is empty.
        require_same(model, answers[name], nodes=(1, 2))
    known = pd.DataFrame(X, columns=NAMED)
    found = predict_on_ray(model, dataset).to_pandas().sort_values("c0")
    expected = known.assign(p=model.predict(known)).sort_values("c0")["p"]
    require_predictions(found["prediction"], expected)


def test_broken_blocks_and_unknown_columns_end_with_a_clear_error(storage):
    holed = X.copy()
    holed[120, 4] = np.nan
    with pytest.raises(ValueError, match=r"NaN in column 4 \('c4'\)"):
        fit_on_ray(SparseLinearRegression(3), frames(JOBS["squared"].y, holed), 2, label="y", run_config=storage)
    with pytest.raises(ValueError, match="label='z': there is no such column"):
        fit_on_ray(SparseLinearRegression(3), frames(JOBS["squared"].y), 2, label="z")
    rows = [{"x": row.tolist() if k < 50 else row[:-1].tolist(), "y": 1.0 * k} for k, row in enumerate(X)]
    dataset = ray.data.from_pandas([pd.DataFrame(rows[:50]), pd.DataFrame(rows[50:])])
    with pytest.raises(ValueError, match=r"features is 1[12] on rank|has 11 and 12 entries"):
        fit_on_ray(SparseLinearRegression(3), dataset, 2, label="y", features="x", run_config=storage)


@pytest.mark.long
def test_a_killed_worker_ends_with_a_clear_error(storage, tmp_path):
    estimator = SparseLinearRegression(3, solver=LONG, callback=die_at_work(tmp_path / "dead"))
    with pytest.raises(PeerLostError, match=r"rank \d was lost during the fit|lost contact with rank"):
        fit_on_ray(estimator, frames(JOBS["squared"].y), 2, label="y", run_config=storage)


@pytest.mark.long
def test_ray_that_is_shut_down_in_mid_fit_leaves_no_process(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SHUT_DOWN, str(tmp_path)], capture_output=True, text=True, env=environment(), timeout=400
    )
    # Ray ends the program that shuts it down while it waits, so there is no error to look at.
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("processes")]
    wait_for_end([int(pid) for pid in line.split()[1:]])


@pytest.mark.long
def test_the_example_fits_a_dataset(tmp_path):
    done = run([sys.executable, str(HERE.parents[1] / "examples/ray_dataset.py"), str(tmp_path)])
    assert done.returncode == 0, done.stderr
    said = dict(line.split(": ") for line in done.stdout.splitlines() if ": " in line)
    assert len(said["features"].split(", ")) == 4
    assert int(said["right"].split()[0]) > 0.93 * 569
