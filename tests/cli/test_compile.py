"""``psfit compile``: kernels on disk, and a remedy where no folder can be written."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from launch import environment

from psfit.kernels import cpu


def test_kernels_are_kept_in_the_folder_that_is_printed(tmp_path):
    command = [sys.executable, "-m", "psfit", "compile"]
    variables = environment(NUMBA_CACHE_DIR=str(tmp_path))
    done = subprocess.run(command, capture_output=True, text=True, env=variables, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    printed = [line.removeprefix("compiled kernels are kept in ") for line in done.stdout.splitlines()]
    assert [f"compiling {name}" for name in cpu.KERNELS] == printed[: len(cpu.KERNELS)]
    kept = {str(file.parent) for file in tmp_path.rglob("*.nbi")}
    assert kept
    assert kept <= set(printed)
    assert "NUMBA_CACHE_DIR" in done.stdout


@pytest.fixture
def failing(monkeypatch):
    """A kernel that cannot be compiled."""

    def install(error):
        def compile_kernels():
            raise error

        monkeypatch.setitem(sys.modules, f"{cpu.__name__}.failing", SimpleNamespace(compile_kernels=compile_kernels))
        monkeypatch.setattr(cpu, "KERNELS", ["failing"])

    return install


def test_a_folder_that_cannot_be_written_has_a_remedy(call, failing):
    failing(RuntimeError("cannot cache function 'f': no locator available for file 'f.py'"))
    code, out, err = call("compile")
    assert (code, out) == (1, "compiling failing\n")
    (line,) = err.splitlines()
    assert line.startswith("psfit: error: no folder for compiled kernels can be written; set NUMBA_CACHE_DIR")


def test_other_errors_are_not_hidden(failing):
    failing(RuntimeError("broken"))
    with pytest.raises(RuntimeError, match="broken"):
        cpu.compile_all(lambda text: None)


def test_every_module_of_kernels_is_compiled():
    files = {file.stem for file in Path(cpu.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == set(cpu.KERNELS)
