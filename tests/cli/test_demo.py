"""``psfit demo``: what it prints and writes, and that the commands it names work."""

import re

import numpy as np
import pytest
from console import only_line, psfit, psfit_beside_its_python, typed
from launch import BIN, alone
from PIL import Image
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression

from psfit import load

SMALL = ("--samples", "2000", "--features", "100")


def test_the_demo_and_what_it_says_to_try_next(tmp_path):
    done = psfit_beside_its_python("demo", *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("4 nodes x 1 block") == 2
    assert "recovered  10 of the 10 true features" in done.stdout
    assert done.stdout.count("no model within the limit has an objective below") == 2
    folder = tmp_path / "psfit-demo"
    for name in ("generated", "diabetes"):
        picture = Image.open(folder / f"convergence-{name}.png").convert("L")
        assert picture.width > 600
        assert len(picture.getcolors()) > 50
        assert f"psfit-demo/{name}.psfit" in done.stdout
    assert float(re.search(r"R\^2 +(\S+) with", done.stdout)[1]) == pytest.approx(_least_squares(folder), abs=0.002)
    _, _, lines = done.stdout.partition("What to try next with these files:\n")
    commands = [line.strip() for line in lines.splitlines()]
    assert len(commands) == 6
    assert [command.split()[0] for command in commands] == ["psfit"] * 5 + [str(BIN / "torchrun")]
    with alone():
        for command in commands:
            tried = typed(["bash", "-c", command], tmp_path)
            assert tried.returncode == 0, (command, tried.stderr)
    assert len((folder / "predictions.csv").read_text().splitlines()) == 1 + 442
    assert len((folder / "path.csv").read_text().splitlines()) == 1 + 12


def _least_squares(folder):
    """The score of scikit-learn's regression on the terms that the saved model has, made from the data set anew."""
    model = load(folder / "diabetes.psfit")
    assert len(model.support_) == 8
    data = load_diabetes()
    columns = []
    for term in model.feature_names_in_[model.support_]:
        factors = [part.partition("^") for part in term.split(" ")]
        powers = [data.data[:, data.feature_names.index(name)] ** int(power or 1) for name, _, power in factors]
        columns.append(np.prod(powers, axis=0))
    X = np.column_stack(columns)
    return LinearRegression().fit(X, data.target).score(X, data.target)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--out", "file"], "--out: file is a file; name a folder"),
        (["--features", "9"], "--features: 9 is too few"),
        (["--samples", "3"], "--samples: 3 is too few for 4 nodes"),
        (["--device", "abacus"], "--device 'abacus' cannot be used"),
    ],
)
def test_mistakes(arguments, said, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    code, out, err = call("demo", *arguments)
    assert (code, out) == (1, "")
    assert said in err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_mistake_at_the_console(tmp_path):
    assert "--out: there is no folder" in only_line(psfit("demo", "--out", "nowhere/demo", cwd=tmp_path))
    assert list(tmp_path.iterdir()) == []
