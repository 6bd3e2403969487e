"""Checkpoints: a run continues bit for bit, and refuses the checkpoints of other runs."""

import json
import shutil
import subprocess
import sys
from dataclasses import asdict, replace

import numpy as np
import pytest
import scipy.sparse
import torch
from problems import make_source

from psfit import BiCADMM, Dense, GridSpec, Problem, Source, SparseLinearRegression, solve
from psfit.admm.checkpoint import CheckpointError, folder
from psfit.data import Sparse, Streamed
from psfit.data.streamed import ArrayRows
from psfit.losses import Logistic, Squared

# For the folder this is another run: it has the lock until it is killed.
HOLDER = """
import fcntl, json, os, sys
with open(sys.argv[1], "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    file.write(json.dumps({"process": os.getpid(), "host": "here"}))
    file.flush()
    print("locked", flush=True)
    sys.stdin.read()
"""


def run(folder, *, loss=None, local="feature_split", max_iter=30, blocks=1, kappa=3, seed=0, change=None, **more):
    loss = loss or Logistic()
    source = make_source(loss, samples=60, features=9, nonzeros=3, seed=seed)
    start = None
    if change == "y":
        source = source.with_target(-source.target)
    elif change == "X":
        # The two signs leave every sum of squares as it is, and the weights of the columns with it.
        values = source.matrix.values.clone()
        values[7, 2:4] *= -1
        source = replace(source, matrix=Dense(values))
    elif change == "weight":
        source = replace(source, weight=source.weight.clone().index_fill_(0, torch.tensor([5]), 2.0))
    elif change == "start":
        start = torch.ones(9, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    settings = {"tol": 1e-12, "effort": "low", "local": local, "max_iter": max_iter} | more
    solver = BiCADMM(**settings, checkpoint=folder, checkpoint_every=4)
    grid = GridSpec(nodes=3, blocks=blocks, device="cpu")
    return solve(Problem(loss, (kappa,), 10.0), source, solver, grid, start)


def track(result):
    """The history without its times."""
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
    assert sorted(path.name for path in tmp_path.iterdir()) == ["iteration-00000010", "lock"]
    names = sorted(path.name for path in (tmp_path / "iteration-00000010").iterdir())
    assert names == [".psfit-checkpoint", "manifest.json", "rank-00000.npz", "shared.npz"]


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
        ({"seed": 1}, "this one has other features X and other targets y or offsets; choose"),
        ({"change": "y"}, "this one has other targets y or offsets; choose"),
        ({"change": "X"}, "this one has other features X; choose"),
        ({"change": "weight"}, "this one has other sample weights; choose"),
        ({"change": "start"}, "this one has another starting point; choose"),
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


@pytest.mark.parametrize("name", ["rank-00000.npz", "shared.npz"])
def test_a_missing_file_is_refused(name, tmp_path):
    run(tmp_path, max_iter=6)
    (tmp_path / "iteration-00000006" / name).unlink()
    with pytest.raises(CheckpointError, match="rank 0 does not find its files of the checkpoint at iteration 6"):
        run(tmp_path)


@pytest.mark.parametrize(
    ("name", "array", "change", "said"),
    [
        ("shared.npz", "bilinear_z", lambda a: a[:-1], r"'bilinear_z' is an array \(9, 1\) of float64 where \(10, 1\)"),
        ("rank-00000.npz", "u", lambda a: a.astype("f4"), "of float32 where"),
        ("rank-00000.npz", "u", lambda a: a * np.nan, "'u' has numbers that are not finite"),
        ("shared.npz", "history", lambda a: a[1:], "'history' is an array"),
        ("shared.npz", "iteration", lambda a: a + 1, "holds iteration 7"),
        ("rank-00000.npz", "sums", lambda a: None, "cannot be read"),
        ("rank-00000.npz", "sums", lambda a: a.astype(object), "'sums' is an array .* of object"),
        ("shared.npz", "seconds", lambda a: np.array(["soon"] * len(a)), "'seconds' is an array"),
    ],
)
def test_arrays_that_cannot_be_right_are_named(name, array, change, said, tmp_path):
    run(tmp_path, max_iter=6)
    path = tmp_path / "iteration-00000006" / name
    with np.load(path) as file:
        arrays = dict(file)
    changed = change(arrays.pop(array))
    np.savez(path, **arrays | ({} if changed is None else {array: changed}))
    with pytest.raises(CheckpointError, match=said) as error:
        run(tmp_path)
    assert name in str(error.value) or array == "iteration"


def test_bytes_that_were_changed_on_disk_are_noticed(tmp_path):
    run(tmp_path, max_iter=6)
    path = tmp_path / "iteration-00000006" / "rank-00000.npz"
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"rank-00000.npz"):
        run(tmp_path)


