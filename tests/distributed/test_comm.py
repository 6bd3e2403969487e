"""One battery for all communicators, on real ranks; and how a grid is laid out."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from launch import HERE, command, python, run

from psfit import (
    Dense,
    GridSpec,
    Problem,
    Source,
    SparseLinearRegression,
    SparseLinearRegressionCV,
    solve,
    sparse_path,
    stability_selection,
)
from psfit.comm import Axis, RemoteError, Serial
from psfit.comm.base import Communicator
from psfit.comm.meeting import Place, meet
from psfit.comm.peers import Peers
from psfit.losses import Squared


@pytest.mark.parametrize(("backend", "ranks"), [("torch", 3), ("mpi", 3), ("mpi", 1), ("torch", 1)])
def test_the_contract_holds(backend, ranks):
    # Real processes of torchrun are in the tests of faults and of two hosts.
    real = backend == "mpi" and ranks > 1
    done = run(command(backend, ranks, str(HERE / "contract.py"), backend, "cpu", real=real))
    assert done.returncode == 0, done.stderr


def test_the_contract_holds_in_one_process():
    done = run([python(), str(HERE / "contract.py"), "serial", "cpu"])
    assert done.returncode == 0, done.stderr


def test_the_contract_holds_in_a_group_of_the_callers_own():
    done = run(command("torch", 2, str(HERE / "contract.py"), "torch", "cpu", "gloo"))
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("backend", "ranks", "group"),
    [("torch", 1, []), ("torch", 2, ["gloo"]), ("mpi", 2, [])],
    ids=["NCCL", "gloo", "MPI"],
)
def test_the_contract_holds_on_a_gpu(backend, ranks, group):
    done = run(command(backend, ranks, str(HERE / "contract.py"), backend, "cuda", *group))
    assert done.returncode == 0, done.stderr


class Placed(Serial):
    """A communicator that only has a rank and a size."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__()
        self.rank, self.size = rank, size


def placed(rank: int, size: int) -> Communicator:
    return Placed(rank, size)


def test_positions_are_dealt_contiguously_and_completely():
    hosted = [Axis(8, placed(rank, 3)).hosted for rank in range(3)]
    assert [position for part in hosted for position in part] == list(range(8))
    assert {len(part) for part in hosted} == {2, 3}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"backend": "smoke"}, "backend='smoke'"),
        ({"timeout": 0}, "timeout=0"),
        ({"backend": "torch"}, "torchrun"),
        ({"nodes": 0}, "nodes=0"),
        ({"blocks": 1.5}, "blocks=1.5"),
    ],
)
def test_a_bad_request_is_named(change, said, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match=said):
        GridSpec(device="cpu", **change).build()


def test_fewer_nodes_than_ranks_are_refused():
    done = run(command("mpi", 2, "-c", "from psfit import GridSpec; GridSpec(nodes=1, device='cpu').build()"))
    assert done.returncode != 0
    assert "at least 2 nodes" in done.stderr


def test_without_a_grid_everything_stays_in_its_process(monkeypatch):
    # What torchrun says; a rank that joined the others would not find them here.
    monkeypatch.setenv("WORLD_SIZE", "2")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 4))
    y = X[:, 1] + 0.1 * rng.normal(size=30)
    target = torch.from_numpy(y).unsqueeze(1)
    result = solve(Problem(Squared(), (1,)), Source(Dense(torch.from_numpy(X)), target, torch.ones_like(target)))
    assert result.nodes == 1
    assert result.objective == pytest.approx(SparseLinearRegression(1, gamma=1.0).fit(X, y).objective_, rel=1e-9)
    assert sparse_path(X, y, [1], gammas=1.0).objectives[0, 0] == pytest.approx(result.objective, rel=1e-9)
    assert SparseLinearRegressionCV([1], gammas=1.0, cv=2).fit(X, y).objective_ == pytest.approx(
        result.objective, rel=1e-9
    )
    assert stability_selection(X, y, [1], resamples=2).support.tolist() == [1]
    with pytest.raises(ValueError, match="torchrun"):
        GridSpec(device="cpu").build()


def test_a_rank_never_takes_itself_for_lost():
    """Where the system does not show its processes, every rank has a machine of its own."""
    places = ("unknown-1 999999999", "unknown-2 999999998", "unknown-3 999999997")
    assert Peers(0, 3, places).describe_lost() == "another rank"
    assert Peers(0, 3, ("here 999999999", "here 999999998", "there 1")).describe_lost() == (
        "rank 1 (its process has ended)"
    )


def test_a_rank_0_that_cannot_listen_tells_the_others():
    """They wait for its invitation, on some engines for ever."""
    told = []

    def share(text):
        told.append(text)
        return told[0]

    # No interface of this machine has an address that is kept for documents.
    place = Place(0, 2, 0, "203.0.113.1")
    with pytest.raises(OSError, match="assign"), meet(place, share, GridSpec()):
        pass
    reached = pytest.raises(RemoteError, match=r"rank 0 cannot be reached: OSError.*203\.0\.113\.1")
    with reached, meet(replace(place, rank=1), share, GridSpec()):
        pass
