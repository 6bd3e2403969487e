"""PsFiT on a real Ray with two CPUs.

Its workers are forked from a Python that has imported PsFiT, which saves seconds for each; tests that take long have
Ray's own.
"""

import signal
import sys

import numpy as np
import pandas as pd
import pytest
import ray
import ray.data
import torch
from engine_jobs import (
    CONSTRAINTS,
    CPU,
    CUTS,
    JOBS,
    LONG,
    NAMED,
    RULES,
    TABLE,
    X,
    Y,
    die_at_work,
    first_after,
    require_predictions,
    require_same,
    settings,
    stop_in_mid_fit,
    torchrun_answers,
    work_slowly,
)
from jobs import ENGINES
from launch import HERE, python, run
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from sklearn.exceptions import NotFittedError

import psfit
from psfit import BiCADMM, GridSpec, PeerLostError, SparseLinearRegression, SparsePoissonRegression, TableSource
from psfit.data.table_rules import TableRules
from psfit.ray import WholeBlocks, fit_on_ray, predict_on_ray, train_rank
from psfit.ray.columns import Columns
from psfit.ray.fit import _make_parts
from psfit.ray.worker import choose_device

pytestmark = [pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def cluster(request):
    """A test that shuts Ray down leaves the next one a new Ray."""
    if not ray.is_initialized():
        real = request.node.get_closest_marker("long") is not None
        workers = None if real else {"py_executable": python()}
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=workers)


@pytest.fixture(scope="module", autouse=True)
def end():
    yield
    ray.shutdown()


@pytest.fixture
def storage(cluster, tmp_path):
    return RunConfig(storage_path=str(tmp_path / "storage"))


def frames(y, features=X):
    table = pd.DataFrame(features, columns=NAMED).assign(y=y)
    return ray.data.from_pandas([table[a:b] for a, b in CUTS])


def test_a_table_with_text_offsets_and_constraints_by_name(storage):
    """The control is the plain estimator with the same table in memory."""
    rules = {**RULES, "target": "count", "offset": "exposed"}
    known = SparsePoissonRegression(2, **CONSTRAINTS).fit(TableSource(TABLE, **rules))
    dataset = ray.data.from_pandas([TABLE[a:b] for a, b in CUTS])
    columns = {"label": "count", "offset": "exposed", "rules": TableRules(**RULES)}
    estimator = SparsePoissonRegression(2, grid=CPU, **CONSTRAINTS)
    handler = signal.getsignal(signal.SIGINT)
    # A single block is cut in two, so that both workers have rows.
    model = fit_on_ray(estimator, ray.data.from_pandas(TABLE), 2, run_config=storage, **columns)
    assert model.result_.nodes == 2
    assert model.objective_ == pytest.approx(known.objective_, rel=1e-6)
    assert model.feature_names_in_.tolist() == known.feature_names_in_.tolist()
    np.testing.assert_array_equal(model.support_, known.support_)
    assert signal.getsignal(signal.SIGINT) is handler
    found = predict_on_ray(model, dataset, offset="exposed").to_pandas()
    require_predictions(found["prediction"], model.predict(found[TABLE.columns], offset=found["exposed"]))
    with pytest.raises(ValueError, match="fitted with an offset, so new samples need one"):
        predict_on_ray(model, dataset)
    with pytest.raises(ValueError, match="column='count': the dataset has it already; drop it"):
        predict_on_ray(model, dataset, offset="exposed", column="count").to_pandas()
    with pytest.raises(NotFittedError, match="not fitted yet"):
        predict_on_ray(SparsePoissonRegression(2), dataset)


def test_broken_blocks_and_unknown_columns_end_with_a_clear_error(storage):
    with pytest.raises(ValueError, match="label='z': there is no such column"):
        fit_on_ray(SparseLinearRegression(3), frames(Y), 2, label="z")
    with pytest.raises(ValueError, match="offset='z': there is no such column"):
        fit_on_ray(SparseLinearRegression(3), frames(Y), 2, label="y", offset="z")
    holed = X.copy()
    holed[120, 4] = np.nan
    with pytest.raises(ValueError, match=r"NaN in column 4 \('c4'\)"):
        fit_on_ray(SparseLinearRegression(3, grid=CPU), frames(Y, holed), 2, label="y", run_config=storage)