def test_another_format_and_a_broken_manifest_are_refused(tmp_path):
    run(tmp_path, max_iter=6)
    manifest = tmp_path / "iteration-00000006" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 99}))
    with pytest.raises(CheckpointError, match="format 99"):
        run(tmp_path)
    whole = json.loads(manifest.read_text()) | {"format": 4}
    for broken in ("{", "[]", "7", json.dumps(whole | {"run": []}), json.dumps(whole | {"data": [{}]}), "\xff"):
        manifest.write_text(broken)
        with pytest.raises(CheckpointError, match="manifest cannot be read"):
            run(tmp_path)
    manifest.write_text(json.dumps(whole | {"data": []}))
    with pytest.raises(CheckpointError, match="manifest is not complete"):
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


def test_targets_of_another_model_do_not_go_on_to_a_wrong_answer(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 20))
    solver = BiCADMM(checkpoint=tmp_path, effort="low")
    SparseLinearRegression(2, solver=solver).fit(X, X[:, 0] + X[:, 1])
    with pytest.raises(CheckpointError, match="other targets y"):
        SparseLinearRegression(2, solver=solver).fit(X, X[:, 2] - X[:, 3])


def sparse_of(X):
    return Sparse.of(scipy.sparse.csr_matrix(X), torch.device("cpu"), torch.float64)


def streamed_of(X):
    return Streamed(ArrayRows(X), torch.device("cpu"), torch.float64, budget=1 << 20)


