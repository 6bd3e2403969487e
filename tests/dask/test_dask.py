"""PsFiT on a real Dask cluster: processes on this machine.

Those of most tests are forked from one that has imported PsFiT, which saves seconds for each.
"""

import asyncio
import pickle
import sys

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from distributed import Client, LocalCluster, Nanny, Scheduler, Security, SpecCluster
from distributed.utils import get_mp_context
from engine_jobs import (
    CONSTRAINTS,
    COUNTS,
    CPU,
    CUTS,
    JOBS,
    LONG,
    NAMED,
    OFFSET,
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
    workers_of,
)
from jobs import ENGINES
from launch import HERE, run, start
from sklearn.base import clone

import psfit.dask
from psfit import BiCADMM, PeerLostError, SparseLinearRegression, SparsePoissonRegression, TableSource
from psfit.dask import DaskSparseLinearRegression, DaskSparseLogisticRegression, DaskSparsePoissonRegression
from psfit.estimators.registry import LOSSES

# A user whose fit takes long.
USER = """
import sys
from pathlib import Path

import dask
from distributed import Client
from engine_jobs import CPU, CUTS, LONG, X, Y, work_slowly
from psfit.dask import DaskSparseLinearRegression

features, targets = ([dask.delayed(values[a:b]) for a, b in CUTS] for values in (X, Y))
client = Client(sys.argv[1])
model = DaskSparseLinearRegression(3, grid=CPU, solver=LONG, callback=work_slowly(Path(sys.argv[2])), client=client)
model.fit(features, targets)
"""


def start_cluster():
    return LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=":0")


@pytest.fixture(scope="module")
def client():
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        get_mp_context().set_forkserver_preload(["psfit.dask"])
        with start_cluster() as cluster, Client(cluster) as client:
            yield client


def delayed(values, cuts=CUTS):
    return [dask.delayed(values[a:b]) for a, b in cuts]


def table(values, cuts=CUTS):
    """A dask DataFrame or Series with these partitions."""
    return dd.from_delayed(delayed(values, cuts), meta=values.iloc[:0])


def collections(kind, y):
    """The samples as delayed arrays, as tables, or as arrays in blocks."""
    if kind == "squared":
        return delayed(X), delayed(y)
    if kind == "logistic":
        return table(pd.DataFrame(X, columns=NAMED)), table(pd.Series(y))
    rows = (50, 0, 100)
    return da.from_array(X, chunks=(rows, (5, 7))), da.from_array(y, chunks=(75, 75))


def test_answers_and_predictions_are_those_of_torchrun(client, tmp_path_factory):
    answers = torchrun_answers(tmp_path_factory)
    for name in ENGINES:
        job = JOBS[name]
        cls = getattr(psfit.dask, f"Dask{job.model.__name__}")
        features, targets = collections(name, job.y)
        model = cls(**settings(job), client=client).fit(features, targets)
        require_same(model, answers[name], nodes=(1, 2))
        local = model.to_local()
        assert type(local) is job.model
        # A model of tables predicts for tables, and keeps their index.
        known = pd.DataFrame(X, columns=NAMED) if name == "logistic" else X
        predicted = dask.compute(model.predict(features))[0]
        predicted = np.concatenate(predicted) if isinstance(predicted, list) else predicted
        require_predictions(predicted, local.predict(known))
        if name != "squared":
            require_predictions(model.predict_proba(features).compute(), local.predict_proba(known))
    assert list(model.predict(features).chunks[0]) == [50, 0, 100]


def test_weights_and_sparse_partitions_count(client):
    weight = np.where(np.arange(len(Y)) % 3 == 0, 0.0, 2.0)
    parts = [scipy.sparse.csr_matrix(X[:50]), scipy.sparse.csr_matrix(X[50:50]), X[50:]]
    model = DaskSparseLinearRegression(3, grid=CPU).fit(
        [dask.delayed(part) for part in parts], delayed(Y), delayed(weight)
    )
    known = SparseLinearRegression(3).fit(X, Y, weight)
    assert model.objective_ == pytest.approx(known.objective_, rel=1e-9)
    np.testing.assert_array_equal(model.support_, known.support_)


