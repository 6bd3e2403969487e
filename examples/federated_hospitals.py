"""Five hospitals with skewed data: pooled, federated, with secure sums, and alone. Objective, support, certificate.

``python examples/federated_hospitals.py --output FOLDER`` generates patients of five hospitals. Hospitals differ in
size, in the age of their patients and in how ill they are; the disease is the same. Each fits a sparse logistic
regression alone. Then all fit one together, without showing a patient, and are compared with a fit to all patients.
"""

import argparse
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np

from psfit import SparseLogisticRegression
from psfit.federated import Job, LocalData, ServerSettings, simulate

matplotlib.use("Agg")

HOSPITALS = {"university": 300, "city": 160, "county": 90, "coast": 60, "valley": 40}
FEATURES, KAPPA, GAMMA = 20, 4, 10.0
TRUE = {0: 1.2, 4: -1.5, 9: 1.0, 13: 2.0}


def make_patients(rng: np.random.Generator, samples: int, hospital: int) -> tuple[np.ndarray, np.ndarray]:
    """Patients whose means, spreads and rate of disease are those of one hospital."""
    X = rng.normal(size=(samples, FEATURES)) * rng.uniform(0.5, 1.5, size=FEATURES)
    X[:, 1:] += 0.6 * X[:, :-1]
    X[:, hospital::5] += 1.0
    eta = X[:, list(TRUE)] @ list(TRUE.values()) + 0.5 * (hospital - 2)
    return X, (eta + rng.logistic(size=samples) > 0).astype(int)


def draw(accuracy: dict[str, float], coefficients: dict[str, np.ndarray], picture: Path) -> None:
    """Accuracy on new patients of all hospitals, and the coefficients of each model."""
    left, right = plt.subplots(1, 2, figsize=(10.0, 4.2), layout="constrained", width_ratios=(1, 1.6))[1]
    colors = ["tab:gray"] * len(HOSPITALS) + ["tab:blue"] * (len(accuracy) - len(HOSPITALS))
    left.barh(list(accuracy), [100 * value for value in accuracy.values()], color=colors)
    left.invert_yaxis()
    left.set_xlim(50, 100)
    left.set_xlabel("accuracy on new patients of all hospitals, %")
    table = np.array(list(coefficients.values()))
    most = np.abs(table).max()
    image = right.imshow(table, cmap="RdBu", vmin=-most, vmax=most, aspect="auto")
    right.set_yticks(range(len(coefficients)), list(coefficients))
    right.xaxis.get_major_locator().set_params(integer=True)
    right.set_xlabel("feature (true ones: " + ", ".join(map(str, TRUE)) + ")")
    right.figure.colorbar(image, label="coefficient")
    right.figure.suptitle(f"Five hospitals, at most {KAPPA} of {FEATURES} features", fontsize="medium")
    right.figure.savefig(picture, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="folder for the picture")
    parser.add_argument("--share", type=float, default=1.0, help="share of the patients to use")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(8)
    sites, new = {}, []
    for number, (name, samples) in enumerate(HOSPITALS.items()):
        sites[name] = LocalData(*make_patients(rng, max(20, int(options.share * samples)), number))
        new.append(make_patients(rng, 2000, number))
    X_new, y_new = (np.concatenate(part) for part in zip(*new, strict=True))
    arguments = {"kappa": KAPPA, "gamma": GAMMA}
    models = {name: SparseLogisticRegression(**arguments).fit(own.X, own.y) for name, own in sites.items()}
    X, y = np.concatenate([own.X for own in sites.values()]), np.concatenate([own.y for own in sites.values()])
    models["pooled"] = SparseLogisticRegression(**arguments).fit(X, y)
    job = Job("SparseLogisticRegression", arguments, classes=[0, 1])
    for title, secure in (("federated", False), ("secure sums", True)):
        found = simulate(job, sites, ServerSettings(secure=secure))
        models[title] = found.model
        own = found.outcome.exchanged["city"]
        sent = (own.sent_bytes + own.received_bytes + own.header_bytes) / 1e3
        print(f"{title}: {found.outcome.sums} sums, {sent:,.0f} kB for each client")
    print(f"{'model':12} {'accuracy':>8} {'objective':>12} {'proved gap':>10}  features")
    accuracy = {}
    for name, model in models.items():
        accuracy[name] = model.score(X_new, y_new)
        features = ", ".join(map(str, model.support_))
        print(f"{name:12} {100 * accuracy[name]:7.1f}% {model.objective_:12.6f} {model.gap_:9.2%}  {features}")
    picture = options.output / "federated-hospitals.png"
    draw(accuracy, {name: model.coef_.ravel() for name, model in models.items()}, picture)
    print(f"picture: {picture}")


if __name__ == "__main__":
    main()
