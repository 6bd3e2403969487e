"""The page: everything that is said about a model or a path, handed to the template."""

from functools import cache, partial
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from psfit.estimators._base import SparseModel
from psfit.estimators._selection import SelectingModel, Selection
from psfit.estimators.path import Path
from psfit.plots import (
    plot_convergence,
    plot_gaps,
    plot_objectives,
    plot_path,
    plot_selection,
    plot_target,
)
from psfit.reporting import words
from psfit.reporting.charts import chart
from psfit.reporting.coefficients import Cell, Coefficients, Table, numeric
from psfit.reporting.names import feature_names, joined, number, output_names, plural, share
from psfit.reporting.recipe import model_recipe, path_recipe
from psfit.reporting.samples import DataSummary

# Charts of a path: one for each output and gamma, but not for more than this.
MOST_CHARTS = 6
# Larger tables of classes against classes are no longer read.
MOST_CLASSES = 20


def page(subject: SparseModel | Path, data: DataSummary | None = None, command: str | None = None) -> str:
    """The HTML of a report; `command` is the command line that made the subject."""
    if isinstance(subject, Path):
        content = _path_content(subject)
    elif isinstance(subject, SparseModel):
        content = _model_content(subject, data)
    else:
        raise TypeError(f"model={subject!r} must be a fitted PsFiT model or a Path")
    shared = {"data": None if data is None else _data_content(data), "command": command}
    return _templates().get_template("page.html").render(**content, **shared)