@pytest.mark.parametrize("matrix_of", [sparse_of, streamed_of, lambda X: Dense(torch.from_numpy(X))])
def test_every_entry_of_every_kind_of_matrix_counts(matrix_of):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 7)) * (rng.random(size=(40, 7)) < 0.5)
    number = matrix_of(X).fingerprint()
    assert number == matrix_of(X.copy()).fingerprint()
    seen = {number}
    for i in range(40):
        changed = X.copy()
        changed[i, i % 7] += 1e-12
        seen.add(matrix_of(changed).fingerprint())
        changed[i, i % 7] = X[i, i % 7]
        changed[[i, i - 1]] = changed[[i - 1, i]]
        seen.add(matrix_of(changed).fingerprint())
    assert len(seen) == 81


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=lambda loss: loss.name)
def test_data_that_pass_by_are_known_again_without_another_pass(loss, tmp_path, monkeypatch):
    monkeypatch.setattr("psfit.data.streamed.BLOCK_BYTES", 3000)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    y = torch.from_numpy(np.sign(X[:, :1] + 0.1 * rng.normal(size=(300, 1))))

    def fitted(X, folder):
        source = Source(streamed_of(X), y, torch.ones_like(y))
        solver = BiCADMM(effort="low", checkpoint=folder, max_iter=8)
        return solve(Problem(loss, (2,)), source, solver, GridSpec(nodes=3, device="cpu"))

    assert fitted(X, tmp_path).passes == fitted(X, None).passes
    fitted(X, tmp_path)
    changed = X.copy()
    changed[250, 1] *= -1
    with pytest.raises(CheckpointError, match="other features X"):
        fitted(changed, tmp_path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_single_precision_and_several_targets_go_on_to_the_same_bits(dtype, tmp_path):
    source = make_source(Squared(), samples=60, features=9, nonzeros=3, seed=0)
    y = torch.cat([source.target, source.target.flip(0)], dim=1).to(dtype)
    source = Source(Dense(source.matrix.values.to(dtype)), y, source.weight.to(dtype))

    def fitted(folder, max_iter):
        solver = BiCADMM(tol=1e-6, max_iter=max_iter, checkpoint=folder, checkpoint_every=4)
        return solve(Problem(Squared(), (2, 3)), source, solver, GridSpec(nodes=2, device="cpu"))

    fitted(tmp_path, 6)
    assert track(fitted(tmp_path, 30)) == track(fitted(None, 30))


def test_what_the_user_keeps_beside_checkpoints_stays(tmp_path):
    theirs = ["iteration-best", "iteration-00000001", "iteration-7", "round-0"]
    for name in theirs:
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text("theirs")
    run(tmp_path, max_iter=6)
    (tmp_path / "iteration-00000006" / "notes.txt").write_text("theirs")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / ".psfit-checkpoint").touch()
    (tmp_path / "iteration-00000099").symlink_to(tmp_path / "elsewhere")
    run(tmp_path, max_iter=10)
    for name in theirs:
        assert (tmp_path / name / "manifest.json").read_text() == "theirs"
    assert [path.name for path in (tmp_path / "iteration-00000006").iterdir()] == ["notes.txt"]
    assert (tmp_path / "elsewhere" / ".psfit-checkpoint").exists()
    assert (tmp_path / "iteration-00000010" / "manifest.json").exists()


def test_a_place_that_holds_other_files_is_not_written_to(tmp_path):
    (tmp_path / "iteration-00000004").mkdir()
    (tmp_path / "iteration-00000004" / "notes.txt").write_text("theirs")
    with pytest.raises(CheckpointError, match="iteration-00000004 is needed for a checkpoint but has other files"):
        run(tmp_path, max_iter=6)
    assert [path.name for path in (tmp_path / "iteration-00000004").iterdir()] == ["notes.txt"]


def test_two_runs_cannot_share_a_folder_but_one_can_follow_a_dead_one(tmp_path, monkeypatch):
    holder = subprocess.Popen(
        [sys.executable, "-S", "-c", HOLDER, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "locked\n"
        with monkeypatch.context() as patch:
            patch.setattr(folder, "LOCK_SECONDS", 0.0)
            with pytest.raises(
                CheckpointError, match=rf"in use by another run \(process {holder.pid} on here\); wait until"
            ):
                run(tmp_path, max_iter=6)
    finally:
        holder.kill()
        holder.communicate()
    assert run(tmp_path, max_iter=6).n_iter == 6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["iteration-00000006", "lock"]


def test_a_file_system_without_locks_is_warned_about(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(folder.fcntl, "flock", refuse)
    with pytest.warns(RuntimeWarning, match="has no locks"):
        run(tmp_path, max_iter=6)
    with pytest.warns(RuntimeWarning, match="has no locks"):
        assert run(tmp_path, max_iter=8).n_iter == 8


def test_a_diverged_state_is_not_kept(tmp_path, monkeypatch):
    plain = BiCADMM.step

    def explode(self, setup, state):
        after = plain(self, setup, state)
        if state.iteration < 7:
            return after
        broken = replace(after.bilinear, z=after.bilinear.z * torch.nan)
        return replace(after, bilinear=broken, sizes=after.sizes * torch.nan)

    monkeypatch.setattr(BiCADMM, "step", explode)
    run(tmp_path)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.glob("iteration-*")] == ["iteration-00000004"]
    assert track(run(tmp_path)) == track(run(None))
