"""The same data in every form a user can pass them: the same model."""

import jobs
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from sklearn.datasets import dump_svmlight_file

from psfit import BiCADMM, FileSource, GridSpec
from psfit.data import memory, streamed

X, JOBS = jobs.data()
# Some zeros, so that sparse forms have something to leave out.
X = np.where(np.random.default_rng(1).uniform(size=X.shape) < 0.2, 0.0, X)
WEIGHT = np.random.default_rng(2).integers(0, 4, size=jobs.SAMPLES).astype(float)
LOW = jobs.plain(JOBS)

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta"),
    pytest.mark.usefixtures("stays_sparse"),
]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks to a pass."""
    monkeypatch.setattr(streamed, "BLOCK_BYTES", 40 * jobs.FEATURES * 8)


def torch_csr(folder):
    csr = scipy.sparse.csr_matrix(X)
    parts = (torch.from_numpy(part) for part in (csr.indptr, csr.indices, csr.data))
    return torch.sparse_csr_tensor(*parts, size=X.shape, check_invariants=True)


def memory_map(folder):
    np.save(folder / "X.npy", X)
    return np.load(folder / "X.npy", mmap_mode="r")


def npy(folder):
    np.save(folder / "X.npy", X)
    return folder / "X.npy"


def passing(folder):
    return FileSource(npy(folder), memory=1)


def passing_with_room(folder):
    """All columns do not fit, but half of them do."""
    return FileSource(npy(folder), memory=X.nbytes // 2)


def csv(folder):
    pd.DataFrame(X).to_csv(folder / "X.csv", index=False)
    return folder / "X.csv"


def parquet(folder):
    pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]).to_parquet(folder / "X.parquet")
    return folder / "X.parquet"


def svmlight(folder):
    dump_svmlight_file(X, np.zeros(len(X)), str(folder / "X.svm"), zero_based=False)
    return folder / "X.svm"


FORMS = {
    "SciPy CSR": lambda folder: scipy.sparse.csr_matrix(X),
    "SciPy COO": lambda folder: scipy.sparse.coo_array(X),
    "torch": lambda folder: torch.tensor(X),
    "torch CSR": torch_csr,
    "memory map": memory_map,
    "npy": npy,
    "npy that passes by": passing,
    "npy that passes by with room": passing_with_room,
    "csv": csv,
    "parquet": parquet,
    "svmlight": svmlight,
}
DISTANT = ["SciPy CSR", "npy that passes by"]


def model_of(name, solver=None, **options):
    job = JOBS[name]
    return job.model(jobs.KAPPA, gamma=10.0, solver=solver or job.solver, **(job.options | options))


_controls: dict = {}


def control(name, weight, **options):
    """The fit to a plain array."""
    key = name, weight is None, repr(sorted(options.items()))
    if key not in _controls:
        _controls[key] = model_of(name, **options).fit(X, JOBS[name].y, weight)
    return _controls[key]


def check_same(model, expected):
    assert model.support_.tolist() == expected.support_.tolist()
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-6)
    np.testing.assert_allclose(model.result_.coef, expected.result_.coef, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(model.result_.intercept, expected.result_.intercept, rtol=1e-5, atol=1e-6)
    # A bound may be weaker where fewer columns are looked at, but it is never above what was reached.
    assert model.lower_bound_ <= min(model.objective_, expected.objective_) * (1 + 1e-9)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LOW)
def test_every_form_gives_the_same_model(name, form, tmp_path):
    model = model_of(name).fit(FORMS[form](tmp_path), JOBS[name].y)
    check_same(model, control(name, None))


@pytest.mark.parametrize(
    ("form", "options"),
    [(DISTANT[0], {"standardize": True}), (DISTANT[1], {"standardize": True, "fit_intercept": False})],
    ids=str,
)
@pytest.mark.parametrize("name", LOW)
def test_forms_with_weights_and_standardised(name, options, form, tmp_path):
    model = model_of(name, **options).fit(FORMS[form](tmp_path), JOBS[name].y, WEIGHT)
    check_same(model, control(name, WEIGHT, **options))


@pytest.mark.parametrize("form", DISTANT)
@pytest.mark.parametrize("name", ["squared, default effort", "squared, exact"])
def test_forms_with_more_effort(name, form, tmp_path):
    model = model_of(name).fit(FORMS[form](tmp_path), JOBS[name].y)
    check_same(model, control(name, None))
    assert model.gap_ == pytest.approx(control(name, None).gap_, abs=1e-6)


@pytest.mark.parametrize("form", DISTANT)
@pytest.mark.parametrize("grid", [GridSpec(nodes=3), GridSpec(blocks=2)], ids=["nodes", "blocks"])
@pytest.mark.parametrize("name", ["squared", "logistic", "softmax"])
def test_forms_on_grids(name, grid, form, tmp_path):
    model = model_of(name, grid=grid).fit(FORMS[form](tmp_path), JOBS[name].y)
    check_same(model, control(name, None, grid=grid))


@pytest.mark.parametrize("name", ["squared", "logistic"])
def test_a_memory_map_larger_than_memory_passes_by(name, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "SHARE", 1e-9)
    model = model_of(name).fit(memory_map(tmp_path), JOBS[name].y)
    assert model.result_.passes > 0
    check_same(model, control(name, None))


@pytest.mark.parametrize("form", DISTANT)
@pytest.mark.parametrize(
    ("name", "local"),
    [
        ("squared", "direct"),
        ("squared", "feature_split"),
        ("logistic", "majoriser"),
        ("logistic", "newton"),
        ("logistic", "feature_split"),
        ("softmax", "majoriser"),
        ("softmax", "newton"),
        ("hinge", "feature_split"),
    ],
)
def test_every_local_solver_on_every_form(name, local, form, tmp_path):
    solver = BiCADMM(effort="low", local=local)
    model = model_of(name, solver).fit(FORMS[form](tmp_path), JOBS[name].y)
    assert model.result_.local == local
    # Without a search the supports of local solvers may differ.
    check_same(model, control(name, None, solver=solver))


@pytest.mark.parametrize("form", ["SciPy CSR", "torch CSR", "npy that passes by", "csv", "svmlight"])
@pytest.mark.parametrize("name", ["squared", "logistic", "softmax"])
def test_predictions_of_every_form(name, form, tmp_path):
    model = control(name, None)
    ask = model.predict if name == "squared" else model.predict_proba
    np.testing.assert_allclose(ask(FORMS[form](tmp_path)), ask(X), rtol=1e-9)