@cache
def _templates() -> Environment:
    found = Environment(
        loader=PackageLoader("psfit.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"number": number, "share": share}
    return found


def _model_content(model: Any, data: DataSummary | None) -> dict[str, Any]:
    if not hasattr(model, "result_"):
        raise ValueError(f"this {type(model).__name__} is not fitted yet; call fit first")
    result = model.result_
    p, c = result.coef.shape
    names = feature_names(getattr(model, "feature_names_in_", None), p)
    outputs = output_names(model, c)
    classes = [str(label) for label in getattr(model, "classes_", [])]
    columns = None if data is None else data.columns
    coefficients = Coefficients(
        result.coef, result.intercept, names, outputs, words.ratio_name(result.loss, c), columns
    )
    what, formula = words.LOSSES[result.loss]
    gamma = float(getattr(model, "gamma_", model.gamma))
    used = [names[j] for j in result.support]
    proof = words.certificate(result)
    limit = words.kappa_in_words(result.kappa, result.sparsity, c, result.loss == "softmax", bool(classes))
    return {
        "title": f"Sparse {what.split(' (')[0].removeprefix('a ')}",
        "kind": type(model).__name__,
        "lead": f"{plural(result.samples, 'sample')}, {plural(p, 'feature')}, {limit}.",
        "tiles": [
            ("features used", f"{len(used):,}", f"of {p:,}"),
            ("objective", number(result.objective), "losses and ridge"),
            ("gap", "\u2013" if not np.isfinite(result.lower_bound) else share(result.gap), proof.verdict),
            ("status", result.status.name.replace("_", " ").lower(), plural(result.n_iter, "iteration")),
        ],
        "summary": _summary(used, classes, model),
        "problem": _problem(what, formula, result, model, gamma, limit, classes),
        "status": result.status.value,
        "coefficients": coefficients.table(),
        "coefficient_chart": coefficients.chart(),
        "reading": words.reading(result.loss, outputs, classes),
        "outputs": outputs,
        "classes": classes,
        "certificate": proof,
        "problems": _problems(result, outputs),
        "selection": _selection_content(model.selection_) if isinstance(model, SelectingModel) else None,
        "path": None,
        "convergence": _convergence(result),
        "result": result,
        "recipe": model_recipe(model),
        "surroundings": getattr(model, "_surroundings", None),
    }


def _summary(used: list[str], classes: list[str], model: Any) -> str:
    if not used:
        return "The model uses no feature: its prediction is the intercept."
    chosen = " The limit was chosen among several, see below." if isinstance(model, SelectingModel) else ""
    of = f" It tells {joined(classes)} apart." if classes else ""
    return f"The model uses {joined(used)}.{of}{chosen}"


def _problem(
    what: str, formula: str, result: Any, model: Any, gamma: float, limit: str, classes: list[str]
) -> list[tuple[str, str]]:
    """Every choice that makes the problem what it is, with its meaning."""
    rows = [("model", what), ("loss of a sample", f"{formula}, with the predictor \u03b7 = a\u2032x + intercept")]
    if result.loss == "huber":
        rows.append(("delta", f"{number(model.huber_delta)}: larger residuals count linearly"))
    rows.append(("limit", f"kappa = {result.kappa[0]}: {limit}"))
    rows += words.settings(model.fit_intercept, model.standardize, gamma)
    if result.coef.shape[1] > 1:
        counted = {
            "element": "element: kappa counts coefficients",
            "feature": "feature: kappa counts features, which all outputs may use",
        }
        rows.append(("sparsity", counted[result.sparsity]))
    if classes:
        rows.append(("classes", joined(classes, 30)))
    weights = getattr(model, "class_weight", None)
    if weights is not None:
        rows.append(("weights of the classes", str(weights)))
    rows.append(("data", f"{plural(result.samples, 'sample')} by {plural(result.coef.shape[0], 'feature')}"))
    rows.append(("grid", f"{plural(result.nodes, 'node')} by {plural(result.blocks, 'block')} of features"))
    return rows


def _problems(result: Any, outputs: list[str]) -> list[tuple[str, str, str, str]]:
    """Objective, bound and gap of each output, where the outputs are problems of their own."""
    if len(result.objectives) == 1:
        return []
    gaps = (result.objectives - result.lower_bounds) / np.maximum(np.abs(result.objectives), np.finfo(float).tiny)
    proved = np.isfinite(result.lower_bounds)
    return [
        (name, number(objective, 8), number(bound, 8) if ok else "\u2013", share(gap) if ok else "\u2013")
        for name, objective, bound, gap, ok in zip(
            outputs, result.objectives, result.lower_bounds, gaps, proved, strict=True
        )
    ]


def _convergence(result: Any) -> dict[str, Any] | None:
    if len(result.history) < 2:
        return None
    last = result.history[-1]
    drawn = chart(
        "convergence",
        f"The residuals of {len(result.history)} iterations on a logarithmic scale; at the end the primal is "
        f"{last.primal:.1e}, the dual {last.dual:.1e} and the bilinear one {last.bilinear:.1e}",
        3.3,
        lambda axes: plot_convergence(result, axes),
    )
    return {"svg": drawn, "last": last}


def _selection_content(selection: Selection) -> dict[str, Any]:
    """The scores from which kappa was chosen."""
    better = "lower" if selection.smaller_is_better else "higher"
    drawn = chart(
        "choice",
        f"{selection.label} against kappa, {better} is better; kappa = {selection.kappa} was chosen",
        3.6,
        lambda axes: plot_selection(selection, axes),
    )
    head = [("kappa", ""), ("gamma", ""), (selection.label, f"{better} is better")]
    head += [] if selection.errors is None else [("standard error", "of the mean over the folds")]
    rows, chosen = [], 0
    for place, row in enumerate(selection.rows()):
        cells = [numeric(row["kappa"]), numeric(row["gamma"]), numeric(row["value"])]
        cells += [] if row["standard_error"] is None else [numeric(row["standard_error"], 2)]
        rows.append(cells)
        chosen = place if row["chosen"] else chosen
    why = f"kappa = {selection.kappa} and gamma = {number(selection.gamma)} were chosen by {selection.label} "
    why += f"({better} is better)."
    if (selection.best_kappa, selection.best_gamma) != (selection.kappa, selection.gamma):
        why += (
            f" The best score has kappa = {selection.best_kappa} and gamma = {number(selection.best_gamma)}; the "
            "choice is the simplest model within one standard error of it."
        )
    return {"svg": drawn, "table": Table(head, rows), "chosen": chosen, "why": why}


def _data_content(data: DataSummary) -> dict[str, Any]:
    """Samples, target and scores."""
    columns = data.columns
    targets = []
    for k, target in enumerate(data.targets):
        name = "the target" if len(data.targets) == 1 else f"target {k}"
        edges, counts = target.edges, target.counts
        drawn = None
        if k < MOST_CHARTS and target.spread > 0:
            drawn = chart(
                f"target{k}",
                f"Histogram of {name}: mean {number(target.mean)}, standard deviation {number(target.spread)}",
                2.4,
                partial(plot_target, edges, counts),
            )
        targets.append({"name": name, "mean": target.mean, "spread": target.spread, "svg": drawn})
    confusion = data.confusion if data.confusion is not None and len(data.confusion) <= MOST_CLASSES else None
    return {
        "samples": plural(columns.samples, "sample"),
        "features": plural(len(columns.means), "feature"),
        "constant": int(columns.constant.sum()),
        "targets": targets,
        "classes": [(label, f"{count:,}", share(count / columns.samples)) for label, count in data.classes],
        "scores": [(name, number(value, 4)) for name, value in (data.scores or {}).items()],
        "confusion": None if confusion is None else confusion.tolist(),
        "labels": [label for label, _ in data.classes],
    }


def _path_content(path: Path) -> dict[str, Any]:
    _, _, p, c = path.coefs.shape
    names = feature_names(path.feature_names, p)
    outputs = output_names(path, c)
    classes = [] if path.classes is None else [str(label) for label in path.classes]
    what, formula = words.LOSSES[path.loss]
    proof = words.path_certificate(path.gaps, path.kappas)
    gammas = joined([number(gamma) for gamma in path.gammas])
    limits = f"from {path.kappas[0]} to {path.kappas[-1]}" if len(path.kappas) > 1 else f"{path.kappas[0]}"
    known = path.settings
    problem = [("model", what), ("loss of a sample", f"{formula}, with the predictor \u03b7 = a\u2032x + intercept")]
    problem.append(("limits", f"kappa {limits}: the most nonzero coefficients"))
    settings = words.settings(known["fit_intercept"], known["standardize"], float(path.gammas[0]))
    problem += [
        (name, meaning.replace(number(path.gammas[0]), gammas, 1) if name == "gamma" else meaning)
        for name, meaning in settings
    ]
    problem.append(("data", f"{plural(path.samples, 'sample')} by {plural(p, 'feature')}"))
    return {
        "title": f"Path of sparse {what.split(' (')[0].removeprefix('a ')}",
        "kind": "sparse_path",
        "lead": f"{plural(path.samples, 'sample')}, {plural(p, 'feature')}, kappa {limits}, gamma = {gammas}.",
        "tiles": [
            ("limits", f"{len(path.kappas):,}", f"kappa {limits}"),
            ("gammas", f"{len(path.gammas):,}", gammas if len(path.gammas) <= 4 else "see below"),
            ("widest gap", "\u2013" if proof.kind == "none" else share(float(path.gaps.max())), proof.verdict),
            ("time", f"{number(path.seconds, 3)} s", "for all of them"),
        ],
        "summary": "The best model found for every limit on the nonzero coefficients; a larger limit never has a worse "
        "objective.",
        "problem": problem,
        "status": None,
        "coefficients": None,
        "coefficient_chart": None,
        "reading": None,
        "outputs": outputs,
        "classes": classes,
        "certificate": proof,
        "problems": [],
        "selection": None,
        "path": _curves(path, names, outputs),
        "convergence": None,
        "result": None,
        "recipe": path_recipe(path),
        "surroundings": path.surroundings,
    }


def _curves(path: Path, names: list[str], outputs: list[str]) -> dict[str, Any]:
    """The charts of a path, and its table with what enters and leaves the support from limit to limit."""
    places = [(gamma, output) for gamma in path.gammas.tolist() for output in range(len(outputs))]
    coefs = []
    for place, (gamma, output) in enumerate(places[:MOST_CHARTS]):
        of = [f"gamma = {number(gamma)}"] if len(path.gammas) > 1 else []
        of += [outputs[output]] if len(outputs) > 1 else []
        caption = "Coefficients against kappa" + (f" ({', '.join(of)})" if of else "")
        drawn = chart(
            f"path{place}",
            f"{caption}; the table has the features",
            3.6,
            partial(plot_path, path, gamma, output),
        )
        coefs.append({"svg": drawn, "caption": caption})
    objectives = chart(
        "objectives", "The objective against kappa, with its lower bound", 3.2, lambda axes: plot_objectives(path, axes)
    )
    gaps = None
    if np.isfinite(path.gaps).all():
        gaps = chart("gaps", "The gap against kappa, logarithmic", 3.0, lambda axes: plot_gaps(path, axes))
    return {
        "coefs": coefs,
        "left_out": len(places) - len(coefs),
        "objectives": objectives,
        "gaps": gaps,
        "table": _path_table(path, names),
    }


def _path_table(path: Path, names: list[str]) -> Table:
    head = [("kappa", ""), ("gamma", ""), ("objective", ""), ("lower bound", "proved"), ("gap", "in percent")]
    head.append(("features", "that enter (+) and leave (\u2212) the support"))
    rows = []
    for g, gamma in enumerate(path.gammas.tolist()):
        before: set[int] = set()
        for k, kappa in enumerate(path.kappas.tolist()):
            now = set(np.flatnonzero((path.coefs[g, k] != 0).any(axis=1)).tolist())
            moves = [f"+{names[j]}" for j in sorted(now - before)] + [f"\u2212{names[j]}" for j in sorted(before - now)]
            bound, gap = path.lower_bounds[g, k], path.gaps[g, k]
            proved = bool(np.isfinite(bound))
            rows.append(
                [
                    numeric(kappa),
                    numeric(gamma),
                    numeric(path.objectives[g, k], 8),
                    numeric(bound, 8) if proved else Cell("\u2013", float("-inf")),
                    Cell(share(gap), float(gap)) if proved else Cell("\u2013", float("inf")),
                    Cell(joined(moves, 12).replace(" and ", ", ") if moves else "", len(now)),
                ]
            )
            before = now
    return Table(head, rows)
