"""Federated sparse classifiers beside hard thresholding with FedAvg on Flower: accuracy, objective, rounds, bytes.

``python benchmarks/federated/run.py --output FOLDER [--data FOLDER]`` uses generated sparse text (words with the
frequencies of natural language; clients write about different topics) and pictures of digits (scikit-learn's; with
``--data``, Fashion-MNIST at half its resolution). Four clients have skewed classes. Softmax loss, densities 0.005 to
0.1.
"""

import argparse
import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.special
from baseline import RATES, ROUNDS, fit_baseline
from sklearn.datasets import load_digits

from psfit.federated import Job, LocalData, ServerSettings, simulate

sys.path.insert(0, str(Path(__file__).parents[1]))
from environment import environment

CLIENTS, GAMMA = 4, 1.0
DENSITIES = (0.005, 0.02, 0.1)
Samples = tuple[np.ndarray, np.ndarray]


def make_text(rng: np.random.Generator, documents: int, words: int, classes: int = 3) -> Samples:
    """Normalised counts of words; each class prefers its own words, and frequencies follow Zipf's law."""
    common = 1.0 / np.arange(1, words + 1)
    tilt = np.exp(1.5 * rng.normal(size=(classes, words)) * (rng.random((classes, words)) < 0.05))
    labels = rng.integers(classes, size=documents)
    rates = common * tilt[labels]
    X = rng.poisson(60 * rates / rates.sum(axis=1, keepdims=True)).astype(float)
    X = np.log1p(X)
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0), labels


def load_pictures(data: Path | None, rng: np.random.Generator, count: int) -> Samples:
    """Pixels between 0 and 1."""
    if data is None:
        digits = load_digits()
        return digits.data / 16.0, digits.target
    archive = np.load(data / "fashion_mnist.npz")
    chosen = rng.permutation(len(archive["y"]))[:count]
    pictures = archive["X"][chosen].reshape(count, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(count, 196)
    return pictures / max(1.0, pictures.max()), archive["y"][chosen].astype(int)


def divide(y: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Rows of each client: shares of each class are drawn from a Dirichlet distribution, so classes are skewed."""
    parts: list[list[int]] = [[] for _ in range(CLIENTS)]
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        ends = (np.cumsum(rng.dirichlet(np.full(CLIENTS, 0.5))) * len(rows)).astype(int)
        for part, own in zip(parts, np.split(rows, ends[:-1]), strict=True):
            part.extend(own.tolist())
    return [np.array(sorted(part)) for part in parts]


def compare(name: str, samples: Samples, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Rows of the table for one data set."""
    X, y = samples
    order = rng.permutation(len(y))
    test, train = order[: len(y) // 4], order[len(y) // 4 :]
    classes = int(y.max()) + 1
    ones = np.column_stack([X, np.ones(len(X))])
    Y = np.eye(classes)[y]
    parts = [train[part] for part in divide(y[train], rng)]
    curvature = 0.5 * np.linalg.norm(ones[train], 2) ** 2 / len(train)

    def objective(W: np.ndarray) -> float:
        eta = ones[train] @ W
        loss = scipy.special.logsumexp(eta, axis=1) - (Y[train] * eta).sum(axis=1)
        return float(loss.sum() + (W[:-1] ** 2).sum() / (2 * GAMMA))

    def row(method: str, kappa: int, W: np.ndarray, **facts: Any) -> dict[str, Any]:
        return {
            "data": name,
            "density": round(kappa / (X.shape[1] * classes), 4),
            "method": method,
            "nonzeros": int((W[:-1] != 0).sum()),
            "accuracy_%": round(100 * float(((ones[test] @ W).argmax(axis=1) == y[test]).mean()), 2),
            "objective": round(objective(W), 3),
        } | facts

    rows = []
    for density in DENSITIES:
        kappa = max(1, round(density * X.shape[1] * classes))
        sites = {k: (ones[part], Y[part]) for k, part in enumerate(parts)}
        W, rate = fit_baseline(sites, kappa, GAMMA, curvature, objective)
        megabytes = 2 * ROUNDS * W.size * 8 / 1e6
        rows.append(row("hard thresholding", kappa, W, rounds=ROUNDS, megabytes=round(megabytes, 2), rate=rate))
        job = Job(
            "SparseSoftmaxRegression",
            {"kappa": kappa, "gamma": GAMMA, "certify": False, "solver": {"effort": "low"}},
            classes=list(range(classes)),
        )
        found = simulate(job, {f"client{k}": LocalData(X[part], y[part]) for k, part in enumerate(parts)}, SETTINGS)
        W = np.vstack([found.model.coef_.T, found.model.intercept_])
        own = found.outcome.exchanged["client1"]
        megabytes = (own.sent_bytes + own.received_bytes + own.header_bytes) / 1e6
        facts = {"rounds": found.outcome.sums, "megabytes": round(megabytes, 2), "rate": "-"}
        rows.append(row("PsFiT, secure sums", kappa, W, **facts))
        for one in rows[-2:]:
            print(one, flush=True)
    return rows


SETTINGS = ServerSettings(timeout=600.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="folder with fashion_mnist.npz")
    parser.add_argument("--documents", type=int, default=3000)
    parser.add_argument("--words", type=int, default=1000)
    parser.add_argument("--pictures", type=int, default=3000)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    rows = compare("sparse text", make_text(rng, options.documents, options.words), rng)
    rows += compare("pictures", load_pictures(options.data, rng, options.pictures), rng)
    options.output.mkdir(parents=True, exist_ok=True)
    with open(options.output / "federated.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    head = "| " + " | ".join(rows[0]) + " |\n|" + "---|" * len(rows[0])
    table = "\n".join("| " + " | ".join(str(value) for value in row.values()) + " |" for row in rows)
    notes = (
        "One data set and one split each. The test sets are small, so accuracies are known to a few percent only. The "
        f"baseline's learning rate is the best of {RATES} by the training objective (column rate), after {ROUNDS} "
        "rounds; bytes are those of one such run, without masks. PsFiT refits its support; the baseline does not."
    )
    about = ", ".join(f"{key} {value}" for key, value in environment().items())
    (options.output / "federated.md").write_text(
        f"# Federated classifiers\n\n{head}\n{table}\n\n{notes}\n\nRun on: {about}\n"
    )


if __name__ == "__main__":
    main()
