"""A table of categories: a model takes a whole column or leaves it, not single levels of it.

``python examples/categories.py --output FOLDER`` uses a data set of scikit-learn, the progression of diabetes in 442
patients, as a clinic would keep it: classes of age, weight and blood pressure, quarters of six blood values. The
table is written to a CSV file. `FileSource` makes a column for each level, and the levels of one column are a group,
so that kappa counts columns of the table. With ``groups=None`` it counts levels, and models pick single levels from
many columns. Random splits hold out a quarter of the patients: R^2 there is drawn against the number of columns that
a doctor must fill in.
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes
from sklearn.metrics import r2_score
from sklearn.model_selection import ShuffleSplit

from psfit import FileSource, SparseLinearRegression, SparsePath, sparse_path

matplotlib.use("Agg")

CLASSES = {
    "age": ([0, 30, 40, 50, 60, 100], ["below 30", "30 to 40", "40 to 50", "50 to 60", "above 60"]),
    "bmi": ([0, 18.5, 25, 30, 35, 100], ["under", "normal", "over", "obese 1", "obese 2"]),
    "bp": ([0, 80, 90, 100, 110, 300], ["below 80", "80 to 90", "90 to 100", "100 to 110", "above 110"]),
}
QUARTERS = ["1st quarter", "2nd quarter", "3rd quarter", "4th quarter"]
MODELS = {"whole columns": {}, "single levels": {"groups": None}}


def categories() -> pd.DataFrame:
    """The patients in classes, and the progression of the disease in the last column."""
    data = load_diabetes(as_frame=True, scaled=False)
    table = {"sex": data.data["sex"].map({1.0: "sex 1", 2.0: "sex 2"})}
    table |= {name: pd.cut(data.data[name], cuts, labels=labels) for name, (cuts, labels) in CLASSES.items()}
    table |= {name: pd.qcut(data.data[name], 4, labels=QUARTERS) for name in ("s1", "s2", "s3", "s4", "s5", "s6")}
    return pd.DataFrame(table).astype(str).assign(progression=data.target)


def columns_of(path: SparsePath, kappa: int) -> list[str]:
    """The columns of the table that a model needs."""
    return list(dict.fromkeys(str(path.feature_names[j]).partition("=")[0] for j in path.support(kappa)))


def encode(table: pd.DataFrame, names: np.ndarray) -> np.ndarray:
    """The levels of new patients in the columns of a model."""
    parts = [str(name).partition("=") for name in names]
    return np.column_stack([table[column] == level for column, _, level in parts]).astype(float)


def compare(table: pd.DataFrame, most: int, splits: int, folder: Path) -> dict[str, list[tuple[int, float]]]:
    """The number of columns and R^2 on held-out patients of each model, over all splits."""
    found: dict[str, list[tuple[int, float]]] = {title: [] for title in MODELS}
    for train, test in ShuffleSplit(splits, test_size=0.25, random_state=0).split(table):
        table.iloc[train].to_csv(folder / "train.csv", index=False)
        source = FileSource(folder / "train.csv", one_hot=True)
        held, truth = table.iloc[test], table.iloc[test]["progression"]
        for title, groups in MODELS.items():
            path = sparse_path(source, kappas=range(1, most + 1), gammas=1.0, certify=False, **groups)
            X = encode(held, path.feature_names)
            for kappa in path.kappas:
                predicted = X @ path.coef(kappa)[:, 0] + path.intercept(kappa)[0]
                found[title].append((len(columns_of(path, kappa)), r2_score(truth, predicted)))
    return found


def draw(model: SparseLinearRegression, scores: dict[str, list[tuple[int, float]]], picture: Path) -> None:
    """The coefficients of the levels of one model, and R^2 against the number of columns."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 4.2), layout="constrained")
    names, coef = model.feature_names_in_[model.support_], model.coef_[model.support_]
    kinds = [name.partition("=")[0] for name in names]
    colours = {kind: f"C{place}" for place, kind in enumerate(dict.fromkeys(kinds))}
    left.barh(range(len(names)), coef, color=[colours[kind] for kind in kinds])
    left.set_yticks(range(len(names)), names, fontsize="small")
    left.invert_yaxis()
    left.axvline(0, color="black", lw=0.5)
    left.set_xlabel("coefficient")
    left.set_title(f"The best {len(colours)} columns, all patients", fontsize="medium")
    for title, pairs in scores.items():
        sizes = sorted({size for size, _ in pairs})
        right.plot(
            sizes, [np.mean([r2 for size, r2 in pairs if size == one]) for one in sizes], "o-", ms=3, label=title
        )
    right.set_xlabel("columns of the table that a model needs")
    right.set_ylabel("R^2 on held-out patients")
    right.legend(loc="lower right")
    right.grid(True, alpha=0.3)
    figure.savefig(picture, dpi=100)


def main() -> None:
    """Fit whole columns and single levels, compare, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder for the picture")
    parser.add_argument("--splits", type=int, default=30, help="random splits into training and held-out patients")
    parser.add_argument("--most", type=int, default=8, help="the largest limit")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    table = categories()
    with TemporaryDirectory() as folder:
        table.to_csv(Path(folder) / "patients.csv", index=False)
        source = FileSource(Path(folder) / "patients.csv", one_hot=True)
        for title, groups in MODELS.items():
            path = sparse_path(source, kappas=range(1, options.most + 1), **groups)
            print(f"{title}, all patients: kappa, gap, levels, columns")
            for row in path.rows():
                used = columns_of(path, row["kappa"])
                print(f"  {row['kappa']:>2}  {row['gap']:.1e}  {len(row['features']):>2}  {', '.join(used)}")
        model = SparseLinearRegression(min(4, options.most)).fit(source)
        scores = compare(table, options.most, options.splits, Path(folder))
    picture = options.output / "categories.png"
    draw(model, scores, picture)
    print(f"  picture {picture}")


if __name__ == "__main__":
    main()
