"""Checkpoints: going on bit for bit, and refusing what does not belong."""

import json
import shutil
from dataclasses import asdict

import numpy as np
import pytest
from problems import make_source

from psfit import BiCADMM, GridSpec, Problem, solve
from psfit.checkpoint import CheckpointError
from psfit.losses import Logistic, Squared


def run(folder, *, loss=None, local="feature_split", max_iter=30, blocks=1, kappa=3, seed=0, **change):
    loss = loss or Logistic()
    source = make_source(loss, samples=60, features=9, nonzeros=3, seed=seed)
    settings = {"tol": 1e-12, "effort": "low", "local": local, "max_iter": max_iter} | change
    solver = BiCADMM(**settings, checkpoint=folder, checkpoint_every=4)
    return solve(Problem(loss, (kappa,), 10.0), source, solver, GridSpec(nodes=3, blocks=blocks, device="cpu"))


def track(result):
    """All of the history but the clock."""
    return [{k: v for k, v in asdict(record).items() if k != "seconds"} for record in result.history]


@pytest.mark.parametrize(
    ("loss", "local", "blocks"),
    [
        (Squared(), "direct", 1),
        (Logistic(), "newton", 1),
        (Logistic(), "feature_split", 1),
        (Squared(), "feature_split", 2),
    ],
    ids=["direct", "newton", "feature split", "two blocks"],
)
@pytest.mark.parametrize("stop", [4, 10, 13])
def test_going_on_gives_the_same_bits(loss, local, blocks, stop, tmp_path):
    whole = run(None, loss=loss, local=local, blocks=blocks)
    first = run(tmp_path, loss=loss, local=local, blocks=blocks, max_iter=stop)
    assert first.n_iter == stop
    resumed = run(tmp_path, loss=loss, local=local, blocks=blocks)
    assert resumed.n_iter == whole.n_iter == 30
    assert track(resumed) == track(whole)
    np.testing.assert_array_equal(resumed.coef, whole.coef)
    np.testing.assert_array_equal(resumed.intercept, whole.intercept)


def test_one_checkpoint_is_kept_and_no_partial_files(tmp_path):
    run(tmp_path, max_iter=10)
    assert [path.name for path in tmp_path.iterdir()] == ["iteration-00000010"]
    names = sorted(path.name for path in (tmp_path / "iteration-00000010").iterdir())
    assert names == ["manifest.json", "rank-00000.npz", "shared.npz"]


def test_a_folder_without_a_manifest_is_no_checkpoint(tmp_path):
    run(tmp_path, max_iter=10)
    (tmp_path / "iteration-00000010" / "manifest.json").unlink()
    assert run(tmp_path, max_iter=6).n_iter == 6


def test_a_finished_run_ends_at_once_with_the_same_answer(tmp_path):
    first = run(tmp_path)
    again = run(tmp_path)
    assert track(again) == track(first)
    np.testing.assert_array_equal(again.coef, first.coef)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"kappa": 4}, "kappa"),
        ({"local": "newton"}, "local solver"),
        ({"rho_b": 3.0}, "penalties"),
        ({"blocks": 2}, "blocks"),
        ({"seed": 1}, "other data"),
        ({"loss": Squared()}, "loss"),
    ],
)
def test_a_foreign_checkpoint_is_refused_with_its_reason(change, named, tmp_path):
    run(tmp_path, max_iter=6)
    with pytest.raises(CheckpointError, match=named):
        run(tmp_path, **change)
    assert (tmp_path / "iteration-00000006").is_dir()


@pytest.mark.parametrize("name", ["rank-00000.npz", "shared.npz"])
def test_a_truncated_file_is_refused(name, tmp_path):
    run(tmp_path, max_iter=6)
    path = tmp_path / "iteration-00000006" / name
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(CheckpointError, match=rf"{name} cannot be read"):
        run(tmp_path)


def test_a_missing_file_is_refused(tmp_path):
    run(tmp_path, max_iter=6)
    (tmp_path / "iteration-00000006" / "rank-00000.npz").unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        run(tmp_path)


def test_another_format_and_a_broken_manifest_are_refused(tmp_path):
    run(tmp_path, max_iter=6)
    manifest = tmp_path / "iteration-00000006" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 99}))
    with pytest.raises(CheckpointError, match="format 99"):
        run(tmp_path)
    manifest.write_text("{")
    with pytest.raises(CheckpointError, match="manifest cannot be read"):
        run(tmp_path)


def test_files_hold_no_pickles(tmp_path):
    run(tmp_path, max_iter=6)
    for name in ("rank-00000.npz", "shared.npz"):
        with np.load(tmp_path / "iteration-00000006" / name, allow_pickle=False) as arrays:
            assert all(arrays[key].dtype != object for key in arrays.files)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(OSError, match="file"):
        run(blocked / "inside", max_iter=6)


def test_an_older_checkpoint_gives_way_only_to_a_whole_one(tmp_path):
    run(tmp_path, max_iter=6)
    shutil.copytree(tmp_path / "iteration-00000006", tmp_path / "iteration-00000009")
    (tmp_path / "iteration-00000009" / "manifest.json").unlink()
    resumed = run(tmp_path, max_iter=8)
    assert resumed.n_iter == 8
    assert track(resumed) == track(run(None, max_iter=8))


@pytest.mark.parametrize("bad", [0, -3])
def test_bad_intervals_are_named(bad):
    with pytest.raises(ValueError, match="checkpoint_every"):
        BiCADMM(checkpoint_every=bad)
