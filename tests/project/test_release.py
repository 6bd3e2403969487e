"""The release: the contents of both archives, and the wheel works outside the repository."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import numpy as np
import pytest

import psfit

ROOT = Path(__file__).parents[2]
# What runs leave in a checkout, and what no build may depend on.
LEFTOVERS = shutil.ignore_patterns(".*", "build", "dist", "demo-output", "*.egg-info", "__pycache__")
ARCHIVE = f"psfit_toolbox-{psfit.__version__}"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the source archive, and the wheel that was built from it; nothing is fetched."""
    folder = tmp_path_factory.mktemp("release")
    shutil.copytree(ROOT, folder / "checkout", ignore=LEFTOVERS)
    _run([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", folder / "checkout"], folder)
    return folder / "dist"


def _run(command, cwd):
    """Run without the repository on Python's path; it must succeed."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _share_compiled_loops(ours, theirs):
    """What Numba has compiled in the checkout serves the wheel, too: its files are the same if their times are."""
    for file in ours.glob("*.py"):
        assert (theirs / file.name).read_bytes() == file.read_bytes()
        shutil.copystat(file, theirs / file.name)
    (theirs / "__pycache__").mkdir(exist_ok=True)
    for file in (ours / "__pycache__").glob("*.nb?"):
        shutil.copy2(file, theirs / "__pycache__")


def test_contents(built):
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"{ARCHIVE}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        about = Parser().parsestr(archive.read(f"{ARCHIVE}.dist-info/METADATA").decode())
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/psfit").rglob("*.py")}
    outside = {name for name in names if not name.startswith(f"{ARCHIVE}.dist-info/")}
    # Whatever else the package holds is data that it needs, inside of it.
    assert sources | {"psfit/py.typed"} <= outside
    assert all(name.startswith("psfit/") for name in outside)
    assert f"{ARCHIVE}.dist-info/licenses/LICENSE" in names
    assert about["Version"] == psfit.__version__
    assert about["License-Expression"] == "MIT"
    assert about["Requires-Python"] == ">=3.11"
    assert about.get_payload().startswith("# PsFiT")

    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        held = {name.removeprefix(f"{ARCHIVE}/") for name in archive.getnames()}
    assert {f"src/{name}" for name in sources} | {"src/psfit/py.typed"} <= held
    assert {"pyproject.toml", "README.md", "LICENSE", "CITATION.cff", "SECURITY.md", "constraints.txt"} <= held
    assert {"tests/project/test_release.py", "tests/distributed/launch.py", "docs/architecture.md"} <= held
    assert not any(name.startswith(("benchmarks", ".")) or "__pycache__" in name for name in held)


@pytest.mark.long
def test_the_wheel_works_where_the_repository_is_not(built, tmp_path):
    home = tmp_path / "fresh"
    venv.create(home, symlinks=True)
    python = home / "bin/python"
    (wheel,) = built.glob("*.whl")
    quiet = ["--quiet", "--disable-pip-version-check"]
    _run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", *quiet, wheel], tmp_path
    )
    # The dependencies are those of this environment. A folder that a .pth file names brings no .pth files of its own,
    # so the editable PsFiT that may be installed there stays out.
    (site,) = home.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    _share_compiled_loops(ROOT / "src/psfit/kernels/cpu", site / "psfit/kernels/cpu")
    script = home / "bin/psfit"
    X = np.random.default_rng(0).normal(size=(60, 4))
    table = np.column_stack([X, 2 * X[:, 1] - X[:, 3]])
    np.savetxt(tmp_path / "data.csv", table, delimiter=",", header="a,b,c,d,answer", comments="")
    fit = [script, "fit", "data.csv", "--target", "answer", "--kappa", 2, "--gamma", "1e6", "--out", "model.psfit"]
    assert "gap" in _run(fit, tmp_path)
    predicted = _run([script, "predict", "model.psfit", "data.csv"], tmp_path).split()[1:]
    np.testing.assert_allclose(np.array(predicted, float), table[:, 4], atol=1e-5)
    code = "import psfit; print(psfit.__file__, psfit.__version__, *psfit.load('model.psfit').support_)"
    place, *found = _run([python, "-c", code], tmp_path).split()
    assert Path(place).is_relative_to(home)
    assert found == [psfit.__version__, "1", "3"]

    said = _run([script, "demo", "--samples", 400, "--features", 20], tmp_path)
    # Without the environment on the path, the commands to try next name its Python.
    lines = [line for line in said.splitlines() if line.startswith("  fresh/bin/python -m psfit ")]
    assert len(lines) == 5
    assert "442 rows" in _run(["bash", "-c", lines[0]], tmp_path)


def test_the_conda_recipe_needs_what_the_package_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    recipe = (ROOT / "packaging/conda/meta.yaml").read_text()
    assert f"name: {project['name']}" in recipe
    run = recipe.split("  run:\n")[1].split("\n\n")[0]
    found = sorted(line.removeprefix("    - ").replace(" ", "") for line in run.splitlines())
    # conda-forge has other names for these two.
    other = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
    needed = [f"python{project['requires-python']}", *project["dependencies"]]
    pairs = [one.split(">=") for one in needed]
    assert found == sorted(f"{other.get(name, name)}>={version}" for name, version in pairs)