def test_a_fit_without_room_for_its_workers_ends(cluster):
    """Ray Train itself would wait for ever."""
    estimator = SparseLinearRegression(3, grid=GridSpec(device="cpu", timeout=1))
    with pytest.raises(TimeoutError, match="no room for 9 workers with 1 CPU each; in all it has 2 CPU"):
        fit_on_ray(estimator, frames(Y), 9, label="y")
    for scaling in (ScalingConfig(num_workers=(1, 2)), ScalingConfig(num_workers=0)):
        with pytest.raises(ValueError, match=r"num_workers=(0|\(1, 2\)), but a fit has a fixed number of workers"):
            fit_on_ray(estimator, frames(Y), scaling, label="y")
    with pytest.raises(ValueError, match=r"scaling_config='two' must be an integer of at least 1, or a ray\.train"):
        fit_on_ray(estimator, frames(Y), "two", label="y")
    with pytest.raises(ValueError, match=r"dataset=.* must be a ray\.data\.Dataset"):
        fit_on_ray(estimator, pd.DataFrame(X), 2, label="y")


def test_a_worker_uses_the_device_that_ray_gives_it():
    gpu = torch.device("cuda:1")
    assert choose_device(GridSpec(), gpu).device == "cuda:1"
    assert choose_device(GridSpec(device="cuda"), gpu).device == "cuda:1"
    assert choose_device(GridSpec(dtype="float32"), torch.device("cpu")) == GridSpec(device="cpu", dtype="float32")
    with pytest.raises(ValueError, match="device='cpu', but this worker has a GPU"):
        choose_device(GridSpec(device="cpu"), gpu)


@pytest.mark.long
def test_answers_and_predictions_are_those_of_torchrun(storage, tmp_path_factory):
    answers = torchrun_answers(tmp_path_factory)
    for name in ENGINES:
        job, dataset = JOBS[name], frames(JOBS[name].y)
        model = fit_on_ray(job.model(**settings(job)), dataset, 2, label="y", run_config=storage)
        assert model.feature_names_in_.tolist() == NAMED
        # Two workers share three blocks, of which one is empty.
        require_same(model, answers[name], nodes=(1, 2))
    known = pd.DataFrame(X, columns=NAMED)
    found = predict_on_ray(model, dataset).to_pandas().sort_values("c0")
    expected = known.assign(p=model.predict(known)).sort_values("c0")["p"]
    require_predictions(found["prediction"], expected)


def test_blocks_without_a_column_are_refused():
    """What a worker reads of its blocks, without the worker."""
    table = pd.DataFrame(X, columns=NAMED).assign(y=Y)
    less = table.drop(columns="c11")
    for columns in (Columns("y", known=[*NAMED, "y"]), Columns("y", NAMED)):
        assert columns.read(table).X.shape == X.shape
        with pytest.raises(ValueError, match="a block does not have the column 'c11'; it has c0, c1"):
            columns.read(less)
        with pytest.raises(ValueError, match="a block does not have the column 'y'"):
            columns.read(table[NAMED])
    # If the first block is the broken one, Ray does not know the column of the others.
    with pytest.raises(ValueError, match="a block has the column 'c11', which others do not have"):
        Columns("y", known=list(less.columns)).read(table)


def test_a_worker_reads_its_rows_of_blocks_that_are_fewer_than_workers(cluster):
    table = pd.DataFrame({"a": np.arange(10), "b": list(np.arange(20.0).reshape(10, 2))})
    for dataset, workers in ((ray.data.from_pandas([table[:7], table[7:]]), 4), (ray.data.from_pandas(table), 3)):
        read = [list(part.read()) for part in _make_parts(dataset, workers)]
        assert len(read) == workers
        assert max(sum(map(len, batches)) for batches in read) <= 4
        np.testing.assert_array_equal(np.concatenate([b["a"] for batches in read for b in batches]), table["a"])
        np.testing.assert_array_equal(
            np.stack([v for batches in read for b in batches for v in b["b"]]), list(table["b"])
        )


