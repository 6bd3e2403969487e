"""The help and the version come without the libraries that take long to import."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from launch import environment
from typer.main import get_command

from psfit.cli import app, bench, measurement, options
from psfit.estimators import registry

ROOT = Path(__file__).parents[2]
SLOW = ["torch", "sklearn", "scipy", "numpy", "pandas", "matplotlib", "pyarrow", "numba", "jinja2"]
PROGRAM = """
import sys
from psfit.cli import main
sys.argv[0] = "psfit"
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
COMMANDS = sorted(get_command(app).commands)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)], ids=" ".join
)
def test_no_slow_library_is_imported(arguments):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    assert "psfit" in done.stdout
    imported = done.stderr.split()
    assert "psfit.cli" in imported
    assert [name for name in SLOW if name in imported] == []


def test_the_help_lists_every_command(call):
    code, out, _ = call("--help")
    assert code == 0
    known = {
        "bench",
        "compile",
        "demo",
        "export",
        "federated",
        "fit",
        "inspect",
        "near-optimal",
        "path",
        "predict",
        "report",
        "score",
    }
    assert known == set(COMMANDS)
    assert all(name in out for name in COMMANDS)


def test_the_reference_page_is_that_of_the_commands():
    """`python docs/write_cli.py` writes it."""
    found = runpy.run_path(str(ROOT / "docs/write_cli.py"))
    assert found["PAGE"].read_text() == found["write_page"]()


def test_the_choices_are_the_losses_that_exist():
    assert options.LOSSES == registry.BUILT_IN
    assert tuple(measurement.BASELINES) == sys.modules[bench.__module__].LOSSES
