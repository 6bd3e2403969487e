"""Run on every rank: checkpoints in folders that ranks share or do not share; a failed assertion fails the job.

Arguments: backend, an empty folder.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
from jobs import SAMPLES, data, uneven_share

from psfit import BiCADMM, CheckpointError, GridSpec, RemoteError, SparseLinearRegression

spec = GridSpec(backend=sys.argv[1], device="cpu", timeout=60)
grid = spec.build()
rank = grid.world.rank
X, jobs = data()
rows = uneven_share(SAMPLES, grid.nodes.comm.size, grid.nodes.comm.rank)
X, y = X[rows], jobs["squared"].y[rows]


def fit(folder: Path | None, max_iter: int, y: np.ndarray = y, kappa: int = 3) -> SparseLinearRegression:
    """A fit whose answer is that of its last iteration."""
    solver = BiCADMM(effort="low", tol=1e-10, max_iter=max_iter, checkpoint=folder, checkpoint_every=4)
    return SparseLinearRegression(kappa, gamma=10.0, grid=spec, solver=solver, certify=False).fit(X, y)


def on_rank_one(action) -> None:
    """Let one rank change its files before the others continue."""
    grid.run_together(lambda: action() if rank == 1 else None)


def require_the_undisturbed_answer(folder: Path) -> None:
    found, expected = fit(folder, 40), fit(None, 40)
    assert found.n_iter_ == expected.n_iter_
    assert [r.primal for r in found.history_] == [r.primal for r in expected.history_]
    np.testing.assert_array_equal(found.coef_, expected.coef_)


def go_on_in_a_shared_folder(folder: Path) -> None:
    fit(folder, 10)
    place = folder / "iteration-00000010"
    names = ["manifest.json", "rank-00000.npz", "rank-00001.npz", "shared.npz"]
    assert sorted(path.name for path in place.glob("[!.]*")) == names
    require_the_undisturbed_answer(folder)


def go_on_in_folders_of_their_own(folder: Path) -> None:
    fit(folder / str(rank), 10)
    names = sorted(path.name for path in (folder / str(rank) / "iteration-00000010").glob("[!.]*"))
    assert names == ["manifest.json", f"rank-{rank:05d}.npz", "shared.npz"]
    require_the_undisturbed_answer(folder / str(rank))


def go_on_after_an_end_between_two_manifests(folder: Path) -> None:
    own = folder / str(rank)
    fit(own, 10)
    on_rank_one((own / "iteration-00000010" / "manifest.json").unlink)
    require_the_undisturbed_answer(own)


def refuse_where_a_rank_has_lost_its_files(folder: Path) -> None:
    own = folder / str(rank)
    fit(own, 10)
    on_rank_one(lambda: own.rename(folder / "lost"))
    with pytest.raises(CheckpointError, match="rank 1 does not find its files of the checkpoint at iteration 10"):
        fit(own, 40)


def refuse_other_targets_of_one_rank(folder: Path) -> None:
    fit(folder, 10)
    with pytest.raises(CheckpointError, match=r"this one has other targets y or offsets \(on rank 1\)"):
        fit(folder, 40, y if rank == 0 else -y)


def refuse_a_truncated_file_of_one_rank(folder: Path) -> None:
    fit(folder, 10)
    path = folder / "iteration-00000010" / "rank-00001.npz"
    on_rank_one(lambda: path.write_bytes(path.read_bytes()[:-100]))
    error = CheckpointError if rank == 1 else RemoteError
    with pytest.raises(error, match=r"rank-00001\.npz cannot be read"):
        fit(folder, 40)


for case in (
    go_on_in_a_shared_folder,
    go_on_in_folders_of_their_own,
    go_on_after_an_end_between_two_manifests,
    refuse_where_a_rank_has_lost_its_files,
    refuse_other_targets_of_one_rank,
    refuse_a_truncated_file_of_one_rank,
):
    case(Path(sys.argv[2]) / case.__name__)
