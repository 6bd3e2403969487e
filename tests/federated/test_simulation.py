"""Simulated federations against the pooled fit: the same answer, with secure sums and with plain ones."""

import numpy as np
import pytest

import psfit
from psfit.federated import Job, LocalData, ServerSettings, simulate
from psfit.federated.masks import BOX_BYTES
from psfit.federated.ring import BYTES
from psfit.federated.simulation import PipeTransport

# Few iterations and little search: what is tested is that the sums are right.
QUICK = {"max_iter": 12, "effort": "low"}


def make_problem(kind, rng, clients, features=8, rows=12):
    """Skewed data: each client has its own range of the first column, and softmax clients lack classes."""
    X = rng.normal(size=(clients * rows, features))
    X = X[X[:, 0].argsort()]
    beta = np.zeros((features, 3))
    beta[[0, 3, 5], [0, 1, 2]] = 2.0, -2.0, 1.5
    eta = X @ beta
    if kind == "squared":
        y, name, classes = eta.sum(axis=1) + rng.normal(size=len(X)), "SparseLinearRegression", None
    elif kind == "logistic":
        y = (eta.sum(axis=1) + rng.logistic(size=len(X)) > 0).astype(int)
        name, classes = "SparseLogisticRegression", [0, 1]
    else:
        y = (eta + rng.gumbel(size=eta.shape)).argmax(axis=1)
        name, classes = "SparseSoftmaxRegression", [0, 1, 2]
    return X, y, name, classes


def divide(X, y, clients):
    parts = np.array_split(np.arange(len(X)), clients)
    return {f"site{k}": LocalData(X[part], y[part]) for k, part in enumerate(parts)}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("secure", [True, False])
@pytest.mark.parametrize("clients", [4, pytest.param(16, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["squared", "logistic", "softmax"])
def test_a_federation_gives_the_pooled_answer(kind, clients, secure):
    X, y, name, classes = make_problem(kind, np.random.default_rng(3), clients, rows=320 // clients)
    arguments = {"kappa": 3, "certify": False}
    pooled = getattr(psfit, name)(**arguments, solver=psfit.BiCADMM()).fit(X, y)
    job = Job(name, arguments | {"solver": QUICK}, classes=classes)
    found = simulate(job, divide(X, y, clients), ServerSettings(secure=secure))
    assert found.model.objective_ == pytest.approx(pooled.objective_, rel=1e-6)
    np.testing.assert_array_equal(found.model.coef_ != 0, pooled.coef_ != 0)


class Listening(PipeTransport):
    """Keeps the labels and sizes of the updates of the first client."""

    updates = None

    def receive(self, timeout):
        received = super().receive(timeout)
        if received is not None and received[0] == "site0" and received[1].kind == "update":
            self.updates.append((received[1].facts["label"], received[1].payload_bytes))
        return received


@pytest.mark.long
def test_rounds_and_bytes_are_those_of_the_model_in_the_docs():
    X, y, name, _ = make_problem("squared", np.random.default_rng(4), 4)
    Listening.updates = []
    found = simulate(Job(name, {"kappa": 3}), divide(X, y, 4), connect=Listening)
    labels = [label for label, _ in Listening.updates]
    outcome, boxes = found.outcome, 3 * BOX_BYTES
    # One round trip an iteration: its only sum holds x + u and nine sums for residuals of each of three penalties.
    iterations = [label for label in labels if label["operation"] == "latest"]
    assert len(iterations) == found.model.n_iter_
    assert {label["count"] for label in iterations} == {3 * (len(X.T) + 1) + 12}
    # An update is 32 bytes for each number and a sealed box for each other client; so is an answer of the server.
    assert all(size == BYTES * label["count"] + boxes for label, size in Listening.updates)
    numbers = sum(label["count"] for label in labels)
    own = outcome.exchanged["site0"]
    assert outcome.sums == len(labels)
    # The first boxes travel alone, the last request is answered by the end, and the first client sends the model.
    assert own.sent_bytes == BYTES * numbers + boxes * (len(labels) + 1)
    assert own.received_bytes == BYTES * numbers + boxes * (len(labels) + 1) + len(outcome.model)
    assert outcome.exchanged["site1"].received_bytes == own.received_bytes - len(outcome.model)
    assert own.header_bytes < 700 * len(labels) + 2000


def test_pooled_products_give_the_same_answer_and_proof_in_one_sum():
    rng = np.random.default_rng(6)
    X, y, name, _ = make_problem("squared", rng, 3, rows=30)
    X += 5.0
    weight = rng.uniform(0.5, 2.0, size=len(X))
    pooled = psfit.SparseLinearRegression(2).fit(X, y, sample_weight=weight)
    data = {key: LocalData(X[k::3], y[k::3], weight[k::3]) for k, key in enumerate("abc")}
    found = simulate(Job(name, {"kappa": 2}, pooled=True), data)
    assert found.outcome.sums == 1
    assert found.model.objective_ == pytest.approx(pooled.objective_, rel=1e-9)
    assert found.model.lower_bound_ == pytest.approx(pooled.lower_bound_, rel=1e-6)
    np.testing.assert_allclose(found.model.coef_, pooled.coef_, atol=1e-9)
    assert found.model.intercept_ == pytest.approx(pooled.intercept_, rel=1e-9)
