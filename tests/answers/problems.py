"""Named problems, put to the public interface only; `answer` solves one and returns what is kept of its answer."""

import warnings
from functools import partial
from typing import Any

from answers import forms
from answers.designs import counts, labels, numbers, outliers, sparse_labels, sparse_numbers, weights, words
from answers.place import Place
from answers.questions import Along, Below, Choice, Fit, Halves, Question
from sklearn.exceptions import ConvergenceWarning

from psfit import (
    BiCADMM,
    SparseLinearRegression,
    SparseLinearRegressionCV,
    SparseLogisticRegression,
    SparseLogisticRegressionCV,
    SparsePoissonRegression,
    SparsePoissonRegressionCV,
    SparseSoftmaxRegression,
    SparseSoftmaxRegressionCV,
    SparseSVC,
    SparseSVCCV,
)
from psfit.losses import Poisson, Squared

LOW, HIGH = BiCADMM(effort="low"), BiCADMM(effort="high")
EXACT = BiCADMM(exact=True)

linear = partial(Fit, model=SparseLinearRegression, kappa=4)
robust = partial(Fit, model=partial(SparseLinearRegression, loss="huber"), kappa=4)
logistic = partial(Fit, model=SparseLogisticRegression, kappa=3)
softmax = partial(Fit, model=SparseSoftmaxRegression, kappa=4)
machine = partial(Fit, model=SparseSVC, kappa=3)
hinged = partial(Fit, model=partial(SparseSVC, loss="hinge"), kappa=3)
poisson = partial(Fit, model=SparsePoissonRegression, kappa=3)
KAPPAS = tuple(range(1, 7))

