"""Searches as batches on a device against compiled loops on the host, and both against all supports."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch

from psfit.kernels.swap_rows import build
from psfit.kernels.swap_steps import begin, find_inaccurate
from psfit.problem import Domain
from psfit.problem.items import RowItems
from psfit.search.batch_search import BatchSearch, make_search
from psfit.search.form_search import MOST_SWAPS, FormSearch, SearchForm

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
REL_TOL = 1e-9


def make_form(n, samples, correlation, *, outputs=1, seed=0, intercept=False, ridge=0.5):
    """The form of a least squares problem with AR(1) columns."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((samples, n))
    for j in range(1, n):
        A[:, j] = correlation * A[:, j - 1] + (1 - correlation**2) ** 0.5 * A[:, j]
    truth = np.zeros((n, outputs))
    truth[rng.permutation(n)[: n // 4]] = rng.standard_normal((n // 4, outputs))
    b = A @ truth + 2.0 * rng.standard_normal((samples, outputs))
    penalty = np.full(n, ridge)
    if intercept:
        A, penalty = np.hstack([A, np.ones((samples, 1))]), np.append(penalty, 0.0)
    return SearchForm(
        torch.from_numpy(2 * A.T @ A + np.diag(penalty)), torch.from_numpy(2 * A.T @ b), float((b * b).sum())
    )


def make_domain(n, limit, *, inside=(), outside=(), group=None, most=None):
    domain = Domain.of(RowItems(n, 1, 0), limit, torch.device("cpu"))
    masks = [torch.zeros(1, n, dtype=torch.bool) for _ in range(2)]
    for mask, items in zip(masks, (inside, outside), strict=True):
        mask[0, list(items)] = True
    domain = domain.decide(*masks)
    return domain if group is None else domain.with_groups(torch.as_tensor(group), torch.as_tensor(most))


def to(device, form, domain):
    moved = {name: value.to(device) if torch.is_tensor(value) else value for name, value in vars(form).items()}
    parts = {name: value.to(device) if torch.is_tensor(value) else value for name, value in vars(domain).items()}
    return SearchForm(**moved), Domain(**{name: parts[name] for name in Domain.__dataclass_fields__})


def both(device, form, domain):
    return FormSearch(form, domain, REL_TOL), BatchSearch(*to(device, form, domain), REL_TOL)


CASES = {
    "ar.5": (make_form(30, 200, 0.5), make_domain(30, 6)),
    "ar.9": (make_form(40, 200, 0.9, seed=1), make_domain(40, 8)),
    "wide": (make_form(60, 25, 0.5, seed=2), make_domain(60, 7)),
    "outputs": (make_form(25, 100, 0.7, outputs=3, seed=3), make_domain(25, 5)),
    "intercept": (make_form(30, 100, 0.7, intercept=True, seed=4), make_domain(30, 6)),
    "decided": (make_form(30, 100, 0.7, seed=5), make_domain(30, 6, inside=(3, 17), outside=(0, 5, 9))),
    "groups": (
        make_form(30, 100, 0.7, seed=6, intercept=True),
        make_domain(30, 8, inside=(2,), group=[k // 5 if k < 25 else -1 for k in range(30)], most=[1, 2, 1, 3, 1]),
    ),
}
cases = pytest.mark.parametrize("case", CASES)
devices = pytest.mark.parametrize("device", DEVICES)


def value_of(form, chosen):
    index = np.append(np.flatnonzero(chosen), np.arange(len(chosen), len(form.H)))
    H, Q = form.H.numpy()[np.ix_(index, index)], form.Q.numpy()[index]
    return form.constant - 0.5 * float((Q * np.linalg.solve(H, Q)).sum())


def assert_same(form, ends, expected):
    assert len(ends) == len(expected)
    for end, other in zip(ends, expected, strict=True):
        np.testing.assert_array_equal(end.chosen, other.chosen)
        assert end.value == pytest.approx(value_of(form, end.chosen), rel=1e-9)
        assert end.swaps == other.swaps


@devices
@cases
def test_selection_and_elimination_are_those_of_the_host(case, device):
    form, domain = CASES[case]
    host, batch = both(device, form, domain)
    inside, limit = domain.inside[0].numpy(), int(domain.limit)
    limits = list(range(int(inside.sum()) + 1, limit + 1))
    wide = FormSearch(form, domain, REL_TOL).grow(inside, [2 * limit])[0]
    falling = [size for size in reversed(limits) if size < wide.sum()]
    np.testing.assert_array_equal(batch.grow(inside, limits), host.grow(inside, limits))
    np.testing.assert_array_equal(batch.shrink(wide, falling), host.shrink(wide, falling))
    assert batch.work == host.work


@devices
@cases
def test_supports_that_change_together_are_those_of_the_host(case, device):
    form, domain = CASES[case]
    host, batch = both(device, form, domain)
    inside, limit = domain.inside[0].numpy(), int(domain.limit)
    sizes = list(range(int(inside.sum()) + 1, limit + 1))
    supports = FormSearch(form, domain, REL_TOL).grow(inside, sizes)
    limits = [*sizes[1:], sizes[0]]
    expected = [
        (host.grow if size >= chosen.sum() else host.shrink)(chosen, [size])[0]
        for chosen, size in zip(supports, limits, strict=True)
    ]
    np.testing.assert_array_equal(batch.change_each(supports, limits), expected)
    assert batch.work == host.work
    np.testing.assert_array_equal(host.change_each(supports, limits), expected)
    assert batch.change_each([], []) == []


@devices
@cases
def test_descents_are_those_of_the_host(case, device):
    form, domain = CASES[case]
    host, batch = both(device, form, domain)
    rng, limit = np.random.default_rng(0), int(domain.limit)
    inside = domain.inside[0].numpy()
    smaller, first = FormSearch(form, domain, REL_TOL).grow(inside, [limit - 2, limit])
    starts = [host.perturb(start, share, rng) for start in (first, smaller) for share in (0.25, 0.5, 1.0)]
    assert_same(form, batch.descend(starts), host.descend(starts))
    base = FormSearch(form, domain, REL_TOL).descend([first])[0].chosen
    around = np.stack([host.perturb(base, share, rng) for share in (0.1, 0.25, 0.5, 0.75, 1.0, 1.0)])
    most = [MOST_SWAPS * limit, 1, 2, MOST_SWAPS * limit, 3, MOST_SWAPS * limit]
    assert_same(form, batch.descend_around(base, around, most), host.descend_around(base, around, most))
    assert batch.work == host.work


@devices
@cases
def test_single_swaps_are_those_of_the_host(case, device):
    form, domain = CASES[case]
    host, batch = both(device, form, domain)
    start = host.perturb(host.grow(domain.inside[0].numpy(), [int(domain.limit)])[0], 0.5, np.random.default_rng(1))
    ends = batch.single_swaps(start, 5)
    assert ends
    assert_same(form, ends, host.single_swaps(start, 5))


@devices
@cases
def test_restarts_are_those_of_the_host(case, device):
    form, domain = CASES[case]
    host, batch = both(device, form, domain)
    start = host.grow(domain.inside[0].numpy(), [int(domain.limit)])
    found = [search.restart(search.descend(start)[0], 16, 1e9, lambda: False) for search in (batch, host)]
    # Several restarts may end at the best support, so the numbers of swaps may differ.
    assert_same(form, [replace(end, swaps=0) for end in found[:1]], [replace(end, swaps=0) for end in found[1:]])


@devices
@pytest.mark.parametrize(
    "domain",
    [make_domain(10, 4), make_domain(10, 4, inside=(2,), outside=(7,), group=[0] * 5 + [-1] * 5, most=[2])],
    ids=["free", "rules"],
)
def test_the_best_of_all_supports_is_found(domain, device):
    form = make_form(10, 40, 0.8, seed=7)
    everything = []
    for items in combinations(range(10), 4):
        chosen = np.isin(np.arange(10), items)
        if domain.allows(torch.from_numpy(chosen)):
            everything.append((value_of(form, chosen), chosen))
    least, best = min(everything, key=lambda one: one[0])
    for search in both(device, form, domain):
        start = search.grow(domain.inside[0].numpy(), [4])
        end = search.restart(search.descend(start)[0], 64, 1e9, lambda: False)
        np.testing.assert_array_equal(end.chosen, best)
        assert end.value == pytest.approx(least, rel=1e-9)


@devices
def test_dependent_columns_do_not_join_together(device):
    """Three copies of every column: a support with two of them is worth no more than one with one."""
    single = make_form(8, 40, 0.5, seed=8, ridge=0.0)
    form = SearchForm(single.H.repeat(3, 3), single.Q.repeat(3, 1), single.constant)
    domain = make_domain(24, 4)
    _, batch = both(device, form, domain)
    base = batch.descend(batch.grow(domain.inside[0].numpy(), [4]))[0]
    starts = np.zeros((3, 24), dtype=bool)
    starts[0, [0, 8, 16, 1]], starts[1, [2, 10, 3, 11]], starts[2, [4, 5, 6, 7]] = True, True, True
    least = min(value_of(single, np.isin(np.arange(8), items)) for items in combinations(range(8), 4))
    for end in [base, *batch.descend_around(base.chosen, starts, [80] * 3)]:
        assert end.chosen.sum() == 4
        assert len(set(np.flatnonzero(end.chosen) % 8)) == 4
        assert end.value >= least - 1e-9 * abs(least)
        assert end.value == pytest.approx(value_of(form, end.chosen), rel=1e-7)


@devices
def test_starts_with_dependent_columns_are_mended_as_on_the_host(device):
    """With no swaps allowed, the ends are the starts without what depends on the others."""
    single = make_form(12, 60, 0.5, seed=10, ridge=0.0)
    form = SearchForm(single.H.repeat(3, 3), single.Q.repeat(3, 1), single.constant)
    host, batch = both(device, form, make_domain(36, 8))
    base = np.isin(np.arange(36), range(8))
    rng = np.random.default_rng(3)
    starts = np.stack([host.perturb(base, share, rng) for share in (0.25, 0.5, 0.5, 0.75, 1.0, 1.0)])
    expected = host.descend_around(base, starts, [0] * 6)
    assert any((end.chosen != start).any() for end, start in zip(expected, starts, strict=True))
    for end, other in zip(batch.descend_around(base, starts, [0] * 6), expected, strict=True):
        np.testing.assert_array_equal(end.chosen, other.chosen)


@devices
def test_digits_remain_where_variables_nearly_depend_on_each_other(device):
    """More variables than samples and hardly any ridge: the objective is a tiny difference of large numbers."""
    form, domain = make_form(60, 10, 0.9, outputs=2, ridge=1e-9, seed=9), make_domain(60, 13)
    _, batch = both(device, form, domain)
    rng, first = np.random.default_rng(0), batch.grow(domain.inside[0].numpy(), [13])[0]
    starts = np.stack([batch.perturb(first, share, rng) for share in (0.25, 0.5, 0.75, 1.0)])
    for end in [*batch.descend(starts), *batch.descend_around(first, starts, [0] * 4)]:
        assert end.value == pytest.approx(value_of(form, end.chosen), rel=0, abs=1e-9 * form.constant)


@devices
def test_a_state_that_drifts_is_made_again(device, monkeypatch):
    form, domain = CASES["ar.9"]
    host, batch = both(device, form, domain)
    starts = [
        host.perturb(host.grow(np.zeros(40, dtype=bool), [8])[0], 1.0, np.random.default_rng(k)) for k in range(4)
    ]
    # No value agrees so well with the one that was carried along: every swap is followed by a new state.
    monkeypatch.setattr("psfit.kernels.swap_steps.MOST_DRIFT", -1.0)
    assert_same(form, batch.descend(starts), host.descend(starts))


@devices
def test_coefficients_that_are_no_minimisers_are_found(device):
    form, domain = CASES["outputs"]
    _, batch = both(device, form, domain)
    rows = build(batch.rows_form, torch.tensor([[0, 4, 9], [1, 2, -1]], device=device))
    at = begin(batch.rows_form, rows, torch.tensor([9, 9], device=device), form.constant, REL_TOL)
    assert find_inaccurate(batch.rows_form, rows, at).tolist() == [False, False]
    rows.x[1] *= 1 + 1e-5
    assert find_inaccurate(batch.rows_form, rows, at).tolist() == [False, True]


@devices
def test_a_search_whose_coefficients_are_spoiled_goes_on_from_the_form(device, monkeypatch):
    form, domain = CASES["ar.9"]
    host, batch = both(device, form, domain)
    base = host.grow(np.zeros(40, dtype=bool), [8])[0]
    starts = [host.perturb(base, 1.0, np.random.default_rng(k)) for k in range(4)]
    asked = []

    def spoil(form, rows, at):
        if not asked:
            rows.x[2] += 0.1
        asked.append(find_inaccurate(form, rows, at))
        return asked[-1]

    monkeypatch.setattr("psfit.search.batch_search.find_inaccurate", spoil)
    assert_same(form, batch.descend(starts), host.descend(starts))
    assert [one.tolist() for one in asked] == [[False, False, True, False], [False] * 4]


@pytest.mark.gpu
@pytest.mark.parametrize("limit", [20, 150, 300])
@pytest.mark.parametrize("outputs", [1, 2])
def test_states_do_not_drift_where_several_warps_share_a_row(limit, outputs, monkeypatch):
    form, domain = make_form(1200, 4000, 0.7, outputs=outputs, seed=11), make_domain(1200, limit)
    host, batch = both("cuda", form, domain)
    base = np.arange(1200) < limit
    starts = [host.perturb(base, 1.0, np.random.default_rng(k)) for k in range(8)]

    def refuse(*_):
        raise AssertionError("a state has drifted")

    monkeypatch.setattr("psfit.search.batch_search.mend", refuse)
    assert_same(form, batch.descend(starts), host.descend(starts))


@devices
def test_bunches_of_rows_end_where_one_batch_ends(device, monkeypatch):
    form, domain = CASES["ar.9"]
    host, batch = both(device, form, domain)
    starts = [
        host.perturb(host.grow(np.zeros(40, dtype=bool), [8])[0], 1.0, np.random.default_rng(k)) for k in range(5)
    ]
    monkeypatch.setattr("psfit.search.batch_search.MOST_BYTES", 2 * 8 * 40 * 8)
    assert_same(form, batch.descend(starts), host.descend(starts))


def test_a_host_searches_by_compiled_loops():
    form, domain = CASES["ar.5"]
    assert type(make_search(form, domain, REL_TOL)) is FormSearch


@pytest.mark.gpu
def test_a_gpu_searches_large_tables_itself(monkeypatch):
    form, domain = to("cuda", *CASES["ar.5"])
    assert type(make_search(form, domain, REL_TOL)) is FormSearch
    monkeypatch.setattr("psfit.search.batch_search.LEAST_TABLE", 30 * 6)
    assert type(make_search(form, domain, REL_TOL)) is BatchSearch
