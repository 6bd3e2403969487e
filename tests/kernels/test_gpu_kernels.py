"""Kernels and integer products against float64 arithmetic; only collected where there is a GPU."""

import numpy as np
import pytest
import torch
from problems import make_source, paper_source

from psfit import BiCADMM, GridSpec, Problem, SparseLinearRegression, solve
from psfit.admm.bilinear import update_by_sorting
from psfit.admm.steps import ReplayedSteps, Steps
from psfit.certificate.loss_sums import find_kernels
from psfit.data import Affine, Dense, Source, half_gram, raw_form
from psfit.data.integer_gram import integer_moments
from psfit.data.mixed_precision import MixedPrecisionStrip
from psfit.kernels import kernel
from psfit.kernels.cuda_graph import PLAIN_CALLS, Replay
from psfit.losses import Logistic, Squared, SquaredHinge
from psfit.problem.pose import pose

pytestmark = pytest.mark.gpu

CUDA = torch.device("cuda")


def normal(*shape, seed=0, dtype=torch.float32):
    generator = torch.Generator(device=CUDA).manual_seed(seed)
    return torch.randn(*shape, generator=generator, device=CUDA, dtype=dtype)


SHAPES = [(1, 1, 1, 1), (1, 7, 0, 2), (3, 50, 33, 5), (1, 1000, 129, 16), (4, 257, 513, 3), (2, 128, 128, 2)]