@pytest.mark.long
def test_text_offsets_and_constraints_by_name(client):
    """The control is the plain estimator with the same table in memory."""
    rules = {**RULES, "target": "count", "offset": "exposed"}
    known = SparsePoissonRegression(2, **CONSTRAINTS).fit(TableSource(TABLE, **rules))
    model = DaskSparsePoissonRegression(2, grid=CPU, **CONSTRAINTS).fit(TableSource(table(TABLE), **rules))
    assert model.objective_ == pytest.approx(known.objective_, rel=1e-6)
    assert model.feature_names_in_.tolist() == known.feature_names_in_.tolist()
    np.testing.assert_array_equal(model.support_, known.support_)
    require_predictions(model.predict(table(TABLE)).compute(), model.to_local().predict(TABLE))
    # Offsets that come apart from the table, in lists and in arrays.
    plain = SparsePoissonRegression(3).fit(X, COUNTS, offset=OFFSET)
    model = DaskSparsePoissonRegression(3, grid=CPU).fit(delayed(X), delayed(COUNTS), offset=delayed(OFFSET))
    assert model.objective_ == pytest.approx(plain.objective_, rel=1e-6)
    expected = model.to_local().predict(X, offset=OFFSET)
    require_predictions(np.concatenate(dask.compute(*model.predict(delayed(X), offset=delayed(OFFSET)))), expected)
    rows, columns = (50, 0, 100), (5, 7)
    blocks = da.from_array(X, chunks=(rows, columns)), da.from_array(OFFSET, chunks=75)
    require_predictions(model.predict(blocks[0], offset=blocks[1]).compute(), expected)
    with pytest.raises(ValueError, match="fitted with an offset, so new samples need one"):
        model.predict(delayed(X))
    with pytest.raises(ValueError, match="include='c0': the features have no names"):
        DaskSparseLinearRegression(3, grid=CPU, include="c0").fit(delayed(X), delayed(Y))


def broken(kind):
    frame = pd.DataFrame(X, columns=NAMED)
    if kind == "nan":
        frame.loc[120, "c4"] = np.nan
    parts = delayed(frame)
    if kind == "column":
        parts[2] = dask.delayed(frame[NAMED[:-1]].iloc[50:])
    if kind == "order":
        parts[2] = dask.delayed(frame[NAMED[::-1]].iloc[50:])
    if kind == "targets":
        several = pd.DataFrame({"a": Y, "b": -Y})
        return parts, [dask.delayed(y) for y in (several[:50], several[:0], several[["b", "a"]][50:])]
    return parts, delayed(pd.Series(Y), ((0, 50), (50, 50), (40, 140)) if kind == "index" else CUTS)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("nan", "NaN in column 4"),
        ("column", "features is 1[12] on rank . but|partitions with 1[12] and 1[12] columns"),
        ("order", "column 0 is 'c(0|11)'"),
        ("index", "y has other rows than X"),
        ("targets", "(y: column 0 is|y has partitions whose columns differ: column 0 is) '[ab]'"),
    ],
)
def test_a_broken_partition_ends_with_a_clear_error(client, kind, message):
    with pytest.raises(ValueError, match=message):
        DaskSparseLinearRegression(3, grid=CPU, client=client).fit(*broken(kind))


def test_what_cannot_be_fitted_is_refused(client):
    with pytest.raises(TypeError, match="X is a ndarray; pass a dask DataFrame"):
        DaskSparseLinearRegression(3).fit(X, Y)
    with pytest.raises(ValueError, match="y has 2 partitions where X has 3"):
        DaskSparseLinearRegression(3).fit(delayed(X), delayed(Y)[:2])
    with pytest.raises(ValueError, match="no sample in any partition"):
        DaskSparseLinearRegression(3).fit(delayed(X[:0]), delayed(Y[:0]))
    with pytest.raises(ValueError, match=r"client='here' must be a distributed.Client"):
        DaskSparseLinearRegression(3, client="here").fit(delayed(X), delayed(Y))
    with pytest.raises(TypeError, match="X names files; read them with dask"):
        DaskSparseLinearRegression(3).fit("data.csv")
    asyncio.run(refuse_asynchronous(client.scheduler.address))
    with pytest.raises(ValueError, match="restarts=-1 must be an integer of at least 0"):
        DaskSparseLinearRegression(3, restarts=-1).fit(delayed(X), delayed(Y))


async def refuse_asynchronous(address):
    async with Client(address, asynchronous=True, set_as_default=False) as client:
        with pytest.raises(ValueError, match="client: it is asynchronous"):
            DaskSparseLinearRegression(3, client=client).fit(delayed(X), delayed(Y))


