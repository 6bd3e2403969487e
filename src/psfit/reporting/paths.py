"""What the page shows of a path: its curves, its table and its proof."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from psfit.data import SampleSource
from psfit.data.summary import ColumnSummary
from psfit.estimators.results import SparsePath
from psfit.reporting import explanations
from psfit.reporting.charts import svg_chart
from psfit.reporting.coefficients import Cell, Table, number_cell
from psfit.reporting.formats import join_names, number, percent, plural
from psfit.reporting.names import class_names, feature_names, output_names
from psfit.reporting.plots import plot_gaps, plot_objectives, plot_path
from psfit.reporting.recipe import path_recipe

# One chart for each output and gamma, but not more than this.
MOST_CHARTS = 6


def path_content(path: SparsePath, columns: ColumnSummary | None, source: SampleSource | None = None) -> dict[str, Any]:
    """All that the template needs about a path; with effects if the columns are known."""
    _, _, p, c = path.coefs.shape
    names = feature_names(path.feature_names, p)
    outputs = output_names(path, c)
    classes = class_names([] if path.classes is None else path.classes)
    what, formula = explanations.loss_in_words(path.loss)
    proof = explanations.explain_path_proof(path.gaps, path.kappas)
    gammas = join_names([number(gamma) for gamma in path.gammas])
    limits = f"from {path.kappas[0]} to {path.kappas[-1]}" if len(path.kappas) > 1 else f"{path.kappas[0]}"
    known = path.settings
    predictor = explanations.predictor_in_words(path.learned.offset)
    problem = [("model", what), ("loss of a sample", f"{formula}, with {predictor}")]
    problem.append(("limits", f"kappa {limits}: the most {path.counted or 'nonzero coefficients'}"))
    problem += [("subject to", text) for text in path.constraints]
    settings = explanations.explain_settings(known["fit_intercept"], known["standardize"], float(path.gammas[0]))
    problem += [
        (name, meaning.replace(number(path.gammas[0]), gammas, 1) if name == "gamma" else meaning)
        for name, meaning in settings
    ]
    data = ("data", f"{plural(path.samples, 'sample')} by {plural(p, 'feature')}")
    problem += [*explanations.explain_weights(path.learned.weight), data]
    return {
        "title": f"Path of sparse {what.split(' (')[0].removeprefix('a ')}",
        "kind": "sparse_path",
        "lead": f"{plural(path.samples, 'sample')}, {plural(p, 'feature')}, kappa {limits}, gamma = {gammas}.",
        "tiles": [
            ("limits", f"{len(path.kappas):,}", f"kappa {limits}"),
            ("gammas", f"{len(path.gammas):,}", gammas if len(path.gammas) <= 4 else "see below"),
            ("widest gap", "\u2013" if proof.kind == "none" else percent(float(path.gaps.max())), proof.verdict),
            ("time", f"{number(path.seconds, 3)} s", "for all of them"),
        ],
        "summary": "The best model found for every limit on the nonzero coefficients; a larger limit never has a worse "
        "objective.",
        "problem": problem,
        "status": None if path.ended is None else path.ended.value,
        "cut_short": path.ended is not None,
        "coefficients": None,
        "coefficient_chart": None,
        **dict.fromkeys(("reading", "spreads_of")),
        "dates": [],
        "outputs": outputs,
        "classes": classes,
        "certificate": proof,
        "problems": [],
        "selection": None,
        "path": _curves(path, names, outputs, columns),
        "convergence": None,
        "result": None,
        "recipe": path_recipe(path, source),
        "surroundings": path.learned.surroundings,
    }


def _curves(path: SparsePath, names: list[str], outputs: list[str], columns: ColumnSummary | None) -> dict[str, Any]:
    """The charts of a path, and its table with the features that enter and leave from limit to limit."""
    measure, drawn_path = "coefficient", path
    if columns is not None:
        # Coefficients of features in different units cannot share an axis; effects can.
        measure, drawn_path = "effect", replace(path, coefs=path.coefs * columns.spreads[:, None])
    places = [(gamma, output) for gamma in path.gammas.tolist() for output in range(len(outputs))]
    coefs = []
    for place, (gamma, output) in enumerate(places[:MOST_CHARTS]):
        of = [f"gamma = {number(gamma)}"] if len(path.gammas) > 1 else []
        of += [outputs[output]] if len(outputs) > 1 else []
        caption = f"{measure.capitalize()}s against kappa" + (f" ({', '.join(of)})" if of else "")
        drawn = svg_chart(
            f"path{place}",
            f"{caption}; the table has the features",
            3.6,
            partial(plot_path, drawn_path, gamma, output, label=measure),
        )
        coefs.append({"svg": drawn, "caption": caption})
    objectives = svg_chart(
        "objectives", "The objective against kappa, with its lower bound", 3.2, lambda axes: plot_objectives(path, axes)
    )
    gaps = None
    if np.isfinite(path.gaps).all():
        gaps = svg_chart("gaps", "The gap against kappa, logarithmic", 3.0, lambda axes: plot_gaps(path, axes))
    return {
        "coefs": coefs,
        "measure": measure,
        "left_out": len(places) - len(coefs),
        "objectives": objectives,
        "gaps": gaps,
        "table": _path_table(path, names),
    }


def _path_table(path: SparsePath, names: list[str]) -> Table:
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
                    number_cell(kappa),
                    number_cell(gamma),
                    number_cell(path.objectives[g, k], 8),
                    number_cell(bound, 8) if proved else Cell("\u2013", float("-inf")),
                    Cell(percent(gap), float(gap)) if proved else Cell("\u2013", float("inf")),
                    Cell(join_names(moves, 12, ", ") if moves else "", len(now)),
                ]
            )
            before = now
    return Table(head, rows, ("lower bound",))
