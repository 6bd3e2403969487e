"""The commands of a federation on files."""

import json
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest

import psfit
from psfit.federated import Identity, Roster, launch


def test_identities_and_a_roster_are_files_that_only_their_owner_can_read(call, tmp_path):
    assert call("federated", "identity", "a", "--out", tmp_path / "a")[0] == 0
    assert call("federated", "identity", "b", "--may-leave", "--out", tmp_path / "b")[0] == 0
    publics = [tmp_path / "a.public", tmp_path / "b.public"]
    assert call("federated", "roster", *publics, "--out", tmp_path / "roster")[0] == 0
    made, roster = Identity.load(tmp_path / "a"), Roster.load(tmp_path / "roster")
    roster.require(made)
    assert roster.names == ("a", "b")
    assert roster.may_leave == {"b"}
    assert made.private.hex() not in publics[0].read_text()
    assert all((tmp_path / name).stat().st_mode & 0o077 == 0 for name in ("a", "b", "roster"))
    # A secret file is never replaced, and a stranger with a known name is refused.
    assert call("federated", "identity", "a", "--out", tmp_path / "a")[0] == 1
    with pytest.raises(ValueError, match="no client 'a' with this key"):
        roster.require(Identity.create("a"))
    (tmp_path / "a").chmod(0o640)
    with pytest.raises(ValueError, match="others can read it; run: chmod 600"):
        Identity.load(tmp_path / "a")
    # Nobody else can say that a client may be left out.
    forged = Roster(roster.keys, roster.secret, frozenset("ab"))
    with pytest.raises(ValueError, match="its identity does not"):
        forged.require(made)


def test_simulate_fits_files_whose_columns_are_matched_by_name(call, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 4))
    y = X[:, 0] - 3 * X[:, 2] + rng.normal(size=90)
    names = np.array(["w", "x", "y", "z", "out"])
    files = []
    for k in range(3):
        order = np.roll(np.arange(5), k)
        files.append(tmp_path / f"site{k}.csv")
        table = np.column_stack([X, y])[k::3][:, order]
        np.savetxt(files[-1], table, delimiter=",", header=",".join(names[order]), comments="")
    job = {"estimator": "SparseLinearRegression", "arguments": {"kappa": 2}, "pooled": True}
    job |= {"questions": {"path": {"kappas": [1, 2]}}}
    (tmp_path / "job.json").write_text(json.dumps(job | {"columns": names[:4].tolist(), "target": "out"}))
    code, out, err = call("federated", "simulate", tmp_path / "job.json", *files, "--out", tmp_path / "model.psfit")
    assert code == 0, err
    pooled = psfit.SparseLinearRegression(2).fit(X, y)
    printed = json.loads(out)
    assert printed["objective"] == pytest.approx(pooled.objective_, rel=1e-9)
    assert printed["clients"] == ["site0", "site1", "site2"]
    path = psfit.sparse_path(X, y, [1, 2])
    rows = printed["answers"]["path"]
    assert [row["objective"] for row in rows] == pytest.approx(path.objectives[0].tolist(), rel=1e-9)
    assert [row["features"] for row in rows] == [["y"], ["w", "y"]]
    model = psfit.load(tmp_path / "model.psfit")
    assert model.coef_ == pytest.approx(pooled.coef_, abs=1e-9)
    assert model.feature_names_in_.tolist() == ["w", "x", "y", "z"]


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ({"estimator": "Lasso"}, "no estimator of PsFiT"),
        ({"estimator": "SparseLogisticRegression"}, "list of all labels"),
        ({"estimator": "SparseLinearRegression", "arguments": {"grid": 3}}, "belong to one machine"),
        ({"estimator": "SparseLinearRegression", "kappa": 3}, "a job has the fields"),
        ({"estimator": "SparseLinearRegression", "arguments": {"kapa": 3}}, "unexpected keyword argument 'kapa'"),
        ({"estimator": "SparseLinearRegression", "arguments": {"kappa": -1}}, "kappa=-1 must be"),
        ({"estimator": "SparseLinearRegression", "questions": {"forecast": {}}}, "there are path, stability, near_"),
        ({"estimator": "SparseLinearRegression", "questions": {"path": {"time_limit": 3}}}, "path takes a table"),
        ({"estimator": "SparseLinearRegression", "pooled": True, "questions": {"stability": {}}}, "needs the samples"),
        ({"estimator": "SparseLinearRegression"}, "names the columns and the target"),
    ],
)
def test_a_job_that_cannot_be_done_is_refused(call, tmp_path, job, said):
    (tmp_path / "job.json").write_text(json.dumps(job))
    code, _, err = call("federated", "simulate", tmp_path / "job.json", tmp_path / "data.csv")
    assert code == 1
    assert said in err


def test_programs_of_an_earlier_run_are_ended_and_their_port_is_waited_for(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ValueError, match=f"another program listens at 127.0.0.1:{port}"):
            launch.wait_for_free_port("127.0.0.1", port, seconds=0.1)
    listen = f"import socket, time; held = socket.create_server(('127.0.0.1', {port})); time.sleep(600)"
    old = subprocess.Popen([sys.executable, "-c", listen, "flower-superlink"], start_new_session=True)
    launch.wait_for_port("127.0.0.1", port, old, tmp_path / "log")
    number = tmp_path / "superlink.pid"
    # Another program with this number is left alone.
    for name, code in (("flwr-serverapp", None), ("flower-superlink", -signal.SIGKILL)):
        number.write_text(str(old.pid))
        launch.end_leftover(name, number)
        assert not number.exists()
        assert (old.wait(60) if code else old.poll()) == code
    launch.wait_for_free_port("127.0.0.1", port)
