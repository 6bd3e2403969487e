"""Whole searches against all supports: starts, improvement by models, exploration."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest
import torch
from enumeration import _fit, best_objective, quick_best_objective
from posed import CPU, posed, support, zero
from problems import LOSSES, make_source
from scipy import sparse

from psfit import Dense, GridSpec, Problem, Source
from psfit.data import Sparse
from psfit.losses import Hinge, Logistic, Softmax, Squared
from psfit.problem.pose import pose
from psfit.search import model_form
from psfit.search import objective as objective_module
from psfit.search.explore import EFFORTS, Exploration, explore, try_all
from psfit.search.improve import improve
from psfit.search.objective import DataObjective, FormObjective, objective_of
from psfit.search.refit import refit
from psfit.search.starts import eliminate_backward, grow, refit_end, select_forward, shrink
from psfit.search.support_fit import SupportFit

NAMED = {"ids": lambda loss: loss.name}
SOME = pytest.mark.parametrize("loss", [Squared(), Logistic(), Softmax(), Hinge()], **NAMED)
# Without rounds of restarts, and without trying all supports.
BRIEF = Exploration(16, 0.25, False)


def hard(loss, seed, **grid):
    """Strongly correlated columns, with more supports than are all tried."""
    shape = {"features": 6, "kappa": 3} if loss.joint else {"features": 12, "kappa": 4}
    return posed(loss, samples=60, nonzeros=4, seed=seed, correlation=0.9, gamma=10.0, **shape, **grid)


def best_of_all(inst):
    base = Source(inst.source.matrix.base, inst.source.target + inst.coordinates.level, inst.source.weight)
    quick = inst.problem.loss.smooth and not inst.problem.loss.quadratic
    return (quick_best_objective if quick else best_objective)(inst.problem, base)


def run_search(inst, effort="medium", start=None):
    """The stages of a search from the first items, and what each kind of start led to."""
    objective, kappa = objective_of(inst, 0), inst.problem.kappa[0]
    first = support(inst, range(kappa)) if start is None else start
    contributions = []
    exploration = EFFORTS[effort] if isinstance(effort, str) else effort
    return list(explore(objective, [("first", first)], zero(inst), exploration, contributions)), contributions


@pytest.mark.parametrize("loss", LOSSES, **NAMED)
@pytest.mark.parametrize("seed", range(2))
def test_a_search_ends_at_the_best_of_all_supports(loss, seed):
    inst = hard(loss, seed)
    stages, contributions = run_search(inst)
    values = [found.value for found in stages]
    best = best_of_all(inst)
    assert values == sorted(values, reverse=True)
    assert values[-1] >= best - 1e-7 * abs(best)
    assert values[-1] == pytest.approx(best, rel=1e-6)
    assert int(stages[-1].chosen.sum()) == inst.problem.kappa[0]
    assert refit(inst, 0, stages[-1].chosen, zero(inst)).value == pytest.approx(values[-1], rel=1e-6)
    kinds = [one.kind for one in contributions]
    assert kinds[0] == "first"
    ends = [one.end for one in contributions if one.kind != "restarts"]
    # Searches by models are restarted only if their starts do not agree.
    agreed = not loss.quadratic and max(ends) - min(ends) <= 1e-10 * abs(min(ends))
    assert ("restarts" in kinds) != agreed
    assert set(kinds) <= {"first", "forward selection", "backward elimination", "restarts"}
    assert len(set(kinds)) == len(kinds)
    assert all(one.end <= one.start + 1e-7 * abs(one.start) for one in contributions)
    assert min(one.end for one in contributions) == pytest.approx(values[-1], rel=1e-6)


@pytest.mark.parametrize("loss", LOSSES, **NAMED)
def test_without_exploration_only_the_first_start_is_fitted(loss):
    inst = posed(loss, 3)
    (found,), (contribution,) = run_search(inst, "low")
    assert torch.equal(found.chosen, support(inst, range(3)))
    exact = refit(inst, 0, found.chosen, zero(inst)).value
    assert found.value == pytest.approx(exact, rel=1e-6)
    assert (contribution.kind, contribution.start, contribution.end) == ("first", found.value, found.value)


@SOME
@pytest.mark.parametrize("start", [[0, 1, 2], [5, 6, 7]])
def test_no_single_swap_improves_the_answer(loss, start):
    inst = posed(loss, 3, samples=60)
    objective = DataObjective(inst, 0)
    found = improve(objective, refit_end(objective, support(inst, start), zero(inst)))
    assert int(found.chosen.sum()) == 3
    for out in found.chosen.nonzero().flatten().tolist():
        for into in (~found.chosen).nonzero().flatten().tolist():
            trial = found.chosen.clone()
            trial[out], trial[into] = False, True
            assert refit(inst, 0, trial, zero(inst)).value >= found.value * (1 - 1e-6)


@SOME
def test_starts_are_supports_within_the_limit_and_near_the_best(loss):
    inst = hard(loss, 1)
    objective, kappa = objective_of(inst, 0), inst.problem.kappa[0]
    best = best_of_all(inst)
    for make in (select_forward, eliminate_backward):
        found = make(objective, kappa, zero(inst))
        assert int(found.chosen.sum()) == kappa
        assert found.value == pytest.approx(refit(inst, 0, found.chosen, zero(inst)).value, rel=1e-6)
        assert best * (1 - 1e-7) <= found.value <= 1.5 * best


def test_starts_of_the_squared_loss_against_loops():
    inst = posed(Squared(), 4, features=10, correlation=0.9)
    objective = objective_of(inst, 0)
    assert isinstance(objective, FormObjective)

    def value(chosen):
        return refit(inst, 0, chosen, zero(inst)).value

    chosen = support(inst, [])
    for _ in range(4):
        chosen = min((chosen | support(inst, [j]) for j in range(10) if not chosen[j]), key=value)
    assert torch.equal(select_forward(objective, 4, zero(inst)).chosen, chosen)
    chosen = support(inst, range(10))
    eight = select_forward(objective, 8, zero(inst)).chosen
    for limit, start in ((4, eight), (7, support(inst, range(10)))):
        chosen = start
        while int(chosen.sum()) > limit:
            chosen = min((chosen & ~support(inst, [j]) for j in range(10) if chosen[j]), key=value)
        assert torch.equal(shrink(objective, SupportFit(start, objective.fit(start, zero(inst))), limit).chosen, chosen)
    assert int(eliminate_backward(objective, 4, zero(inst)).chosen.sum()) == 4


@pytest.mark.parametrize("loss", [Logistic(), Softmax()], **NAMED)
def test_supports_grow_to_the_limit_although_a_model_has_few_items(loss, monkeypatch):
    monkeypatch.setattr(model_form, "CHEAP_PRODUCT", {"cpu": 0.0})
    monkeypatch.setattr(model_form, "LEAST_OTHERS", 2)
    inst = posed(loss, 12, features=40, samples=100)
    objective = DataObjective(inst, 0)
    nothing = refit_end(objective, support(inst, []), zero(inst))
    assert int(grow(objective, nothing, 12).chosen.sum()) == 12
    for make in (select_forward, eliminate_backward):
        assert int(make(objective, 12, zero(inst)).chosen.sum()) == 12
    # Searches in models of some items find nearly what those in models of all items find.
    found = run_search(inst, BRIEF)[0][-1].value
    monkeypatch.undo()
    assert found <= run_search(inst, BRIEF)[0][-1].value * 1.05


@dataclass(frozen=True)
class Ruled(Problem):
    """Some items are forced in or out, or groups have one item at most."""

    forced: tuple[int, ...] = ()
    banned: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()

    def domain(self, items, limit, device):
        domain = super().domain(items, limit, device)
        inside, outside = torch.zeros_like(domain.inside), torch.zeros_like(domain.outside)
        inside[:, list(self.forced)], outside[:, list(self.banned)] = True, True
        domain = domain.decide(inside, outside)
        if self.groups:
            most = torch.ones(max(self.groups) + 1, dtype=torch.long)
            domain = domain.with_groups(torch.tensor(self.groups), most)
        return domain


RULES = [
    {"forced": (1, 7), "banned": (0, 3)},
    {"forced": (1, 4, 7, 9)},
    {"groups": (0, 1, 2, 3, 4, 5) * 2},
    {"groups": (0, 1, 2) * 4},
    {"forced": (2,), "groups": (0, 1, 2, -1, 4, 5) * 2},
]


# All rules for the search in a form and for that by models; of the rest, those that mix kinds of rules.
@pytest.mark.parametrize(
    ("loss", "rules"),
    [
        pytest.param(loss, rules, id=f"{loss.name}-{rules}")
        for loss in (Squared(), Logistic(), Softmax(), Hinge())
        for rules in (RULES if loss.name in ("squared", "logistic") else (RULES[0], RULES[-1]))
    ],
)
def test_rules_are_kept_and_the_best_support_within_them_is_found(loss, rules):
    """Rules may leave room for fewer items than the limit, and forced items may fill it."""
    source = make_source(loss, samples=60, features=4 if loss.joint else 12, nonzeros=4, seed=0, correlation=0.9)
    inst = pose(Ruled(loss, (4,), 10.0, **rules), source, GridSpec().build(CPU))
    objective = objective_of(inst, 0)
    first = objective.domain.largest(torch.arange(12.0).unsqueeze(0))[0]
    stages, _ = run_search(inst, BRIEF, first)
    allowed = [s for s in combinations(range(12), int(first.sum())) if objective.domain.allows(support(inst, s))]
    best = min(objective.fit(support(inst, s), zero(inst)).value for s in allowed)
    assert objective.domain.allows(stages[-1].chosen)
    assert stages[-1].value == pytest.approx(best, rel=1e-6)
    for make in (select_forward, eliminate_backward):
        assert objective.domain.allows(make(objective, int(first.sum()), zero(inst)).chosen)


@pytest.mark.parametrize("loss", LOSSES, **NAMED)
def test_few_supports_are_all_tried(loss):
    inst = posed(loss, 2, features=5, samples=40)
    objective = objective_of(inst, 0)
    pairs = list(combinations(range(inst.items.size), 2))
    worst = max((support(inst, pair) for pair in pairs), key=lambda chosen: objective.fit(chosen, zero(inst)).value)
    found = try_all(objective, SupportFit(worst, objective.fit(worst, zero(inst))))
    base, target = inst.source.matrix.base.values.numpy(), inst.source.target.numpy()
    masks = [inst.items.mask_one(support(inst, pair)).numpy() for pair in pairs]
    assert found.value == pytest.approx(min(_fit(inst.problem, base, target, mask) for mask in masks), rel=1e-6)
    assert int(found.chosen.sum()) == 2
    stages, (contribution,) = run_search(inst, start=worst)
    assert stages[-1].value == pytest.approx(found.value, rel=1e-9)
    assert contribution.kind == "all supports"
    assert contribution.start == pytest.approx(max(_fit(inst.problem, base, target, mask) for mask in masks), rel=1e-6)
    assert contribution.end == stages[-1].value


@SOME
@pytest.mark.parametrize("kappa", [1, 8])
def test_the_ends_of_the_range_of_kappa(loss, kappa):
    inst = posed(loss, kappa * (3 if loss.joint and kappa == 8 else 1))
    found = run_search(inst)[0][-1]
    assert int(found.chosen.sum()) == inst.problem.kappa[0]


@pytest.mark.parametrize("kappa", [6, 8])
def test_duplicate_columns_with_hardly_any_ridge(kappa):
    source = make_source(Squared(), samples=60, features=6, nonzeros=2, seed=0)
    doubled = Source(Dense(source.matrix.values.repeat(1, 2)), source.target, source.weight)
    inst = pose(Problem(Squared(), (kappa,), 1e14), doubled, GridSpec().build(CPU))
    # The first six items are all different columns; the other start has three of them twice.
    for start in (None, support(inst, [0, 1, 2, 6, 7, 8, *range(3, kappa - 3)])):
        found = run_search(inst, BRIEF, start)[0][-1]
        answer = refit(inst, 0, found.chosen, found.fit.Z)
        expected = best_objective(Problem(Squared(), (6,), 1e14), source)
        assert answer.Z.isfinite().all()
        assert answer.value == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_empty_columns_of_a_sparse_matrix_do_not_end_the_search(fit_intercept):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 30)) * (rng.random(size=(60, 30)) < 0.3)
    X = np.hstack([X, np.zeros((60, 150))])
    y = X[:, :30] @ rng.normal(size=30) + 0.1 * rng.normal(size=60)
    source = Source(
        Sparse.of(sparse.csr_matrix(X), CPU, torch.float64),
        torch.from_numpy(y).unsqueeze(1),
        torch.ones(60, 1, dtype=torch.float64),
    )
    inst = pose(Problem(Squared(), (3,), 1.0, fit_intercept=fit_intercept), source, GridSpec().build(CPU))
    A, b = (X - X.mean(axis=0), y - y.mean()) if fit_intercept else (X, y)

    def value(chosen):
        part = A[:, list(chosen)]
        x = np.linalg.solve(2 * part.T @ part + np.eye(3), 2 * part.T @ b)
        return ((part @ x - b) ** 2).sum() + 0.5 * x @ x

    best = min(value(chosen) for chosen in combinations(range(30), 3))
    for objective in (DataObjective(inst, 0), FormObjective(inst, 0)):
        start = support(inst, [100, 120, 140])
        *_, found = explore(objective, [("empty", start)], zero(inst), BRIEF, [])
        assert found.value == pytest.approx(best, rel=1e-6)
        assert found.value == pytest.approx(value(found.chosen.nonzero().flatten().tolist()), rel=1e-9)


def test_a_search_by_the_form_and_one_by_passes_agree():
    inst = posed(Squared(), 6, samples=30, features=60)
    assert isinstance(objective_of(inst, 0), FormObjective)
    assert isinstance(objective_of(inst, 0, search=False), DataObjective)
    found = []
    for objective in (FormObjective(inst, 0), DataObjective(inst, 0)):
        *_, end = explore(objective, [("first", support(inst, range(6)))], zero(inst), EFFORTS["medium"], [])
        found.append(refit(inst, 0, end.chosen, end.fit.Z).value)
    assert found[1] == pytest.approx(found[0], rel=1e-3)


def test_after_costly_searches_no_further_starts_are_made(monkeypatch):
    inst = hard(Logistic(), 1)
    all_stages, _ = run_search(inst, BRIEF)
    monkeypatch.setitem(objective_module.MOST_WORK, "cpu", 0.0)
    stages, contributions = run_search(inst, BRIEF)
    assert [one.kind for one in contributions] == ["first"]
    assert contributions[0].start >= contributions[0].end == stages[-1].value >= all_stages[-1].value


def test_equal_starts_are_fitted_once(monkeypatch):
    inst = hard(Logistic(), 0)
    objective, fitted = objective_of(inst, 0), []
    fit = objective.fit
    monkeypatch.setattr(objective, "fit", lambda chosen, *others: fitted.append(chosen) or fit(chosen, *others))
    starts = [("first", support(inst, items)) for items in ([0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3])]
    next(explore(objective, starts, zero(inst), Exploration(16, 1.0, False), []))
    first = [tuple(chosen.nonzero().flatten().tolist()) for chosen in fitted[:3]]
    assert first[:2] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert (0, 1, 2, 3) not in first[2:]
