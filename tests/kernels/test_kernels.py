"""Kernels for CPUs compute what torch's operations do; if a kernel cannot run, these are used instead."""

import numpy as np
import pytest
import torch

import psfit.kernels as kernels
from psfit.admm.bilinear import update_by_sorting
from psfit.admm.residuals import summarise_by_torch
from psfit.data.integer_gram import available
from psfit.kernels.linalg import few_columns, few_sums

CPU = torch.device("cpu")


def test_some_exist_only_for_a_gpu():
    assert kernels.kernel("forward", CPU) is None
    assert kernels.kernel("sparsify", torch.device("meta")) is None
    assert not available(4_000, torch.float32, torch.device("cpu"))


def test_none_without_a_compiler(monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    kernels._load.cache_clear()
    assert kernels._load("forward", "cuda") is None
    assert kernels._load("sparsify", "cpu") is not None
    kernels._load.cache_clear()


@pytest.mark.parametrize("columns", [1, 2, 3, 4, 20])
@pytest.mark.parametrize("whole_columns", [False, True])
def test_products_of_a_cpu(columns, whole_columns):
    A, X, R = torch.randn(2, 7, 5), torch.randn(2, 5, columns), torch.randn(7, columns)
    laid = A.mT.contiguous().mT if whole_columns else A
    expected = np.einsum("bij,bjc->bic", A.numpy(), X.numpy())
    np.testing.assert_allclose(few_columns(laid, X).numpy(), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(few_sums(laid[0], R).numpy(), A[0].numpy().T @ R.numpy(), rtol=1e-5, atol=1e-5)


def draw(problems: int, size: int, seed: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """A mean, signs, multipliers, limits and ratios of some problems; some entries are zero or tied."""
    rng = np.random.default_rng(seed)
    center = np.round(rng.normal(size=(problems, size)), 1 + seed % 3) * (rng.random((problems, size)) > 0.2)
    s = rng.uniform(-1, 1, size=(problems, size)) if seed % 2 else np.sign(center) * (rng.random(center.shape) > 0.7)
    v = 3 * rng.normal(size=(problems, 1))
    kappa = torch.tensor(rng.integers(1, size + 2, size=(problems, 1)))
    ratio = 10 ** rng.uniform(-3, 3, size=(problems, 1))
    return *(torch.tensor(array, dtype=dtype) for array in (center, s, v)), kappa, torch.tensor(ratio, dtype=dtype)


@pytest.mark.parametrize(("dtype", "share"), [(torch.float64, 1e-12), (torch.float32, 1e-5)], ids=["f64", "f32"])
@pytest.mark.parametrize(("problems", "size"), [(1, 1), (3, 8), (2, 33), (4, 500)])
@pytest.mark.parametrize("seed", range(6))
def test_the_compiled_bilinear_step(problems, size, seed, dtype, share):
    arguments = draw(problems, size, seed, dtype)
    kept = [array.clone() for array in arguments]
    found, expected = kernels.kernel("sparsify", CPU)(*arguments), update_by_sorting(*arguments)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        torch.testing.assert_close(one, other, rtol=share, atol=share * (1 + size))
    for one, other in zip(arguments, kept, strict=True):
        assert torch.equal(one, other)


def test_a_mean_in_any_layout():
    center, *others = draw(3, 20, 1, torch.float64)
    by_columns = center.T.contiguous().T
    for one, other in zip(*(kernels.kernel("sparsify", CPU)(c, *others) for c in (center, by_columns)), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("place", ["center", "s", "v", "ratio"])
@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_the_compiled_bilinear_step_shows_what_is_not_finite(place, number):
    center, s, v, kappa, ratio = draw(2, 9, 3, torch.float64)
    {"center": center, "s": s, "v": v, "ratio": ratio}[place][1, 0] = number
    z, _, t, _, residual = kernels.kernel("sparsify", CPU)(center, s, v, kappa, ratio)
    plain = update_by_sorting(center, s, v, kappa, ratio)
    assert bool(z[0].isfinite().all())
    seen = torch.cat([z[1], t[1], residual[1]]).isfinite().all()
    assert bool(seen) <= bool(torch.cat([plain[0][1], plain[2][1], plain[4][1]]).isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])
@pytest.mark.parametrize("separate", [True, False])
@pytest.mark.parametrize("tol", [0.5, 1e30])
def test_the_compiled_measurements(dtype, separate, tol):
    rng = np.random.default_rng(0)
    nodes, n, outputs, problems = 3, 7, 4, 4 if separate else 1

    def normal(*shape):
        return torch.tensor(rng.normal(size=shape), dtype=dtype)

    parts, z, before = tuple(normal(nodes, n, outputs) for _ in range(3)), normal(n, outputs), normal(n, outputs)
    # Every other problem keeps its support.
    s = normal(problems, 9) * (normal(problems, 9) > 0)
    moved = torch.where(torch.arange(problems).unsqueeze(1) % 2 == 0, 2 * s, s.roll(1, dims=1))
    columns = normal(problems, 1).abs().round() + 3, normal(problems, 1).abs(), normal(problems, 1).abs()
    arguments = parts, z, before, (s, moved, s), columns, tol, separate
    found, expected = kernels.kernel("summarise", CPU)(*arguments), summarise_by_torch(*arguments)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6 if dtype == torch.float32 else 1e-13, atol=0)
    axis = (1,) if separate else (1, 2)
    squares = [(part.double().numpy() ** 2).sum(axis=axis).reshape(nodes, problems) for part in parts]
    np.testing.assert_allclose(found[0], squares, rtol=1e-6)
    same = (torch.arange(problems) % 2 == 0).numpy() & (columns[1] <= tol * columns[2]).numpy()[:, 0]
    np.testing.assert_array_equal(found[1][3], np.where(same, columns[0][:, 0].numpy() + 1, 0))


@pytest.mark.parametrize("name", ["sparsify", "summarise"])
def test_kernels_can_be_compiled_ahead_of_time(name):
    module = __import__(f"psfit.kernels.cpu.{name}", fromlist=[name])
    module.compile_kernels()
    assert len(getattr(module, f"_{name}").signatures) == 1
