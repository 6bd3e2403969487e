"""Federated sparse classifiers beside hard thresholding with FedAvg on Flower: accuracy, objective, rounds, bytes.

``python benchmarks/federated/run.py --output FOLDER [--data FOLDER]`` uses generated sparse text (words with the
frequencies of natural language) and pictures of digits (scikit-learn's); with ``--data``, also short messages
(sms_spam.npz), and Fashion-MNIST at half its resolution in place of the digits. Four clients have skewed classes.
Softmax loss, densities 0.005 to 0.1, several splits into training and test samples and into clients.
"""

import argparse
import csv
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import scipy.special
from baseline import RATES, fit_baseline
from sklearn.datasets import load_digits

from psfit.federated import Job, LocalData, ServerSettings, simulate

sys.path.insert(0, str(Path(__file__).parents[1]))
from environment import environment

CLIENTS, GAMMA = 4, 1.0
BASELINE, OURS = "hard thresholding", "PsFiT, secure sums"
DENSITIES = (0.005, 0.02, 0.1)
# The fewest samples of a client.
FEWEST = 10
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


def load_messages(data: Path, rng: np.random.Generator, count: int, words: int) -> Samples:
    """Normalised words of short messages, the most frequent ones."""
    archive = np.load(data / "sms_spam.npz")
    parts = [archive[f"X_{part}"] for part in ("data", "indices", "indptr", "shape")]
    X = scipy.sparse.csr_matrix((parts[0].astype(float), parts[1].astype(int), parts[2]), tuple(parts[3]))
    chosen = rng.permutation(X.shape[0])[:count]
    X = X[chosen]
    frequent = np.argsort(-np.asarray((X != 0).sum(axis=0)).ravel(), kind="stable")[:words]
    values = np.log1p(X[:, frequent].toarray())
    labels = np.unique(archive["y"], return_inverse=True)[1][chosen]
    return values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1.0), labels


