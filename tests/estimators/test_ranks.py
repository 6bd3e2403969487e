"""A rank of an engine without the engine: its partitions are put together, and what it gives back is read."""

import pickle

import numpy as np
import pytest
import scipy.sparse
import torch
import torch.distributed as dist
from engine_jobs import CONSTRAINTS, COUNTS, CUTS, NAMED, OFFSET, RULES, TABLE, X, Y

from psfit import GridSpec, PeerLostError, SparseLinearRegression, SparsePoissonRegression, TableSource
from psfit.estimators.ranks import Outcome, Partition, fit_rank, join_partitions, keep_failure, read_outcomes

ALONE = GridSpec(backend="serial", device="cpu")
WEIGHT = np.arange(len(Y)) % 3.0


def parts(*values, cuts=CUTS):
    return [Partition(*(None if one is None else one[a:b] for one in values)) for a, b in cuts]


def model_of(estimator, partitions, spec=ALONE, **settings):
    return read_outcomes([fit_rank(estimator, spec, lambda: partitions, **settings)], ["here"])


def test_partitions_with_weights_and_offsets_are_one_set_of_samples():
    known = SparsePoissonRegression(3).fit(X, COUNTS, WEIGHT, offset=OFFSET)
    model = model_of(SparsePoissonRegression(3), parts(X, COUNTS, WEIGHT, OFFSET))
    assert model.objective_ == pytest.approx(known.objective_, rel=1e-12)
    with pytest.raises(ValueError, match="offset has 7 entries in a partition where X has 50 rows"):
        join_partitions([Partition(X[:50], COUNTS[:50], offset=OFFSET[:7])])


def test_tables_are_read_by_rules_and_arrays_get_names():
    rules = {**RULES, "target": "count", "offset": "exposed"}
    known = SparsePoissonRegression(2, **CONSTRAINTS).fit(TableSource(TABLE, **rules))
    model = model_of(SparsePoissonRegression(2, **CONSTRAINTS), parts(TABLE, None), rules=rules)
    assert model.objective_ == pytest.approx(known.objective_, rel=1e-12)
    assert model.feature_names_in_.tolist() == known.feature_names_in_.tolist()
    named = model_of(SparseLinearRegression(2, include="c4"), parts(X, Y), names=NAMED)
    assert "c4" in named.feature_names_in_[named.support_]
    # A sparse matrix that stays sparse has no names, so that constraints by name are refused and not ignored.
    sparse = scipy.sparse.csr_matrix(np.where(X > 2, X, 0.0))
    with pytest.raises(ValueError, match="include='c4': the features have no names"):
        model_of(SparseLinearRegression(2, include="c4"), parts(sparse, Y), names=NAMED)


def test_the_error_of_the_rank_that_failed_is_raised():
    def fail():
        raise ValueError("a broken partition")

    lost = Outcome(0, failure=PeerLostError("lost contact with rank 1"))
    broken = pickle.loads(pickle.dumps(keep_failure(1, fail)))
    with pytest.raises(ValueError, match="a broken partition") as caught:
        read_outcomes([lost, broken], ["first", "second"])
    assert caught.value.__notes__ == ["on rank 1 of 2: second"]


@pytest.mark.gpu
def test_a_rank_fits_on_the_gpu_that_an_engine_has_given_it():
    """As on a GPU worker of Ray or Spark: NCCL connects the ranks before, and the device has a number."""
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=torch.device("cuda:0"))
    try:
        spec = GridSpec(backend="torch", device="cuda:0")
        model = model_of(SparsePoissonRegression(3), parts(X, COUNTS, WEIGHT, OFFSET), spec)
    finally:
        dist.destroy_process_group()
    assert model.learned_.surroundings["device"] == "cuda:0"
    known = SparsePoissonRegression(3).fit(X, COUNTS, WEIGHT, offset=OFFSET)
    assert model.objective_ == pytest.approx(known.objective_, rel=1e-6)