@pytest.mark.long
@pytest.mark.parametrize("features", [None, NAMED])
def test_a_block_with_a_column_less_ends_with_a_clear_error(storage, features):
    table = pd.DataFrame(X, columns=NAMED).assign(y=Y)
    dataset = ray.data.from_pandas([table[:50], table[50:].drop(columns="c11")])
    with pytest.raises(ValueError, match="a block does not have the column 'c11'") as caught:
        fit_on_ray(SparseLinearRegression(3, grid=CPU), dataset, 2, label="y", features=features, run_config=storage)
    assert caught.value.__notes__ == ["on rank 1, a worker of Ray Train"]


@pytest.mark.long
def test_rows_of_different_lengths_end_with_a_clear_error(storage):
    rows = [{"x": row.tolist() if k < 50 else row[:-1].tolist(), "y": 1.0 * k} for k, row in enumerate(X)]
    dataset = ray.data.from_pandas([pd.DataFrame(rows[:50]), pd.DataFrame(rows[50:])])
    with pytest.raises(ValueError, match=r"features is 1[12] on rank|has 11 and 12 entries"):
        fit_on_ray(SparseLinearRegression(3), dataset, 2, label="y", features="x", run_config=storage)


@pytest.mark.long
def test_a_trainer_of_the_user_connects_the_ranks_itself(storage):
    trainer = TorchTrainer(
        train_rank,
        train_loop_config={"estimator": SparseLinearRegression(3, grid=CPU), "label": "y"},
        datasets={"train": frames(Y)},
        dataset_config=WholeBlocks(),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=storage,
    )
    with trainer.fit().checkpoint.as_directory() as folder:
        model = psfit.load(f"{folder}/model.psfit")
    assert model.objective_ == pytest.approx(SparseLinearRegression(3).fit(X, Y).objective_, rel=1e-9)


@pytest.mark.long
def test_a_killed_worker_ends_with_a_clear_error(storage, tmp_path):
    estimator = SparseLinearRegression(3, grid=CPU, solver=LONG, callback=die_at_work(tmp_path / "dead"))
    with pytest.raises(PeerLostError, match=r"rank \d was lost during the fit|lost contact with rank"):
        fit_on_ray(estimator, frames(Y), 2, label="y", run_config=storage)


@pytest.mark.long
def test_a_worker_that_ray_starts_again_goes_on_from_the_checkpoint(cluster, tmp_path):
    # Every worker has rows, so the iteration is kept in Ray's storage.
    dataset = ray.data.from_pandas([pd.DataFrame(X[a:b], columns=NAMED).assign(y=Y[a:b]) for a, b in CUTS[::2]])
    solver = BiCADMM(effort="low", tol=1e-12, max_iter=60, checkpoint_every=10)
    estimator = SparseLinearRegression(3, grid=CPU, solver=solver, callback=die_at_work(tmp_path / "dead", 25))
    run_config = RunConfig(storage_path=str(tmp_path / "storage"), failure_config=FailureConfig(max_failures=1))
    model = fit_on_ray(estimator, dataset, 2, label="y", run_config=run_config)
    # Ray takes reports over one at a time; when the process dies, it may not have that of iteration 20 yet.
    assert first_after(tmp_path / "dead") in (11, 21)
    assert model.solver == solver
    assert model.objective_ == pytest.approx(SparseLinearRegression(3).fit(X, Y).objective_, rel=1e-9)


@pytest.mark.long
def test_ray_that_is_shut_down_in_mid_fit_leaves_no_process(storage, tmp_path):
    folder = tmp_path / "at work"
    folder.mkdir()
    estimator = SparseLinearRegression(3, grid=CPU, solver=LONG, callback=work_slowly(folder))
    dataset = frames(Y)
    stop_in_mid_fit(lambda: fit_on_ray(estimator, dataset, 2, label="y", run_config=storage), ray.shutdown, folder, 2)


@pytest.mark.long
def test_the_example_fits_a_dataset(tmp_path):
    done = run([sys.executable, str(HERE.parents[1] / "examples/ray_dataset.py"), str(tmp_path)])
    assert done.returncode == 0, done.stderr
    said = dict(line.split(": ") for line in done.stdout.splitlines() if ": " in line)
    assert len(said["features"].split(", ")) == 4
    assert int(said["right"].split()[0]) > 0.93 * 569