def divide(y: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Rows of each client: shares of each class are drawn from a Dirichlet distribution, so classes are skewed.

    They are drawn again while a client has next to no samples.
    """
    while True:
        parts: list[list[int]] = [[] for _ in range(CLIENTS)]
        for label in np.unique(y):
            rows = rng.permutation(np.flatnonzero(y == label))
            ends = (np.cumsum(rng.dirichlet(np.full(CLIENTS, 0.5))) * len(rows)).astype(int)
            for part, own in zip(parts, np.split(rows, ends[:-1]), strict=True):
                part.extend(own.tolist())
        if min(map(len, parts)) >= FEWEST:
            return [np.array(sorted(part)) for part in parts]


def compare(name: str, samples: Samples, split: int, rounds: int) -> list[dict[str, Any]]:
    """Rows of the table for one data set and one split."""
    rng = np.random.default_rng(split)
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
        found = {
            "data": name,
            "split": split,
            "density": round(kappa / (X.shape[1] * classes), 4),
            "method": method,
            "nonzeros": int((W[:-1] != 0).sum()),
            "accuracy_%": round(100 * float(((ones[test] @ W).argmax(axis=1) == y[test]).mean()), 2),
            "objective": round(objective(W), 3),
        } | facts
        print(found, flush=True)
        return found

    kappas = [max(1, round(density * X.shape[1] * classes)) for density in DENSITIES]
    sites = [(ones[part], Y[part]) for part in parts]
    best = fit_baseline(sites, kappas, GAMMA, curvature, rounds, objective)
    rows = []
    for kappa, (W, rate) in zip(kappas, best, strict=True):
        megabytes = 2 * rounds * W.size * 8 / 1e6
        rows.append(row(BASELINE, kappa, W, rounds=rounds, megabytes=round(megabytes, 2), rate=rate))
        W, facts = fit_ours(X, y, parts, kappa, classes)
        rows.append(row(OURS, kappa, W, **facts, rate="-"))
    return rows


def fit_ours(
    X: np.ndarray, y: np.ndarray, parts: list[np.ndarray], kappa: int, classes: int
) -> tuple[np.ndarray, dict[str, Any]]:
    """The coefficients of a federated fit with secure sums, and what it cost."""
    job = Job(
        "SparseSoftmaxRegression",
        {"kappa": kappa, "gamma": GAMMA, "certify": False, "solver": {"effort": "low"}},
        classes=list(range(classes)),
    )
    data = {f"client{k}": LocalData(X[part], y[part]) for k, part in enumerate(parts)}
    found = simulate(job, data, ServerSettings(timeout=600.0))
    own = found.outcome.exchanged["client1"]
    megabytes = (own.sent_bytes + own.received_bytes + own.header_bytes) / 1e6
    W = np.vstack([found.model.coef_.T, found.model.intercept_])
    return W, {"rounds": found.outcome.sums, "megabytes": round(megabytes, 2)}


def summarise(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A line for each data set, density and method: means over the splits, with the spread of the accuracy."""
    lines = []
    for key in dict.fromkeys((row["data"], row["density"], row["method"]) for row in rows):
        own = [row for row in rows if (row["data"], row["density"], row["method"]) == key]
        ours = [row for row in rows if (row["data"], row["density"], row["method"]) == (*key[:2], OURS)]
        above = [a["objective"] / b["objective"] - 1 for a, b in zip(own, ours, strict=True)]
        columns = {"accuracy_%": [row["accuracy_%"] for row in own], "objective above ours_%": [100 * a for a in above]}
        lines.append(
            dict(zip(("data", "density", "method"), key, strict=True))
            | {name: f"{np.mean(some):.1f} ({min(some):.1f} to {max(some):.1f})" for name, some in columns.items()}
            | {
                "rounds": round(np.mean([row["rounds"] for row in own])),
                "megabytes": round(float(np.mean([row["megabytes"] for row in own])), 1),
                "rates": " ".join(str(rate) for rate in sorted({row["rate"] for row in own}, key=str)),
            }
        )
    return lines


def write_results(rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """All rows as CSV, and their summary as a page."""
    options.output.mkdir(parents=True, exist_ok=True)
    with open(options.output / "federated.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    lines = summarise(rows)
    head = "| " + " | ".join(lines[0]) + " |\n|" + "---|" * len(lines[0])
    table = "\n".join("| " + " | ".join(str(value) for value in line.values()) + " |" for line in lines)
    notes = (
        f"Means over {max(row['split'] for row in rows) + 1} splits of at most {options.samples} samples into training "
        f"and test samples (a quarter) and into {CLIENTS} clients with skewed classes; in brackets the least and the "
        "greatest. The baseline runs on Flower's simulation. Its first learning rate is the best of "
        f"{', '.join(map(str, RATES))} by the training objective; it falls to a tenth in {options.rounds} rounds. Its "
        "bytes are those of one rate, without masks. PsFiT refits its support; the baseline does not."
    )
    versions = environment() | {name: version(name) for name in ("flwr", "ray")}
    about = ", ".join(f"{key} {value}" for key, value in versions.items())
    page = f"# Federated classifiers\n\n{head}\n{table}\n\n{notes}\n\nRun on: {about}\n"
    (options.output / "federated.md").write_text(page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="folder with fashion_mnist.npz and sms_spam.npz")
    parser.add_argument("--samples", type=int, default=3000)
    parser.add_argument("--words", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    sets = {"generated text": make_text(rng, options.samples, options.words)}
    if options.data is not None:
        sets["short messages"] = load_messages(options.data, rng, options.samples, options.words)
    sets["pictures"] = load_pictures(options.data, rng, options.samples)
    rows: list[dict[str, Any]] = []
    for name, samples in sets.items():
        for split in range(options.splits):
            rows += compare(name, samples, split, options.rounds)
            write_results(rows, options)


if __name__ == "__main__":
    main()
