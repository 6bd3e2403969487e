"""The numbers do not depend on the processor: the numerical tests run again as on another processor."""

import subprocess
import sys
from pathlib import Path

import pytest
from launch import environment, python

HERE = Path(__file__).parents[1]
NUMERICAL = [
    "kernels/test_linalg.py",
    "admm/test_bilinear.py",
    "losses/test_battery.py",
    "problem/test_domain.py",
    "certificate/test_quadratic.py",
    "admm/local/test_battery.py",
]
# Of the longer files what is in single precision, where numbers are soonest too small.
SOME = "not test_battery or f32 or float32"
SETTINGS = {
    "subnormal numbers are zero": {"FLUSH_SUBNORMALS": "1"},
    # MKL's way for any processor, torch's own loops without vector instructions, NumPy's and SciPy's OpenBLAS of 2008.
    "plain instructions": {
        "MKL_CBWR": "COMPATIBLE",
        "ATEN_CPU_CAPABILITY": "default",
        "OPENBLAS_CORETYPE": "Nehalem",
    },
}


@pytest.mark.parametrize(
    "name", ["subnormal numbers are zero", pytest.param("plain instructions", marks=pytest.mark.long)]
)
def test_the_numerical_tests_pass_where(name):
    # Not as a part of the run that has started this.
    own = {key: value for key, value in environment().items() if not key.startswith("PYTEST_")}
    # Libraries choose their instructions when they are loaded, so that needs a new Python.
    start = python() if "FLUSH_SUBNORMALS" in SETTINGS[name] else sys.executable
    program = [start, "-m", "pytest", "-n0", "-p", "no:cacheprovider", "-k", SOME]
    done = subprocess.run(
        [*program, *(str(HERE / file) for file in NUMERICAL)],
        cwd=HERE.parent,
        env=own | SETTINGS[name],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
