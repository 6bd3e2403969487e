"""Samples that are equal on a support count as one: sums and fits are those of all samples."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from psfit import GridSpec, Problem, Source
from psfit.data import Dense, Sparse
from psfit.losses import Hinge, Huber, Logistic, Poisson
from psfit.problem.pose import pose
from psfit.search import batch_refit, equal_samples, objective
from psfit.search.equal_samples import EqualSamples
from psfit.search.objective import DataObjective
from psfit.search.refit import refit
from psfit.search.support_fit import SupportFit

SAMPLES, FEATURES = 700, 9


def draw(loss, *, weights, levels=3, nodes=1, sparse=False):
    """Columns with few values, the last one with many; or with few entries, which are stored."""
    rng = np.random.default_rng(levels)
    X = rng.integers(0, levels, (SAMPLES, FEATURES)).astype(float)
    X[:, -1] = rng.normal(size=SAMPLES)
    if sparse:
        X *= rng.random(X.shape) < 0.2
    eta = X[:, 0] - X[:, 1]
    y = (
        np.where(eta + rng.logistic(size=SAMPLES) > 0, 1.0, -1.0)
        if loss.name != "poisson"
        else rng.poisson(np.exp(eta))
    )
    weight = rng.integers(0, 4, SAMPLES).astype(float) if weights else np.full(SAMPLES, 1.5)
    parts = (torch.from_numpy(part).double().unsqueeze(1) for part in (y, weight))
    stored = Sparse.of(csr_matrix(X), torch.device("cpu"), torch.float64) if sparse else Dense(torch.from_numpy(X))
    source = Source(stored, *parts)
    return pose(Problem(loss, (3,), 2.0), source, GridSpec(nodes=nodes).build(torch.device("cpu")))


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", [Logistic(), Poisson()], ids=lambda loss: loss.name)
def test_sums_are_those_of_all_samples(loss, weights, sparse):
    inst = draw(loss, weights=weights, sparse=sparse)
    assert inst.source.matrix.few_entries is sparse
    # The second support has fewer columns: it names one of them twice, with a coefficient of zero.
    places = torch.tensor([[0, 1, 9], [4, 4, 9]])
    x = torch.tensor([[0.3, -0.2, 0.1], [0.0, 0.7, -0.4]], dtype=torch.float64)
    merged = EqualSamples(inst.source, 0).merge(places)
    assert merged is not None
    assert merged.weight.shape[1] < SAMPLES / 4
    for index in (slice(None), torch.tensor([1])):
        found = merged.sum_losses(loss, x[index], index)
        for row, (place, value) in enumerate(zip(places[index], x[index], strict=True)):
            A = inst.source.matrix.columns(place.unique()).chunk(0, SAMPLES, torch.float64)
            used = torch.zeros(len(place.unique()), dtype=torch.float64)
            used.index_add_(0, torch.searchsorted(place.unique(), place), value)
            eta = (A @ used).unsqueeze(1)
            slope = inst.source.weight * loss.gradient(eta, inst.source.target)
            total = (inst.source.weight * loss.value(eta, inst.source.target)).sum()
            assert float(found[row, 0]) == pytest.approx(float(total), rel=1e-12)
            sums = (A.T @ slope).flatten()[torch.searchsorted(place.unique(), place)]
            torch.testing.assert_close(found[row, 1:], sums, rtol=1e-9, atol=1e-9)


def test_entries_with_many_values_are_not_merged():
    inst = draw(Logistic(), weights=False, sparse=True)
    assert EqualSamples(inst.source, 0).merge(torch.tensor([[0, 8, 9]])) is None


def test_columns_with_many_values_are_not_merged():
    equal = EqualSamples(draw(Logistic(), weights=False).source, 0)
    assert equal.merge(torch.tensor([[0, 8, 9]])) is None
    assert equal.merge(torch.tensor([[0, 1, 9]])) is not None


def test_too_many_different_samples_are_not_merged(monkeypatch):
    equal = EqualSamples(draw(Logistic(), weights=False).source, 0)
    assert equal.merge(torch.arange(8).unsqueeze(0)) is None
    monkeypatch.setattr(equal_samples, "MOST_BITS", 4)
    assert equal.merge(torch.tensor([[0, 1, 9]])) is None
    monkeypatch.undo()
    equal = EqualSamples(draw(Logistic(), weights=False).source, 0)
    monkeypatch.setattr(equal_samples, "MOST_READ", SAMPLES)
    assert equal.merge(torch.tensor([[2, 3, 9]])) is None
    monkeypatch.setattr(equal_samples, "MOST_READ", 3 * SAMPLES)
    assert equal.merge(torch.tensor([[2, 3, 9]])) is not None
    monkeypatch.setattr(equal_samples, "MOST_CODES", SAMPLES)
    assert equal.merge(torch.tensor([[2, 3, 4]])) is None


def test_targets_with_many_values_are_not_merged():
    inst = draw(Poisson(), weights=False)
    target = inst.source.target + torch.rand(SAMPLES, 1, dtype=torch.float64)
    assert EqualSamples(Source(inst.source.matrix, target, inst.source.weight), 0).merge(torch.tensor([[0, 9]])) is None


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("loss", [Logistic(), Poisson()], ids=lambda loss: loss.name)
def test_fits_are_those_of_all_samples(loss, weights, nodes, monkeypatch):
    monkeypatch.setattr(objective, "FEWEST_SAMPLES", 1)
    inst = draw(loss, weights=weights, nodes=nodes)
    chosen = torch.zeros(FEATURES, dtype=torch.bool)
    chosen[[0, 1, 5]] = True
    zero = torch.zeros(FEATURES + 1, 1, dtype=torch.float64)
    merging = DataObjective(inst, 0)
    assert merging.equal_samples is not None
    found, expected = merging.fit(chosen, zero), refit(inst, 0, chosen, zero)
    assert found.value == pytest.approx(expected.value, rel=1e-12)
    torch.testing.assert_close(found.Z, expected.Z, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("loss", [Logistic(), Poisson()], ids=lambda loss: loss.name)
def test_fits_in_batches_end_at_the_minimum(loss, weights, monkeypatch):
    """Newton's steps on merged samples: far from the point of the model, within the steps of a batch."""
    monkeypatch.setattr(objective, "FEWEST_SAMPLES", 1)
    monkeypatch.setattr(batch_refit, "HOPE", 1e12)
    inst = draw(loss, weights=weights)
    merging, Z = DataObjective(inst, 0), torch.zeros(FEATURES + 1, 1, dtype=torch.float64)
    masks = torch.zeros(3, FEATURES, dtype=torch.bool)
    for mask, chosen in zip(masks, ([0, 1, 5], [2, 3, 4], [0, 6, 7]), strict=True):
        mask[chosen] = True
    local = merging.local_form(SupportFit(masks[1], merging.fit(masks[1], Z)))
    batch = batch_refit.fit_batch(merging, local, [local.pack(mask) for mask in masks], Z, float("inf"), 1e-13)
    for k, mask in enumerate(masks):
        assert float(batch.values[k]) == pytest.approx(refit(inst, 0, mask, Z).value, rel=1e-9)


@pytest.mark.parametrize("loss", [Hinge(), Huber()], ids=lambda loss: loss.name)
def test_losses_with_multipliers_are_fitted_to_all_samples(loss, monkeypatch):
    monkeypatch.setattr(objective, "FEWEST_SAMPLES", 1)
    assert DataObjective(draw(loss, weights=False), 0).equal_samples is None
