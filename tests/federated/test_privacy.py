"""Differential privacy: the noise is that of the promise, by another formula, and the promise is in the result."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from psfit.federated import Job, LocalData, ServerSettings, ring, simulate
from psfit.federated.job import JobError
from psfit.federated.privacy import Privacy, clip_rows, draw_noise
from psfit.federated.simulation import PipeTransport


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-6), (1.0, 1e-5), (20.0, 1e-5)])
def test_the_noise_keeps_the_promise(epsilon, delta):
    privacy = Privacy.calibrate(epsilon, delta, clip=3.0, fewest=4)
    s = privacy.noise_multiplier
    # The exact delta of a Gaussian mechanism with sensitivity one, after Balle and Wang.
    spent = norm.cdf(0.5 / s - epsilon * s) - math.exp(epsilon) * norm.cdf(-0.5 / s - epsilon * s)
    assert spent == pytest.approx(delta, rel=1e-3)
    drawn = sum(draw_noise(privacy, 4000) for _ in range(4))
    assert drawn.std() == pytest.approx(s * (3.0**2 + 1), rel=0.06)


def test_one_sample_changes_the_pooled_products_by_no_more_than_the_sensitivity():
    rows = np.random.default_rng(0).normal(size=(200, 5)) * 10.0 ** np.arange(-2, 3)
    clipped = clip_rows(rows, 2.0)
    z = np.column_stack([clipped, np.ones(200)])
    above = np.triu_indices(6)
    changes = [np.linalg.norm(np.outer(row, row)[above]) for row in z]
    assert max(changes) <= Privacy(1.0, 1e-5, 2.0, 1.0, 3).sensitivity + 1e-12
    short = np.linalg.norm(rows, axis=1) <= 2
    np.testing.assert_array_equal(clipped[short], rows[short])


def test_without_masks_the_noise_of_one_client_alone_keeps_the_promise():
    class Recording(PipeTransport):
        def receive(self, timeout):
            received = super().receive(timeout)
            if received is not None and received[1].kind == "update":
                seen[received[0]] = ring.decode(ring.from_bytes(received[1].parts["words"], 41 * 42 // 2))
            return received

    seen, promise = {}, {"epsilon": 1.0, "delta": 1e-5, "clip": 2.0}
    rng = np.random.default_rng(3)
    data = {name: LocalData(rng.normal(size=(10, 39)), rng.normal(size=10)) for name in "abc"}
    job = Job("SparseLinearRegression", {"kappa": 2}, pooled=True, privacy=promise)
    simulate(job, data, ServerSettings(secure=False), connect=Recording)
    for name, own in data.items():
        Z = np.column_stack([clip_rows(np.column_stack([own.X, own.y]), 2.0), np.ones(10)])
        noise = seen[name] - (Z.T @ Z)[np.triu_indices(41)]
        assert noise.std() == pytest.approx(Privacy.calibrate(**promise, fewest=1).noise_multiplier * 5.0, rel=0.12)


def test_the_promise_is_in_the_result_and_weak_noise_finds_the_truth():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(600, 5))
    y = 2 * X[:, 1] - X[:, 3] + 0.1 * rng.normal(size=600)
    data = {name: LocalData(X[k::3], y[k::3]) for k, name in enumerate("abc")}
    promise = {"epsilon": 50.0, "delta": 1e-5, "clip": 5.0}
    found = simulate(Job("SparseLinearRegression", {"kappa": 2}, pooled=True, privacy=promise), data)
    assert found.outcome.privacy == pytest.approx(promise)
    assert found.model.support_.tolist() == [1, 3]
    assert found.model.coef_[[1, 3]] == pytest.approx([2, -1], abs=0.2)
    for estimator, classes in (("SparseLinearRegression", None), ("SparseLogisticRegression", [0, 1])):
        with pytest.raises(JobError, match="needs pooled=true; other fits would need noise in every message"):
            Job(estimator, {"kappa": 2}, classes=classes, privacy=promise)
    with pytest.raises(JobError, match="SparseLinearRegression alone"):
        Job("SparseLogisticRegression", {"kappa": 2}, classes=[0, 1], pooled=True, privacy=promise)
    with pytest.raises(JobError, match="epsilon, delta and clip"):
        Job("SparseLinearRegression", {"kappa": 2}, pooled=True, privacy={"epsilon": 1.0})