def test_a_killed_worker_ends_the_fit_or_the_fit_goes_on_from_its_checkpoint(client, tmp_path):
    features, targets = delayed(X), delayed(Y)
    model = DaskSparseLinearRegression(3, grid=CPU, solver=LONG, callback=die_at_work(tmp_path / "dead"), client=client)
    with pytest.raises(PeerLostError, match=r"on worker tcp://.* was lost during the fit"):
        model.fit(features, targets)
    assert not hasattr(model, "result_")
    client.wait_for_workers(3)
    solver = BiCADMM(effort="low", tol=1e-12, max_iter=60, checkpoint=tmp_path / "kept", checkpoint_every=10)
    dying = die_at_work(tmp_path / "again", 25)
    again = DaskSparseLinearRegression(3, grid=CPU, solver=solver, callback=dying, client=client, restarts=1)
    again.fit(features, targets)
    assert first_after(tmp_path / "again") == 21
    assert again.objective_ == pytest.approx(SparseLinearRegression(3).fit(X, Y).objective_, rel=1e-9)


@pytest.mark.long
def test_a_killed_user_leaves_the_workers_to_others(tmp_path):
    """The ranks end, and the reservation of their processes, which only the user's process renews."""
    locks = "distributed.scheduler.locks"
    soon = {f"{locks}.lease-timeout": "3s", f"{locks}.lease-validation-interval": "1s"}
    folder, program = tmp_path / "at work", tmp_path / "user.py"
    folder.mkdir()
    program.write_text(USER)
    with dask.config.set(soon), start_cluster() as cluster, Client(cluster) as client:
        user = start([sys.executable, str(program), cluster.scheduler_address, str(folder)])
        ranks = workers_of(folder, 2, lambda: user.poll() is None)
        user.kill()
        user.communicate()
        assert len(ranks) == 2
        # One of these two workers at least has a rank of the killed user.
        places = dict(zip(CUTS[::2], sorted(client.nthreads()), strict=False))
        features, targets = (
            [dask.delayed(client.submit(np.copy, values[a:b], workers=[place])) for (a, b), place in places.items()]
            for values in (X, Y)
        )
        model = DaskSparseLinearRegression(3, grid=CPU, client=client).fit(features, targets)
        assert model.objective_ == pytest.approx(SparseLinearRegression(3).fit(X, Y).objective_, rel=1e-9)


@pytest.mark.long
def test_a_cluster_that_closes_in_mid_fit_leaves_no_process(tmp_path):
    cluster = start_cluster()
    with Client(cluster) as client:
        parts = client.persist(delayed(X))
        model = DaskSparseLinearRegression(3, grid=CPU, solver=LONG, callback=work_slowly(tmp_path), client=client)
        stop_in_mid_fit(lambda: model.fit(parts, delayed(Y)), cluster.close, tmp_path, 1)


@pytest.mark.long
def test_workers_on_two_hosts_of_an_encrypted_cluster_meet():
    """Two addresses of this machine stand for two hosts."""
    security = Security.temporary()
    options = {"security": security, "nthreads": 1, "dashboard_address": None}
    workers = {k: {"cls": Nanny, "options": {**options, "host": f"127.0.0.{k + 1}"}} for k in range(2)}
    scheduler = {"cls": Scheduler, "options": {"security": security, "host": "127.0.0.1", "dashboard": False}}
    with SpecCluster(workers, scheduler, security=security) as cluster, Client(cluster, security=security) as client:
        places = sorted(client.nthreads())
        assert [place.rpartition(":")[0] for place in places] == ["tls://127.0.0.1", "tls://127.0.0.2"]
        parts = [
            [client.scatter(values[a:b], workers=[place]) for (a, b), place in zip(CUTS[::2], places, strict=True)]
            for values in (X, Y)
        ]
        features, targets = ([dask.delayed(part) for part in held] for held in parts)
        model = DaskSparseLinearRegression(3, grid=CPU, client=client).fit(features, targets)
    assert model.result_.nodes == 2
    assert model.objective_ == pytest.approx(SparseLinearRegression(3).fit(X, Y).objective_, rel=1e-9)


def test_estimators_for_dask_are_estimators(client):
    model = DaskSparseLogisticRegression(3, gamma=2.0, client=client)
    copy = clone(model)
    assert copy.client is client
    assert copy.get_params()["gamma"] == 2.0
    assert pickle.loads(pickle.dumps(model)).client is None
    with pytest.raises(ValueError, match=r"belongs to an engine; save model.to_local\(\)"):
        psfit.save(model, "model.psfit")
    assert "client : distributed.Client" in (DaskSparseLogisticRegression.__doc__ or "")
    assert set(psfit.dask.__all__) >= {f"Dask{entry.estimator}" for entry in LOSSES.values()}


@pytest.mark.long
def test_the_example_reads_parquet():
    done = run([sys.executable, str(HERE.parents[1] / "examples/dask_parquet.py")])
    assert done.returncode == 0, done.stderr
    assert "features: sensor 3, sensor 17, sensor 31\nsamples: 1600" in done.stdout
    assert "without Dask: SparseLinearRegression" in done.stdout
