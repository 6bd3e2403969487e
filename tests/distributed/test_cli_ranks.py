"""The same command line under torchrun and mpirun."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from jobs import data
from launch import BACKENDS, command, python, run

import psfit


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_file_is_dealt_to_the_ranks(backend, tmp_path):
    X, jobs = data()
    np.savez(tmp_path / "data.npz", X=X, y=jobs["squared"].y)
    program = ["-m", "psfit", "fit", str(tmp_path / "data.npz"), "--kappa", "3", "--device", "cpu", "--out"]
    alone = run([python(), *program, str(tmp_path / "alone.psfit")])
    assert alone.returncode == 0, alone.stderr
    done = run(command(backend, 3, *program, str(tmp_path / "ranks.psfit")))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Sparse squared fit") == 1
    assert "3 nodes x 1 block" in done.stdout
    one, many = psfit.load(tmp_path / "alone.psfit"), psfit.load(tmp_path / "ranks.psfit")
    assert many.objective_ == pytest.approx(one.objective_, rel=1e-9)
    np.testing.assert_allclose(many.coef_, one.coef_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("backend", ["mpi"])
def test_a_choice_over_ranks_is_said_once(backend, tmp_path):
    X, jobs = data()
    np.savez(tmp_path / "data.npz", X=X, y=jobs["squared"].y)
    program = ["-m", "psfit", "path", str(tmp_path / "data.npz"), "--kappas", "1:4", "--cv", "3", "--device", "cpu"]
    model = tmp_path / "model.psfit"
    done = run(command(backend, 3, *program, "--json", "--out", str(model)))
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["chosen"]["nodes"] == 3
    assert psfit.load(model).kappa_ == facts["chosen"]["kappa"][0]


def test_one_page_is_written_and_its_sums_are_those_of_all_ranks(tmp_path):
    X, jobs = data()
    labels = np.array(["no", "yes"])[(jobs["squared"].y.ravel() > 0).astype(int)]
    rows = [",".join([*map(repr, row.tolist()), label]) for row, label in zip(X, labels, strict=True)]
    names = [f"f{j}" for j in range(X.shape[1])]
    (tmp_path / "data.csv").write_text("\n".join([",".join([*names, "kind"]), *rows]))
    program = ["-m", "psfit", "fit", str(tmp_path / "data.csv"), "--loss", "logistic", "--kappa", "3"]
    pages = {}
    for ranks in (1, 2):
        folder = tmp_path / f"{ranks}"
        folder.mkdir()
        files = ["--out", str(folder / "model.psfit"), "--report", str(folder / "page.html")]
        done = run(command("torch", ranks, *program, "--device", "cpu", *files))
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("page.html") == 1
        assert sorted(path.name for path in folder.iterdir()) == ["model.psfit", "page.html"]
        pages[ranks] = (folder / "page.html").read_text()
    sections = [re.search(r'<section id="data".*?</section>', page, re.DOTALL).group() for page in pages.values()]
    assert sections[0] == sections[1]
    model = psfit.load(tmp_path / "2" / "model.psfit")
    assert f"{np.mean(model.predict(tmp_path / 'data.csv') == labels):.4g}" in sections[1]
    assert "2 nodes by 1 block" in pages[2]
    assert re.search(r"<dt>ranks</dt><dd>2</dd>", pages[2])


@pytest.mark.long
@pytest.mark.parametrize("backend", ["torch"])
def test_the_demo_is_said_once(backend, tmp_path):
    out = tmp_path / "out"
    program = ["-m", "psfit", "demo", "--out", str(out), "--samples", "400", "--features", "20", "--device", "cpu"]
    done = run(command(backend, 2, *program))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("2 nodes x 1 block") == 2
    assert done.stdout.count("recovered  2 of the 2 true features") == 1
    assert done.stdout.count("What to try next") == 1
    assert psfit.load(out / "diabetes.psfit").result_.nodes == 2


def test_figures_and_mistakes_over_ranks_are_said_once():
    program = ["-m", "psfit", "bench", "--samples", "200", "--features", "10", "--device", "cpu", "--repeats", "1"]
    done = run(command("torch", 2, *program, "--json"))
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["nodes"] == 2
    assert facts["environment"]["ranks"] == "2"
    assert len(facts["methods"]) == 3
    done = run(command("torch", 2, *program, "--kappa", "11"))
    assert done.returncode != 0
    assert done.stderr.count("psfit: error: --kappa: 11 must be between 1 and 10") == 1


@pytest.mark.parametrize(
    ("backend", "arguments", "said"),
    [
        ("torch", ["fit", "--kappa", "many"], "--kappa: 'many' is neither a count nor a share"),
        ("mpi", ["fit", "--kappa", "20"], "--kappa 20 must be between 1 and 12"),
        ("mpi", ["path", "--target", "z"], "--target 'z': there is no such column"),
    ],
    ids=["an option", "a setting", "a file"],
)
def test_what_all_ranks_find_wrong_is_said_once(backend, arguments, said, tmp_path):
    X, jobs = data()
    table = pd.DataFrame(X, columns=[f"f{j}" for j in range(X.shape[1])]).assign(y=jobs["squared"].y)
    table.to_csv(tmp_path / "data.csv", index=False)
    name, *options = arguments
    done = run(command(backend, 3, "-m", "psfit", name, str(tmp_path / "data.csv"), *options))
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.count("psfit: error: ") == 1
    assert said in done.stderr


def test_constraints_are_the_same_on_all_ranks(tmp_path):
    X, jobs = data()
    names = [f"f{j}" for j in range(X.shape[1])]
    pd.DataFrame(X, columns=names).assign(y=jobs["squared"].y.ravel()).to_csv(tmp_path / "data.csv", index=False)
    program = ["-m", "psfit", "fit", str(tmp_path / "data.csv"), "--kappa", "2", "--device", "cpu"]
    given = ["--include", "f5", "--exclude", "f0", "--upper", "f1=0.1", "--groups", "g=f2,f3,f4", "--at-most", "1"]
    alone = run([python(), *program, *given, "--json"])
    assert alone.returncode == 0, alone.stderr
    done = run(command("torch", 3, *program, *given, "--json"))
    assert done.returncode == 0, done.stderr
    one, many = json.loads(alone.stdout), json.loads(done.stdout)
    assert many["nodes"] == 3
    assert many["support"] == one["support"]
    assert "f5" in many["support"]
    assert many["objective"] == pytest.approx(one["objective"], rel=1e-9)
    assert many["constraints"] == one["constraints"]
    done = run(command("torch", 3, *program, "--include", "nowhere", "--out", str(tmp_path / "model.psfit")))
    assert done.returncode != 0
    assert "--include 'nowhere': there is no feature with this name" in done.stderr
    assert not (tmp_path / "model.psfit").exists()
