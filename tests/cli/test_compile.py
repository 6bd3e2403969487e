"""``psfit compile``: kernels on disk, and a remedy where no folder can be written."""

import subprocess
import sys
from pathlib import Path

import pytest
from launch import environment

from psfit.kernels import cpu
from psfit.kernels.cpu import compiler

# Modules that only other kernels use.
HELPERS = {"compiler", "selection", "states", "shares", "threads"}


# All kernels together take long, and every one of them is compiled for the tests that use it.
FEW = ["support_sums", "weighted_gram"]
COMPILE_FEW = f"""
import sys
from psfit.cli import main
from psfit.kernels import cpu
cpu.KERNELS = {FEW}
sys.argv = ["psfit", "compile"]
main()
"""


def test_kernels_are_kept_in_the_folder_that_is_printed(tmp_path):
    command = [sys.executable, "-c", COMPILE_FEW]
    variables = environment(NUMBA_CACHE_DIR=str(tmp_path))
    done = subprocess.run(command, capture_output=True, text=True, env=variables, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    printed = [line.removeprefix("compiled kernels are kept in ") for line in done.stdout.splitlines()]
    assert [f"compiling {name}" for name in FEW] == [line for line in printed if line.startswith("compiling")]
    kept = {str(file.parent) for file in tmp_path.rglob("*.nbi")}
    assert kept
    assert kept <= set(printed)
    assert "NUMBA_CACHE_DIR" in done.stdout


def test_a_folder_that_cannot_be_written_has_a_remedy(call, monkeypatch):
    monkeypatch.setattr(cpu, "cache_folders", list)
    code, _, err = call("compile")
    assert code == 1
    (line,) = err.splitlines()
    assert line.startswith("psfit: error: no folder for compiled kernels can be written; set NUMBA_CACHE_DIR")


def test_functions_are_compiled_where_no_folder_can_be_written(monkeypatch):
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])
    double = compiler.compile_loops(lambda x: 2 * x)
    assert double(3) == 6
    assert double.stats.cache_path is None


def test_every_module_of_kernels_is_compiled():
    files = {file.stem for file in Path(cpu.__file__).parent.glob("*.py")} - {"__init__"} - HELPERS
    assert files == set(cpu.KERNELS)


@pytest.mark.parametrize("name", cpu.KERNELS)
def test_kernels_are_known_to_be_kept_after_they_were_compiled(name):
    cpu.prepare([name], lambda: None)
    announced = []
    cpu._PREPARED.discard(name)
    cpu.prepare([name], lambda: announced.append(name))
    assert announced == []


def test_kernels_are_announced_where_none_is_kept(monkeypatch, tmp_path):
    announced = []
    monkeypatch.setattr(cpu, "_PREPARED", set())
    monkeypatch.setattr(cpu, "Path", lambda folder: tmp_path)
    cpu.prepare(["swaps"], lambda: announced.append("swaps"))
    assert announced == ["swaps"]