PROBLEMS: dict[str, Question] = {
    # The squared loss.
    "squared": linear(numbers(1)),
    "squared, default kappa": linear(numbers(2), kappa=None),
    "squared, share of the features": linear(numbers(3), kappa=0.25),
    "squared, no intercept": linear(numbers(4), {"fit_intercept": False, "gamma": 10.0}),
    "squared, standardize": linear(numbers(5), {"standardize": True, "gamma": 0.1}),
    "squared, standardize, no intercept": linear(numbers(6), {"standardize": True, "fit_intercept": False}),
    "squared, weights": linear(numbers(7), weight=weights(7, 120)),
    "squared, zero weights": linear(numbers(8), weight=weights(8, 120, zeros=0.3)),
    "squared, no bound": linear(numbers(9), {"certify": False}),
    "squared, two targets": linear(numbers(10, targets=2)),
    "squared, three targets, features": linear(numbers(11, targets=3), {"sparsity": "feature"}, kappa=5),
    "squared, AR(1) 0.7": linear(numbers(12, count=40, nonzeros=6, correlation=0.7), kappa=6),
    "squared, AR(1) 0.9": linear(numbers(13, count=40, nonzeros=6, correlation=0.9), kappa=6),
    "squared, p > n": linear(numbers(14, 60, 200), {"gamma": 0.5}),
    "squared, p > n, AR(1) 0.9, 1x2": linear(numbers(15, 60, 150, correlation=0.9), grid={"blocks": 2}),
    "squared, little ridge": linear(numbers(16, noise=0.0), {"gamma": 1e6}),
    "squared, few supports": linear(numbers(17, 30, 6, 2), kappa=2),
    "squared, 4x1": linear(numbers(18), grid={"nodes": 4}),
    "squared, 1x2": linear(numbers(19), grid={"blocks": 2}),
    "squared, 2x3": linear(numbers(20), grid={"nodes": 2, "blocks": 3}),
    "squared, two targets, weights, 2x3": linear(
        numbers(21, targets=2), weight=weights(21, 120), grid={"nodes": 2, "blocks": 3}
    ),
    "squared, low effort": linear(numbers(22, correlation=0.7), {"solver": LOW}),
    "squared, high effort": linear(numbers(23, count=30, correlation=0.9), {"solver": HIGH}),
    "squared, exact": linear(numbers(24, count=30, correlation=0.7, noise=3.0), {"solver": EXACT}),
    "squared, exact, features": linear(
        numbers(25, count=12, correlation=0.9, targets=2, noise=3.0), {"solver": EXACT, "sparsity": "feature"}
    ),
    "squared, exact, 4x1": linear(numbers(26, correlation=0.9, noise=3.0), {"solver": EXACT}, grid={"nodes": 4}),
    "squared, cut short": linear(
        numbers(27, count=40, correlation=0.9, noise=3.0), {"solver": BiCADMM(max_iter=6, effort="low")}
    ),
    "squared, warm start": linear(numbers(28, correlation=0.7), earlier=2),
    "squared, given penalties": linear(numbers(29), {"solver": BiCADMM(rho_c=50.0, rho_b=20.0, portfolio=False)}),
    "squared, feature split": linear(numbers(30), {"solver": BiCADMM(local="feature_split")}),
    # The same, in other precisions and forms.
    "squared, float32": linear(numbers(31), form=forms.single),
    "squared, float32, p > n": linear(numbers(32, 60, 200), {"gamma": 0.5}, forms.single),
    "squared, float32 iterations, 4x1": linear(numbers(33), grid={"nodes": 4, "dtype": "float32"}),
    "squared, tensors": linear(numbers(34), form=forms.tensors),
    "squared, table": linear(numbers(35), form=forms.frame),
    "squared, memory map": linear(numbers(36), form=forms.memmap),
    "squared, SciPy sparse": linear(sparse_numbers(37, 400, 200, 0.05), form=forms.csr),
    "squared, SciPy sparse, candidates": linear(sparse_numbers(38, 12_000, 60, 0.02), form=forms.widened_csr),
    "squared, torch sparse, 2x3": linear(
        sparse_numbers(39, 400, 200, 0.05), form=forms.torch_csr, grid={"nodes": 2, "blocks": 3}
    ),
    "squared, CSV": linear(numbers(40), form=forms.csv),
    "squared, folder of CSV with text": linear(numbers(41), form=forms.csv_parts, groups=None),
    "squared, Parquet with weights": linear(numbers(42), form=forms.parquet),
    "squared, npy, 4x1": linear(numbers(43), form=forms.npy, grid={"nodes": 4}),
    "squared, svmlight": linear(sparse_numbers(45, 400, 200, 0.05), form=forms.svmlight),
    "squared, streamed": linear(numbers(46, 2000), form=forms.streamed),
    "squared, streamed CSV, 4x1": linear(numbers(47, 2000), form=forms.streamed_csv, grid={"nodes": 4}),
    "squared, streamed, p > n": linear(numbers(48, 100, 300), {"gamma": 0.1}, forms.streamed),
    # Huber.
    "huber": robust(outliers(50)),
    "huber, other delta": robust(outliers(51), {"huber_delta": 0.5, "standardize": True}),
    "huber, weights, 2x3": robust(outliers(52), weight=weights(52, 120), grid={"nodes": 2, "blocks": 3}),
    # Logistic.
    "logistic": logistic(labels(60)),
    "logistic, no intercept, float32": logistic(labels(61), {"fit_intercept": False}, forms.single),
    "logistic, names, balanced": logistic(words(62), {"class_weight": "balanced"}),
    "logistic, AR(1) 0.9": logistic(labels(63, correlation=0.9), {"gamma": 0.1}),
    "logistic, p > n": logistic(labels(64, 80, 120), {"gamma": 0.1}),
    "logistic, 4x1, standardize": logistic(labels(65), {"standardize": True}, grid={"nodes": 4}),
    "logistic, 2x3": logistic(labels(66), grid={"nodes": 2, "blocks": 3}),
    "logistic, exact": logistic(labels(67, count=10), {"solver": EXACT, "gamma": 0.1}),
    "logistic, zero weights": logistic(labels(68), weight=weights(68, 150, zeros=0.3)),
    "logistic, few supports, low effort": logistic(labels(69, 60, 8, 2), {"solver": LOW}, kappa=2),
    "logistic, warm start": logistic(labels(70, 80, 10), earlier=2),
    "logistic, SciPy sparse": logistic(sparse_labels(71, 400, 200, 0.2), {"gamma": 0.1}, forms.csr),
    "logistic, streamed, candidates": logistic(labels(72, 200, 150), {"gamma": 0.2}, forms.streamed),
    "logistic, streamed, no room": logistic(labels(73, 1000, 30), {"gamma": 0.2, "solver": LOW}, forms.streamed),
    # Softmax.
    "softmax": softmax(labels(80, classes=3)),
    "softmax, features": softmax(labels(81, classes=3), {"sparsity": "feature"}, kappa=3),
    "softmax, 4x1, weights": softmax(labels(82, 90, 10, classes=3), weight=weights(82, 90), grid={"nodes": 4}),
    "softmax, features, 1x2": softmax(labels(83, 100, 6, classes=4), {"sparsity": "feature"}, grid={"blocks": 2}),
    "softmax, two classes, features": softmax(labels(84), {"sparsity": "feature"}),
    "softmax, few supports": softmax(labels(85, 60, 4, 1, classes=3), kappa=2),
    "softmax by the logistic class": logistic(labels(86, classes=3), {"standardize": True}, kappa=5),
    # Support vector machines.
    "squared hinge": machine(labels(90)),
    "squared hinge, one against the rest": machine(labels(91, 100, 8, classes=3)),
    "squared hinge, one against the rest, features": machine(labels(92, count=10, classes=3), {"sparsity": "feature"}),
    "squared hinge, 2x2, weights": machine(labels(93), weight=weights(93, 150), grid={"nodes": 2, "blocks": 2}),
    "hinge": hinged(labels(94, 60, 8), {"gamma": 0.1}),
    "hinge, 4x1": hinged(labels(95, 80, 10), {"gamma": 0.1, "solver": LOW}, grid={"nodes": 4}),
    # Poisson.
    "poisson": poisson(counts(100)),
    "poisson, weights, no intercept": poisson(counts(101), {"fit_intercept": False}, weight=weights(101, 150)),
    "poisson, AR(1) 0.7, 2x3": poisson(counts(102, correlation=0.7), grid={"nodes": 2, "blocks": 3}),
    # `psfit.solve`.
    "solve, squared, two limits": Below(numbers(110, targets=2), loss=Squared(), kappa=(4, 2)),
    "solve, poisson, from a start": Below(counts(111), {"gamma": 0.5}, loss=Poisson(), kappa=(3,), start=0.01),
    # Paths.
    "path, squared": Along(numbers(120), kappas=tuple(range(1, 16))),
    "path, squared, AR(1) 0.9, gammas": Along(
        numbers(121, correlation=0.9), {"gammas": [0.01, 1.0, 100.0]}, kappas=KAPPAS
    ),
    "path, squared, two targets, weights": Along(numbers(122, targets=2), weight=weights(122, 120), kappas=KAPPAS),
    "path, squared, features, 4x1": Along(
        numbers(123, targets=2), {"sparsity": "feature"}, grid={"nodes": 4}, kappas=KAPPAS
    ),
    "path, squared, p > n": Along(numbers(124, 50, 100), {"gammas": 0.5}, kappas=KAPPAS),
    "path, squared, float32, 1x2": Along(numbers(125), form=forms.single, grid={"blocks": 2}, kappas=KAPPAS),
    "path, squared, streamed": Along(numbers(126, 2000), form=forms.streamed, kappas=KAPPAS),
    "path, huber": Along(outliers(127, 80, 10), {"loss": "huber"}, kappas=(1, 2, 4)),
    "path, logistic": Along(labels(128, 100, 8), {"loss": "logistic", "gammas": [0.1, 1.0]}, kappas=(1, 2, 3, 5)),
    "path, softmax": Along(labels(129, 80, 5, 2, classes=3), {"loss": "softmax"}, kappas=(1, 3, 5)),
    "path, squared hinge, one against the rest": Along(
        labels(130, 100, 6, 2, classes=3), {"loss": "squared_hinge"}, kappas=(1, 2, 3)
    ),
    "path, poisson": Along(counts(131, count=8), {"loss": "poisson", "standardize": True}, kappas=(1, 2, 3)),
    # Choices.
    "choice, squared": Choice(numbers(140), model=SparseLinearRegressionCV, kappas=KAPPAS),
    "choice, squared, gammas, weights, 4x1": Choice(
        numbers(141),
        {"gammas": [0.01, 1.0, 100.0], "cv": 3},
        weight=weights(141, 120),
        grid={"nodes": 4},
        model=SparseLinearRegressionCV,
        kappas=KAPPAS,
    ),
    "choice, squared, one standard error": Choice(
        numbers(142, noise=3.0), {"one_standard_error": True}, model=SparseLinearRegressionCV, kappas=KAPPAS
    ),
    "choice, squared, BIC, two targets": Choice(
        numbers(143, targets=2), {"criterion": "bic"}, model=SparseLinearRegressionCV, kappas=KAPPAS
    ),
    "choice, huber": Choice(
        outliers(144, 80, 10), {"loss": "huber", "cv": 3}, model=SparseLinearRegressionCV, kappas=(2, 4)
    ),
    "choice, logistic, gammas": Choice(
        labels(145, 100, 8), {"gammas": [0.1, 1.0], "cv": 3}, model=SparseLogisticRegressionCV, kappas=(1, 3, 5)
    ),
    "choice, logistic, AIC": Choice(
        labels(146, count=10), {"criterion": "aic"}, model=SparseLogisticRegressionCV, kappas=(1, 2, 3, 5)
    ),
    "choice, softmax": Choice(
        labels(147, 80, 5, 2, classes=3), {"cv": 3}, model=SparseSoftmaxRegressionCV, kappas=(2, 4)
    ),
    "choice, squared hinge, accuracy": Choice(
        labels(148, count=10), {"scoring": "accuracy", "cv": 3}, model=SparseSVCCV, kappas=(1, 3)
    ),
    "choice, poisson, EBIC": Choice(
        counts(149, count=8), {"criterion": "ebic"}, model=SparsePoissonRegressionCV, kappas=(1, 2, 3, 4)
    ),
    # Stability.
    "stability, squared": Halves(numbers(150, noise=3.0), kappas=(2, 4)),
    "stability, logistic": Halves(labels(151, count=8), {"loss": "logistic"}, kappas=(3,)),
}


def answer(name: str, place: Place) -> dict[str, Any]:
    """The answer to a problem at a place; its status says what the warning about it would."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return PROBLEMS[name].solve(place)
