"""Claims of motor policies: Poisson regression with exposure as an offset, and few features out of many.

``python examples/insurance_claims.py --output FOLDER`` generates policies like those of a motor insurer: drivers, cars
and places, in force for anything from a few days to a year, and few of them with a claim. A policy of a month has a
twelfth of the claims that it would have in a year, so the logarithm of its time in force is an offset. The same models
without the offset take the lack of time for a lack of risk. A picture compares both on policies held out.
"""

import argparse
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.metrics import d2_tweedie_score

from psfit import SparsePoissonRegression

matplotlib.use("Agg")

REGIONS = ("north", "east", "south", "west", "capital", "islands")
FUELS = ("petrol", "diesel", "electric")
GROUPS = 10


def generate(policies: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Features, years in force and numbers of claims."""
    rng = np.random.default_rng(seed)
    age = np.clip(rng.gamma(9, 5, policies), 18, 90)
    bonus = np.clip(50 + rng.exponential(15, policies) + 40 * (age < 25), 50, 180)
    density = rng.lognormal(6, 1.6, policies)
    region, fuel = rng.choice(REGIONS, policies), rng.choice(FUELS, policies, p=[0.5, 0.4, 0.1])
    power, car_age = rng.integers(4, 13, policies), rng.gamma(2, 4, policies)
    table = pd.DataFrame({"driver's age": age, "car's age": car_age, "power": power, "bonus": bonus})
    table["log density"] = np.log(density)
    table["young driver"] = age < 25
    table["old driver"] = age > 70
    table["new car"] = car_age < 1
    table["young driver, strong car"] = (age < 25) & (power > 9)
    for name, values, kinds in (("region", region, REGIONS), ("fuel", fuel, FUELS)):
        for kind in kinds:
            table[f"{name} {kind}"] = values == kind
    # Columns of the data base that have nothing to do with claims.
    for k in range(15):
        table[f"field {k}"] = rng.normal(size=policies)
    rate = -4.1 + 0.02 * (bonus - 50) + 0.12 * np.log(density) + 0.5 * (age < 25) + 0.35 * (car_age < 1)
    rate = rate + 0.4 * ((age < 25) & (power > 9)) + 0.3 * (region == "capital")
    # Customers of the islands are new: their policies are short, though they drive like all others.
    years = np.where(region == "islands", rng.beta(1, 6, policies), rng.beta(1.2, 0.7, policies)).clip(min=1 / 365)
    return table.astype(float), years, rng.poisson(years * np.exp(rate))


def fit(kappa: int, table: pd.DataFrame, claims: np.ndarray, years: np.ndarray | None) -> SparsePoissonRegression:
    """A model of few features, with or without the years."""
    model = SparsePoissonRegression(kappa, gamma=0.05, standardize=True, certify=False)
    return model.fit(table, claims, offset=None if years is None else np.log(years))


def draw(scores: dict[str, list[float]], limits: list[int], groups: pd.DataFrame, picture: Path) -> None:
    """How much of the deviance is explained, and rates of claims as predicted and as observed."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
    for name, values in scores.items():
        left.plot(limits, [100 * value for value in values], "o-", label=name)
    left.set_xlabel("features allowed (kappa)")
    left.set_ylabel("deviance explained, held out (%)")
    left.legend()
    right.plot(groups["predicted"], groups["observed"], "o", color="C0")
    most = groups.to_numpy().max()
    right.plot([0, most], [0, most], color="grey", linewidth=0.8)
    right.set_xlabel("predicted claims in a year")
    right.set_ylabel("observed claims in a year")
    right.set_title(f"{GROUPS} groups of policies by predicted risk", fontsize="medium")
    figure.savefig(picture, dpi=100)


def main() -> None:
    """Fit with and without the offset, and compare on policies held out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder for the picture")
    parser.add_argument("--policies", type=int, default=40_000, help="policies to generate; half of them are held out")
    parser.add_argument("--most", type=int, default=6, help="the largest kappa")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    table, years, claims = generate(options.policies)
    half = options.policies // 2
    known, new = slice(0, half), slice(half, None)
    print(
        f"{options.policies:,} policies, {table.shape[1]} features, {claims.sum():,} claims in {years.sum():,.0f} years"
    )
    scores: dict[str, list[float]] = {"time in force as offset": [], "time in force ignored": []}
    limits = list(range(1, options.most + 1))
    for kappa in limits:
        with_years = fit(kappa, table[known], claims[known], years[known])
        without = fit(kappa, table[known], claims[known], None)
        expected = with_years.predict(table[new], offset=np.log(years[new]))
        for name, predicted in zip(scores, (expected, without.predict(table[new])), strict=True):
            scores[name].append(d2_tweedie_score(claims[new], predicted, power=1))
        print(f"  kappa {kappa}: D^2 {scores['time in force as offset'][-1]:.4f} with the offset, "
              f"{scores['time in force ignored'][-1]:.4f} without")  # fmt: skip
    print(f"  with the offset:    {', '.join(table.columns[with_years.support_])}")
    print(f"  without the offset: {', '.join(table.columns[without.support_])}")
    rate = with_years.predict(table[new], offset=np.zeros(options.policies - half))
    frame = pd.DataFrame({"predicted": rate * years[new], "observed": claims[new], "years": years[new]})
    sums = frame.groupby(pd.qcut(rate, GROUPS, labels=False, duplicates="drop")).sum()
    groups = sums[["predicted", "observed"]].div(sums["years"], axis=0)
    picture = options.output / "insurance-claims.png"
    draw(scores, limits, groups, picture)
    print(f"  picture {picture}")


if __name__ == "__main__":
    main()
