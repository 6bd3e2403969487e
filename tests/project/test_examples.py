"""The examples run with small data and write their pictures."""

from pathlib import Path

import numpy as np
import pytest
from launch import command, python, run
from PIL import Image
from psfit.plots import plot_convergence

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.long), 2])
def test_larger_than_memory(ranks):
    program = [str(ROOT / "examples/larger_than_memory.py"), "--samples", "1500", "--features", "60"]
    done = run([python(), *program] if ranks == 1 else command("torch", ranks, *program))
    assert done.returncode == 0, done.stderr
    said = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if line.startswith("  "))
    assert said["found"] == said["true"]
    assert "data read" in said["iterations"]
    assert float(said["accuracy"].split()[0]) > 0.8


def test_choosing_kappa(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 60))
    np.savez(tmp_path / "leukemia_golub.npz", X=X, y=np.where(X[:, 7] > 0, "AML", "ALL"))
    tall = rng.normal(size=(300, 55))
    counts = np.floor(np.exp(np.abs(tall[:, 3])))
    np.savez(tmp_path / "blogfeedback.npz", X=tall, y=counts, X_test=tall, y_test=counts)
    program = [str(ROOT / "examples/choose_kappa.py"), "--data", str(tmp_path), "--output", str(tmp_path / "pictures")]
    done = run([python(), *program, "--most", "4", "--resamples", "8"])
    assert done.returncode == 0, done.stderr
    assert "the fewest features within one standard error" in done.stdout
    assert "bmi, s5" in done.stdout
    assert "gene 7" in done.stdout
    assert "later posts" in done.stdout
    pictures = sorted(path.name for path in (tmp_path / "pictures").iterdir())
    expected = [
        f"{name}-{kind}.png" for name in ("blog-posts", "diabetes", "leukemia") for kind in ("choice", "gaps", "path")
    ]
    assert pictures == sorted([*expected, "diabetes-stability.png"])
    for name in pictures:
        assert len(Image.open(tmp_path / "pictures" / name).convert("L").getcolors()) > 50


def gallery(name: str, options: list[str], folder: Path) -> str:
    """What a program of the gallery says; its picture is there, and so is the one that the documentation shows."""
    done = run([python(), str(ROOT / f"examples/{name}.py"), *options, "--output", str(folder)])
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    (picture,) = folder.iterdir()
    assert picture.stem == name.replace("_", "-")
    assert str(picture) in done.stdout
    assert len(Image.open(picture).convert("L").getcolors()) > 50
    shown = ROOT / "docs/pictures" / picture.name
    assert shown.stat().st_size < 100_000
    return done.stdout


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("digits", ["--pictures", "300", "--kappas", "2", "6"], "6 pixels"),
        ("diabetes_interactions", ["--splits", "2", "--most", "3"], "all patients, with certificates"),
        ("insurance_claims", ["--policies", "4000", "--most", "2"], "kappa 1: D^2 0.1"),
        ("stable_features", ["--resamples", "4"], "worst radius is most like worst perimeter"),
        ("diabetes_signs", ["--splits", "2", "--most", "4"], "bmi, bp, s1, s5; against theory: s1"),
        ("one_lag_per_series", ["--repetitions", "3"], "two lags of a series in 0 fits"),
        ("categories", ["--splits", "2", "--most", "3"], "bmi, bp, s5"),
        pytest.param("federated_hospitals", ["--share", "0.3"], "secure sums: ", marks=pytest.mark.long),
    ],
)
def test_the_gallery(name, options, said, tmp_path):
    assert said in gallery(name, options, tmp_path / "new")


def test_three_features_tell_tumours_apart_better_than_one(tmp_path):
    said = gallery("breast_cancer", ["--splits", "2", "--most", "3"], tmp_path / "new")
    rows = [line.split() for line in said.splitlines()]
    accuracy = {int(row[0]): float(row[1]) for row in rows if row and row[0] in "123"}
    assert 80 < accuracy[1] < accuracy[3]


def test_convergence_picture_shows_the_residuals():
    import matplotlib as mpl

    from psfit import SparseLinearRegression

    mpl.use("Agg")
    X = np.random.default_rng(0).normal(size=(50, 8))
    model = SparseLinearRegression(2).fit(X, X[:, 1] + X[:, 3])
    axes = plot_convergence(model.result_, title="mine")
    assert axes.get_yscale() == "log"
    assert axes.get_title() == "mine"
    drawn = {line.get_label(): line.get_ydata() for line in axes.lines}
    expected = [record.primal for record in model.history_]
    assert drawn["p: consensus"][: len(expected)] == pytest.approx(expected, nan_ok=True)
    assert len(drawn) == 3
