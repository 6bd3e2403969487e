"""Tests marked `gpu` are collected only on machines with a GPU, and those of engines only where these are installed."""

import os

# The problems are small and there are many workers: one thread each is fastest, and reproducible. Programs that tests
# start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import shutil
import sys
from importlib.metadata import PackageNotFoundError, distribution

import pytest
import torch

from psfit.cli import main
from psfit.estimators import reading

torch.set_num_threads(1)
# The folders of tests that need an extra of the same name: its package, and a program that must be there.
EXTRAS = {"dask": ("distributed", None), "ray": ("ray", None), "sindy": ("pysindy", None), "spark": ("pyspark", "java")}
# As on processors and in libraries that take subnormal numbers for zero; tests/project/test_portability.py asks for it.
if os.environ.get("FLUSH_SUBNORMALS"):
    assert torch.set_flush_denormal(True)


@pytest.fixture
def call(monkeypatch, capsys):
    """Run a command line in this process, which starts faster than the script; its exit status and what it printed."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["psfit", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return ended.value.code or 0, printed.out, printed.err

    return run


@pytest.fixture
def stays_sparse(monkeypatch):
    """Sparse matrices stay sparse although they are tiny."""
    monkeypatch.setattr(reading, "DENSE_CELLS", 0)


def is_missing(extra):
    """Whether an extra, or a program that it needs, is not installed."""
    package, program = EXTRAS[extra]
    try:
        distribution(package)
    except PackageNotFoundError:
        return True
    return program is not None and shutil.which(program) is None


collect_ignore = [extra for extra in EXTRAS if is_missing(extra)]


def pytest_terminal_summary(terminalreporter):
    for extra in collect_ignore:
        program = EXTRAS[extra][1]
        needs = f"psfit-toolbox[{extra}]" + (f" and {program}" if program else "")
        terminalreporter.write_line(f"left out: tests/{extra}, which need {needs}")


def pytest_collection_modifyitems(config, items):
    if not torch.cuda.is_available():
        absent = [item for item in items if item.get_closest_marker("gpu")]
        config.hook.pytest_deselected(items=absent)
        items[:] = [item for item in items if item not in absent]
