"""What an import of PsFiT imports, and that names which are imported on first use behave like others."""

import ast
import pickle
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from launch import environment

import psfit
from psfit.reporting import plots

LAZY = ["matplotlib", "pandas", "pyarrow", "jinja2", "rich", "typer", "numba", "h5py", "mpi4py", "sklearn.metrics"]
LAZY += ["sklearn.model_selection", "sklearn.linear_model", "sklearn.svm", "sklearn.preprocessing", "sklearn.datasets"]
LAZY += ["torch.distributed.run", "torch._dynamo", "torch._inductor"]


def imported(program):
    """The modules that a program has imported at its end."""
    command = [sys.executable, "-c", f"{program}\nimport sys\nprint(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
    return set(done.stdout.split())


def test_the_package_alone_imports_no_other_library():
    found = imported("import psfit, psfit.plots")
    assert {"psfit", "psfit.plots"} <= found
    assert {name.split(".")[0] for name in found - imported("")} - sys.stdlib_module_names == {"psfit"}


def test_all_public_names_import_what_they_need_and_no_more():
    # scikit-learn itself imports pandas where it is installed.
    extra = imported("from psfit import *") - imported("import torch, sklearn")
    assert "psfit.estimators.classification" in extra
    assert [name for name in LAZY if name in extra] == []


def test_tools_that_look_at_all_modules_import_nothing():
    found = imported("import inspect, sys, psfit\ninspect.getmodule(sys._getframe())\nhasattr(psfit.plots, '__file__')")
    assert "torch" not in found


def test_every_public_name_is_found_in_its_place():
    assert sorted(psfit.__all__) == sorted([*psfit.PLACES, "__version__"])
    assert set(psfit.__all__) | {"plots"} <= set(dir(psfit))
    for name, place in psfit.PLACES.items():
        assert getattr(psfit, name) is getattr(import_module(place), name)
    names = {}
    exec("from psfit import *", names)
    assert set(psfit.__all__) <= set(names)


def test_type_checkers_see_the_same_places():
    tree = ast.parse(Path(psfit.__file__).read_text())
    (checked, *_) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {alias.name: node.module for node in checked.body for alias in node.names}
    assert seen == psfit.PLACES | {"plots": "psfit.reporting"}


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="module 'psfit' has no attribute 'lasso'"):
        _ = psfit.lasso
    with pytest.raises(AttributeError, match="no attribute 'lasso'"):
        _ = psfit.plots.lasso


def test_plots_have_a_public_module():
    from psfit.plots import plot_path

    assert plot_path is plots.plot_path
    assert psfit.plots is sys.modules["psfit.plots"]
    assert "plot_selection" in dir(psfit.plots)


def test_models_can_be_pickled():
    model = pickle.loads(pickle.dumps(psfit.SparseLinearRegression(kappa=3)))
    assert type(model) is psfit.SparseLinearRegression
    assert model.kappa == 3
