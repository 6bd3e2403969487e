"""An instance in its coordinates against the objective written out in the user's units."""

import numpy as np
import pytest
import torch

from psfit import Dense, GridSpec, Problem, Source
from psfit.losses import Squared
from psfit.problem.pose import pose

ROWS, COLUMNS, TARGETS = 40, 5, 2
OPTIONS = [
    {"fit_intercept": intercept, "standardize": standardize} for intercept in (True, False) for standardize in (0, 1)
]


def draw():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, COLUMNS)) * [1, 10, 0.1, 3, 1] + [0, 5, 1, -7, 2]
    X[:, 4] = 2.0
    y, w = rng.normal(size=(ROWS, TARGETS)) + 4, rng.uniform(0.5, 2, size=(ROWS, 1))
    return X, y, w, rng


def posed(nodes=2, gamma=3.0, kappa=(2, 2), **options):
    X, y, w, _ = draw()
    options = {name: bool(value) for name, value in options.items()}
    source = Source(Dense(torch.tensor(X)), torch.tensor(y), torch.tensor(w))
    return pose(Problem(Squared(), kappa, gamma, **options), source, GridSpec(nodes=nodes, device="cpu").build())


def objectives(coef, intercept, gamma, standardize, fit_intercept):
    """By hand, for coefficients ``(p, c)`` in the units of X."""
    X, y, w, _ = draw()
    about = (w * X).sum(0) / w.sum() if fit_intercept else 0.0
    spread = np.sqrt((w * (X - about) ** 2).sum(0) / w.sum()) if standardize else np.ones(COLUMNS)
    penalty = ((coef * spread[:, None]) ** 2).sum(0) / (2 * gamma)
    return (w * (X @ coef + intercept - y) ** 2).sum(0) + penalty


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_objectives_keep_their_value_in_other_coordinates(options):
    inst, rng = posed(**options), draw()[3]
    coef = rng.normal(size=(COLUMNS, TARGETS))
    coef[4] = 0
    intercept = rng.normal(size=TARGETS) if options["fit_intercept"] else np.zeros(TARGETS)
    Z = inst.coordinates.from_user(torch.tensor(coef), torch.tensor(intercept))
    back = inst.coordinates.to_user(Z)
    np.testing.assert_allclose(back[0], coef, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(back[1], intercept, rtol=1e-11, atol=1e-11)
    expected = objectives(coef, intercept, 3.0, **options)
    np.testing.assert_allclose(inst.objective(Z), expected, rtol=1e-11)
    by_form = (
        0.5 * (Z * (inst.form.with_hessian().hessian @ Z)).sum(dim=0)
        - (inst.form.Q * Z).sum(dim=0)
        + inst.form.constant
    )
    np.testing.assert_allclose(by_form, expected, rtol=1e-11)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_columns_have_one_norm_and_no_mean_beside_an_intercept(options):
    inst, w = posed(**options), draw()[2]
    A = inst.source.matrix.chunk(0, ROWS, torch.float64).numpy()[:, :COLUMNS]
    constant = [4] if options["fit_intercept"] else []
    norms = np.sqrt((w * A**2).sum(0))
    np.testing.assert_allclose(np.delete(norms, constant), inst.coordinates.column_norm, rtol=1e-12)
    np.testing.assert_allclose(norms[constant], 0)
    if options["fit_intercept"]:
        np.testing.assert_allclose((w * A).sum(0), 0, atol=1e-9)
        np.testing.assert_allclose((w * inst.source.target.numpy()).sum(0), 0, atol=1e-11)
    assert bool((inst.coordinates.rounding_norm >= inst.coordinates.column_norm).all())


def test_other_limits_gammas_and_problems_share_the_data():
    inst, rng = posed(), draw()[3]
    Z = torch.tensor(rng.normal(size=(COLUMNS + 1, TARGETS)))
    values = inst.objective(Z)
    many = inst.with_limits((1, 2, 3, 4))
    assert many.kappa.flatten().tolist() == [1, 2, 3, 4]
    torch.testing.assert_close(many.objective(Z.repeat(1, 2)), values.repeat(2))
    assert inst.copy_problems(1) is inst
    assert inst.copy_problems(3).problem.kappa == (2, 2) * 3
    torch.testing.assert_close(inst.single(1).objective(Z[:, 1:]), values[1:])
    torch.testing.assert_close(inst.single(1).coordinates.to_user(Z[:, 1:])[1], inst.coordinates.to_user(Z)[1][1:])
    coef, intercept = (part.numpy() for part in inst.coordinates.to_user(Z))
    moved = inst.at_gamma(0.2).objective(inst.coordinates.from_user(torch.tensor(coef), torch.tensor(intercept)))
    np.testing.assert_allclose(moved, objectives(coef, intercept, 0.2, False, True), rtol=1e-11)
    for other in (many, inst.single(1), inst.at_gamma(0.2)):
        assert other.form.curvature is inst.form.curvature
        assert other.proof_form.curvature is inst.proof_form.curvature


def test_some_features_in_the_same_coordinates():
    inst, rng = posed(), draw()[3]
    features = torch.tensor([0, 3])
    Z = torch.tensor(rng.normal(size=(3, TARGETS)))
    part, whole = inst.restrict(features), inst.fill_rows(Z, features)
    assert whole[[1, 2, 4]].count_nonzero() == 0
    torch.testing.assert_close(inst.pick_rows(whole, features), Z)
    torch.testing.assert_close(part.objective(Z), inst.objective(whole))
    coef, intercept = inst.coordinates.to_user(whole)
    torch.testing.assert_close(part.coordinates.to_user(Z)[0], coef[features])
    torch.testing.assert_close(part.coordinates.to_user(Z)[1], intercept)


def test_the_proof_form_has_the_best_intercept():
    inst, rng = posed(), draw()[3]
    X, y, w, _ = draw()
    Z = torch.tensor(rng.normal(size=(COLUMNS + 1, TARGETS)))
    Z[4] = 0
    coef = inst.coordinates.to_user(Z)[0].numpy()
    best = (w * (y - X @ coef)).sum(0) / w.sum()
    form, x = inst.proof_form, Z[:COLUMNS]
    value = 0.5 * (x * (form.with_hessian().hessian @ x)).sum(dim=0) - (form.Q * x).sum(dim=0) + form.constant
    np.testing.assert_allclose(value, objectives(coef, best, 3.0, False, True), rtol=1e-11)


@pytest.mark.parametrize("kappa", [(0, 1), (1, 6), (2,)])
def test_limits_that_do_not_suit_the_data_are_refused(kappa):
    with pytest.raises(ValueError, match="must hold 2 number"):
        posed(kappa=kappa)