@pytest.mark.parametrize(("batch", "m", "n", "c"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_forward(batch, m, n, c, dtype):
    A, X, shift = normal(batch, m, n), normal(batch, n, c, seed=1).to(dtype), normal(n, seed=2).to(dtype)
    D, wide = A.double() - shift.double(), X.double()
    rtol = 1e-5 if dtype == torch.float32 else 1e-12
    product, sizes = kernel("forward", CUDA)(A, X, shift, True)
    torch.testing.assert_close(product.double(), D @ wide, rtol=rtol, atol=rtol * n)
    torch.testing.assert_close(sizes.double(), D.abs() @ wide.abs(), rtol=rtol, atol=rtol * n)
    (plain,) = kernel("forward", CUDA)(A, X)
    torch.testing.assert_close(plain.double(), A.double() @ wide, rtol=rtol, atol=rtol * n)


@pytest.mark.parametrize(("batch", "m", "n", "c"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_backward(batch, m, n, c, dtype):
    A, R, shift = normal(m * batch, n), normal(m * batch, c, seed=1).to(dtype), normal(n, seed=2).to(dtype)
    rtol = 1e-5 if dtype == torch.float32 else 1e-12
    expected = (A.double() - shift.double()).T @ R.double()
    found = kernel("backward", CUDA)(A, R, shift)
    torch.testing.assert_close(found.double(), expected, rtol=rtol, atol=rtol * m * batch)
    every_other = A[:, ::2]
    found = kernel("backward", CUDA)(every_other, R)
    torch.testing.assert_close(found.double(), every_other.double().T @ R.double(), rtol=rtol, atol=rtol * m * batch)


@pytest.mark.parametrize(("rows", "columns"), [(1000, 512), (3001, 613), (140_000, 520)])
def test_integer_moments_are_those_of_slightly_rounded_columns(rows, columns):
    A = normal(rows, columns) * torch.rand(columns, device=CUDA) + 3
    about = A[:50].double().mean(dim=0)
    weight = torch.rand(rows, 1, device=CUDA, dtype=torch.float64)
    right = normal(rows, 2, seed=3, dtype=torch.float64)
    gram, sums, rests = integer_moments(A, about, weight, right)
    D = A.double() - about
    torch.testing.assert_close(sums, D.T @ right, rtol=1e-12, atol=1e-10 * rows)
    expected = D.T @ (weight * D)
    length = float(rests.sum()) ** 0.5
    largest = float(torch.linalg.matrix_norm(expected, 2)) ** 0.5
    error = float(torch.linalg.matrix_norm(gram - expected, 2))
    assert 0 < error <= (2 * largest + length) * length
    # Two digits of 254 each: about 1 / (2 * 127 * 254) of the largest entry.
    assert length <= 1e-4 * float(expected.trace()) ** 0.5


@pytest.mark.parametrize(("rows", "columns", "outputs"), [(1000, 37, 3), (5000, 2501, 1), (4001, 700, 4)])
@pytest.mark.parametrize("constant", [0.0, 0.7])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_half_precision_keeps_three_digits_of_a_gram_matrix(rows, columns, outputs, constant, size):
    A = 100 * normal(rows, columns) + 300
    matrix = Affine(Dense(A), A.double().mean(dim=0), A.double().std(dim=0), constant, integers=True)
    roots = size * torch.rand(rows, outputs, device=CUDA, dtype=torch.float64)
    assert half_gram.available(matrix)
    found = half_gram.half_gram(matrix, roots).double()
    plain = (A.double() - matrix.shift) / matrix.scale
    plain = torch.cat([plain, torch.full_like(plain[:, :1], constant)], dim=1) if constant else plain
    for k in range(outputs):
        for q in range(outputs):
            expected = (roots[:, k : k + 1] * plain).T @ (roots[:, q : q + 1] * plain)
            torch.testing.assert_close(found[k, :, q], expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


def test_second_derivatives_of_a_joint_loss_in_half_precision():
    A, weight = 100 * normal(2000, 30) + 300, torch.rand(2000, 1, device=CUDA, dtype=torch.float64)
    matrix = Affine(Dense(A), A.double().mean(dim=0), A.double().std(dim=0), 1.0, integers=True)
    share = torch.softmax(3 * normal(2000, 4, seed=1, dtype=torch.float64), dim=1)
    plain = torch.cat([(A.double() - matrix.shift) / matrix.scale, torch.ones(2000, 1, device=CUDA)], dim=1)
    curvature = weight.unsqueeze(2) * (torch.diag_embed(share) - share.unsqueeze(2) * share.unsqueeze(1))
    expected = torch.einsum("ia,ikq,ib->akbq", plain, curvature, plain)
    found = half_gram.half_joint_hessian(matrix, weight, share)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))
    flat = found.reshape(31 * 4, -1)
    torch.testing.assert_close(flat, flat.T, rtol=0, atol=1e-4 * float(expected.abs().max()))


@pytest.mark.parametrize("constant", [0.0, 1.0])
def test_some_second_derivatives_are_those_of_all_coefficients(constant):
    A = 100 * normal(3000, 41) + 300
    matrix = Affine(Dense(A), A.double().mean(dim=0), A.double().std(dim=0), constant, integers=True)
    coupling = torch.softmax(normal(3000, 5, seed=1, dtype=torch.float64), dim=1)
    size = 5 * matrix.shape[1]
    picked = torch.randperm(size, device=CUDA)[:67].sort().values
    whole = half_gram.half_hessian(matrix, coupling, coupling).view(size, size)
    found = half_gram.half_part_of_hessian(matrix, coupling, coupling, picked)
    expected = whole[picked.unsqueeze(1), picked]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def test_half_precision_is_for_float32_data_on_a_gpu_that_may_be_rounded():
    A = normal(50, 4)
    shift, scale = torch.zeros(4, device=CUDA), torch.ones(4, device=CUDA)
    assert not half_gram.available(Affine(Dense(A), shift, scale, 0.0))
    assert not half_gram.available(Affine(Dense(A.double()), shift, scale, 0.0, integers=True))
    assert not half_gram.available(Affine(Dense(A.cpu()), shift.cpu(), scale.cpu(), 0.0, integers=True))


def test_gram_matrices_with_weights_of_any_sign():
    A = normal(3000, 600)
    shift, scale = A.double().mean(dim=0), A.double().std(dim=0)
    matrix = Affine(Dense(A), shift, scale, 1.0, integers=True)
    weights = normal(3000, 1, seed=1)
    plain = torch.cat([(A.double() - shift) / scale, torch.ones(3000, 1, device=CUDA)], dim=1)
    expected = plain.T @ (weights.double() * plain)
    torch.testing.assert_close(matrix.gram(weights).double(), expected, rtol=1e-3, atol=0.1)


@pytest.mark.parametrize("times", [1, 2, 7])
def test_a_function_is_replayed_so_many_times(times):
    def step(tensors):
        return {"x": tensors["x"] + tensors["y"], "y": tensors["y"], "double": 2 * tensors["x"]}

    replay, x = Replay(step, times=times), normal(5)
    y, found = torch.ones(5, device=CUDA), {"x": x.clone()}
    for _ in range(PLAIN_CALLS + 3):
        found = replay({"x": found["x"], "y": y})
    count = times * (PLAIN_CALLS + 3)
    torch.testing.assert_close(found["x"], x + count)
    torch.testing.assert_close(found["double"], 2 * (x + count - 1))


@pytest.mark.parametrize("limit", [1e-6, 1.0])
def test_integer_products_that_round_too_much_are_made_again_in_float64(limit, monkeypatch):
    monkeypatch.setattr(raw_form, "MOST_ROUNDED", limit)
    A = normal(4000, 600)
    source = Source(Dense(A), normal(4000, 1), torch.ones(4000, 1, device=CUDA))
    reference = torch.zeros(600, dtype=torch.float64, device=CUDA)
    found = raw_form.RawForm.of(source.split(2), reference, exact=False).form
    error = float((found.G.sum(dim=0)[:-1, :-1] / 2 - A.double().T @ A.double()).abs().max())
    if limit < 1e-3:
        assert float(found.curvature.rounded.sum()) == 0
        assert error <= 1e-9
    else:
        assert float(found.curvature.rounded.sum()) > 0
        assert 1e-6 <= error <= 1.0


@pytest.mark.parametrize("count", [3, 16, 17, 50])
@pytest.mark.parametrize("constant", [0.0, 0.7])
def test_products_of_widened_strips(constant, count):
    values = 100 + normal(900, 40, seed=3)
    shift, scale = values.double().mean(dim=0), values.double().std(dim=0)
    strip = MixedPrecisionStrip(values, shift, scale, constant)
    plain = (values.double() - shift) / scale
    plain = torch.cat([plain, torch.full_like(plain[:, :1], constant)], dim=1) if constant else plain
    X, R = normal(plain.shape[1], count, seed=4).double(), normal(900, count, seed=5).double()
    eta, sizes = strip.mv_with_sizes(X)
    for found, expected in (
        (strip.mv(X), plain @ X),
        (eta, plain @ X),
        (sizes, plain.abs() @ X.abs()),
        (strip.rmv(R), plain.T @ R),
    ):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_extraction_from_integer_products_is_safe(fit_intercept):
    source, truth = paper_source(6_000, 700, 0.9, nodes=2, dtype=torch.float32, device="cuda")
    problem = Problem(Squared(), (truth.kappa,), 10.0, fit_intercept=fit_intercept)
    inst = pose(problem, source, GridSpec(nodes=2, device="cuda").build())
    assert bool(inst.source.forms.known.curvature.rounded.any())
    extracted = float(inst.proof_form.curvature.extracted[0])
    A = inst.source.matrix.chunk(0, 6_000, torch.float64)[:, :700]
    A = A - A.mean(dim=0) if fit_intercept else A
    least = float(torch.linalg.eigvalsh(2 * A.T @ A)[0])
    assert 0.9 * least <= extracted <= least


@pytest.mark.parametrize(("problems", "size"), [(1, 3), (3, 1000), (2, 4097), (1, 16384)])
@pytest.mark.parametrize("seed", range(4))
def test_the_fused_bilinear_step(problems, size, seed):
    center = normal(problems, size, seed=seed) * (normal(problems, size, seed=seed + 50) > -0.5)
    s = torch.where(normal(problems, size, seed=seed + 90) > 0.5, center.sign(), 0.0) * (seed > 0)
    v = -torch.rand(problems, 1, device=CUDA) * 3 * seed
    kappa = torch.full((problems, 1), max(1, size // (seed + 2)), device=CUDA)
    ratio = torch.full((problems, 1), 10.0 ** (seed - 3), device=CUDA)
    found = kernel("sparsify", CUDA)(center, s, v, kappa, ratio)
    for one, other in zip(found, update_by_sorting(center, s, v, kappa, ratio), strict=True):
        # Sums of that many numbers near one, in float32.
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5 + 1e-7 * size)


@pytest.mark.parametrize("samples", [4_000, 300], ids=["tall", "wide"])
def test_replayed_steps_are_steps(samples):
    source = make_source(Squared(), samples=samples, features=400, nonzeros=5, seed=2).to("cuda")
    inst = pose(Problem(Squared(), (5,), 10.0), source, GridSpec(nodes=3, device="cuda").build())
    solver = BiCADMM()
    with torch.inference_mode():
        setup, state = solver.init(inst)
        plain, replay = Steps(solver, setup), ReplayedSteps(solver, setup)
        control, moved, seen = state, state, []
        for _ in range(PLAIN_CALLS + 40):
            control, moved = plain(control), replay(moved)
            seen.append(moved.measured)
        kept = replay.keep(moved)
        before = {name: value.clone() for name, value in kept.tensors().items()}
        replay(moved)
    assert moved.iteration == control.iteration == int(moved.age) - 1
    for name, value in control.tensors().items():
        torch.testing.assert_close(before[name], value, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(kept.tensors()[name], value, rtol=1e-9, atol=1e-12)
    assert len({float(row[0, 0]) for row in seen}) > 30


@pytest.mark.parametrize("effort", ["low", "medium"])
def test_fast_and_highest_precision_agree(effort):
    source, truth = paper_source(20_000, 1_000, 0.9, nodes=4, dtype=torch.float32, device="cuda")
    problem = Problem(Squared(), (truth.kappa,), 10.0, fit_intercept=False)
    grid = GridSpec(nodes=4, device="cuda")
    fast, highest = (
        solve(problem, source, BiCADMM(effort=effort, precision=precision), grid) for precision in ("auto", "highest")
    )
    assert fast.objective == pytest.approx(highest.objective, rel=1e-6)
    assert fast.lower_bound <= highest.objective
    assert fast.gap <= 1e-3


def test_transfers_are_counted():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(5_000, 60)).astype(np.float32), rng.normal(size=5_000).astype(np.float32)
    last = SparseLinearRegression(5, grid=GridSpec(device="cuda")).fit(X, y).history_[-1]
    # The features, and targets and weights in float64.
    assert last.sent_bytes == X.nbytes + 4 * y.nbytes
    assert last.sent_seconds > 0
    assert 0 < last.fetched_bytes < 10_000
    resident = SparseLinearRegression(5, grid=GridSpec(device="cuda")).fit(torch.from_numpy(X).cuda(), y).history_[-1]
    assert resident.sent_bytes == 4 * y.nbytes


@pytest.mark.parametrize("loss", [Logistic(), SquaredHinge()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("turned", [False, True], ids=["in rows", "in columns"])
@pytest.mark.parametrize(("rows", "m"), [(1, 1), (3, 1000), (40, 1025), (7, 5000), (2000, 1500), (1, 2_000_000)])
def test_loss_rows(loss, weighted, turned, rows, m):
    eta = 4 * normal(rows, m, dtype=torch.float64)
    # Some predictors are so large that exponentials vanish, or overflow.
    eta[:, ::7] *= 200
    target = normal(1, m, seed=1, dtype=torch.float64).sign()
    weight = torch.randint(1, 4, (1, m), device=CUDA).double() if weighted else None
    factor = torch.ones_like(target) if weight is None else weight
    kernels = find_kernels(loss, target, weight)
    lay = (lambda part: part.T.contiguous().T) if turned else (lambda part: part)
    value, slopes = kernels.evaluate(lay(eta))
    torch.testing.assert_close(value, (factor * loss.value(eta, target)).sum(dim=1), rtol=1e-13, atol=0)
    torch.testing.assert_close(slopes, factor * loss.gradient(eta, target), rtol=1e-13, atol=1e-300)
    # Slopes that rounding has left outside the domain are moved inside.
    raw = 1.001 * loss.gradient(eta, target)
    inside = loss.nearest_slope(raw, target)
    halves = torch.stack([(factor * (sign * inside).clamp(min=0)).sum(dim=1) for sign in (1, -1)], dim=1)
    torch.testing.assert_close(kernels.add_halves(lay(raw)), halves, rtol=1e-12, atol=0)
    factors = torch.rand(rows, 2, dtype=torch.float64, device=CUDA)
    expected = torch.where(inside > 0, factors[:, :1], factors[:, 1:]) * inside
    shrunk, sums = kernels.shrink(lay(raw), factors)
    torch.testing.assert_close(shrunk, expected, rtol=1e-14, atol=0)
    conjugate = loss.conjugate(expected, target)
    sizes = conjugate.abs() + loss.conjugate_sizes(expected, target)
    parts = torch.stack([(factor * part).sum(dim=1) for part in (conjugate, sizes, expected.square())], dim=1)
    torch.testing.assert_close(sums, parts, rtol=1e-12, atol=1e-12)
