"""The page: collects all that is written about a model or a path, and fills the template."""

from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from psfit.common.names import quote_name
from psfit.common.status import STOP_REASONS
from psfit.data import SampleSource
from psfit.estimators.model import SparseModel
from psfit.estimators.results import NearOptimal, Selection, SparsePath
from psfit.estimators.selecting import SelectingModel
from psfit.estimators.statements import explain_dates, group_names
from psfit.reporting import explanations
from psfit.reporting.charts import svg_chart
from psfit.reporting.coefficients import FIT, Coefficients, Spreads, Table, number_cell
from psfit.reporting.formats import join_names, number, percent, plural
from psfit.reporting.names import class_names, feature_names, output_names
from psfit.reporting.near_optimal import near_optimal_content
from psfit.reporting.paths import path_content
from psfit.reporting.performance_charts import performance_content
from psfit.reporting.plots import plot_convergence, plot_selection, plot_target
from psfit.reporting.recipe import model_recipe
from psfit.reporting.samples import DataSummary

if TYPE_CHECKING:
    from jinja2 import Environment

# Targets after these are listed without a chart.
MOST_CHARTS = 6
# Where the axis of residuals ends.
ROUNDING = 1e-10
# A table of classes against classes is not shown if it is larger than this.
MOST_CLASSES = 20


def render_page(
    subject: SparseModel | SparsePath,
    data: DataSummary | None = None,
    command: str | None = None,
    close: NearOptimal | None = None,
    source: SampleSource | None = None,
) -> str:
    """The HTML of a report; `command` and `source` are the command line and the samples that made the subject, and
    `close` lists models as good.
    """
    if isinstance(subject, SparsePath):
        content = path_content(subject, None if data is None else data.columns, source)
    elif isinstance(subject, SparseModel):
        content = _model_content(subject, data, source)
    else:
        raise TypeError(
            f"model is a {type(subject).__name__}, but must be a fitted PsFiT model or a SparsePath; print a Result "
            "instead"
        )
    learned = subject.learned if isinstance(subject, SparsePath) else subject.learned_
    target = learned.target_name
    shared = {
        "target": target,
        "fitted": (learned.surroundings or {}).get("date"),
        "today": datetime.now(UTC).strftime("%Y-%m-%d"),
        "data": None if data is None else _data_content(data, target or "target", learned),
        "command": command,
        "close": None if close is None else near_optimal_content(close),
    }
    return _templates().get_template("page.html").render(**content, **shared)


@cache
def _templates() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=PackageLoader("psfit.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"number": number}
    return found


def _find_spreads(result: Any, data: DataSummary | None) -> Spreads | None:
    """The spreads of the features in the samples of the fit if they are known, else in other samples.

    Those of the fit count sample weights, the means of the data do not.
    """
    if result.spreads is not None:
        values = np.zeros(result.coef.shape[0])
        values[result.support] = result.spreads
        same = data is not None and data.of_fit and not data.weight
        return Spreads(values, data.columns.means if data is not None and same else None, FIT)
    return None if data is None else Spreads.of(data.columns, data.of_fit)


def _model_content(model: Any, data: DataSummary | None, source: SampleSource | None) -> dict[str, Any]:
    if not hasattr(model, "result_"):
        raise ValueError(f"this {type(model).__name__} is not fitted yet; call fit first")
    result = model.result_
    p, c = result.coef.shape
    names = feature_names(getattr(model, "feature_names_in_", None), p)
    outputs = output_names(model, c)
    classes = class_names(getattr(model, "classes_", []))
    spreads = _find_spreads(result, data)
    coefficients = Coefficients(
        result.coef, result.intercept, names, outputs, explanations.ratio_name(result.loss, c), spreads
    )
    what, formula = explanations.loss_in_words(result.loss)
    used = [names[j] for j in result.support]
    proof = explanations.explain_proof(result)
    gap = "\u2013" if proof.kind == "none" else percent(result.gap)
    joint = len(result.kappa) == 1 and c > 1
    limit = explanations.kappa_in_words(result.kappa, result.sparsity, c, joint, bool(classes), result.counted)
    return {
        "title": f"Sparse {what.split(' (')[0].removeprefix('a ')}",
        "kind": type(model).__name__,
        "lead": f"{plural(result.samples, 'sample')}, {plural(p, 'feature')}, {limit}.",
        "tiles": [
            ("features used", f"{len(used):,}", f"of {p:,}"),
            ("objective", _short(result.objective), "losses and ridge"),
            ("gap", gap, "at most, proved" if proof.kind == "fair" else proof.verdict),
            ("status", result.status.name.replace("_", " ").lower(), plural(result.n_iter, "iteration")),
        ],
        "summary": _summary(used, group_names(model), classes, model),
        "problem": _problem(what, formula, result, model, limit, classes),
        "status": result.status.value,
        "cut_short": result.status in STOP_REASONS,
        "coefficients": coefficients.table(),
        "coefficient_chart": coefficients.chart(),
        "reading": explanations.coefficient_meaning(result.loss, outputs, classes, spreads is not None),
        "spreads_of": None if spreads is None else spreads.place,
        "dates": explain_dates(model),
        "outputs": outputs,
        "classes": classes,
        "certificate": proof,
        "problems": _problems(result, outputs),
        "selection": _selection_content(model.selection_, result.counted)
        if isinstance(model, SelectingModel)
        else None,
        "path": None,
        "convergence": _convergence(result),
        "result": result,
        "recipe": model_recipe(model, source),
        "surroundings": model.learned_.surroundings,
    }


def _summary(used: list[str], groups: list[str], classes: list[str], model: Any) -> str:
    if groups:
        used = list(dict.fromkeys(groups[j] for j in model.result_.support))
    if not used:
        return "The model uses no feature: its prediction is the intercept."
    chosen = " The limit was chosen among several, see below." if isinstance(model, SelectingModel) else ""
    of = f" It tells {join_names(classes)} apart." if classes else ""
    return f"The model uses {join_names([quote_name(name) for name in used])}.{of}{chosen}"


def _problem(what: str, formula: str, result: Any, model: Any, limit: str, classes: list[str]) -> list[tuple[str, str]]:
    """Every setting that defines the problem, with its meaning."""
    predictor = explanations.predictor_in_words(model.learned_.offset)
    rows = [("model", what), ("loss of a sample", f"{formula}, with {predictor}")]
    rows += explanations.explain_parameters(result.loss, model.get_params(deep=False))
    rows.append(("limit", f"kappa = {result.kappa[0]}: {limit}"))
    rows += [("subject to", text) for text in result.constraints]
    rows += explanations.explain_settings(model.fit_intercept, result.standardize, result.gamma)
    # Groups change what kappa counts; the limit says it.
    if result.coef.shape[1] > 1 and not result.counted:
        counted = {
            "element": "element: kappa counts coefficients",
            "feature": "feature: kappa counts features, which all outputs may use",
        }
        rows.append(("sparsity", counted[result.sparsity]))
    if classes:
        rows.append(("classes", join_names(classes, 30)))
    weights = getattr(model, "class_weight", None)
    if weights is not None:
        rows.append(("weights of the classes", str(weights)))
    rows += explanations.explain_weights(model.learned_.weight)
    rows.append(("data", f"{plural(result.samples, 'sample')} by {plural(result.coef.shape[0], 'feature')}"))
    rows.append(("grid", f"{plural(result.nodes, 'node')} by {plural(result.blocks, 'block')} of features"))
    return rows


def _problems(result: Any, outputs: list[str]) -> list[tuple[str, str, str, str]]:
    """Objective, bound and gap of each output, if each output is a separate problem."""
    if len(result.objectives) == 1:
        return []
    gaps = (result.objectives - result.lower_bounds) / np.maximum(np.abs(result.objectives), np.finfo(float).tiny)
    proved = np.isfinite(result.lower_bounds)
    return [
        (
            name,
            number(objective, 8),
            number(bound, 8) if ok else "\u2013",
            percent(gap) if ok else "\u2013",
        )
        for name, objective, bound, gap, ok in zip(
            outputs, result.objectives, result.lower_bounds, gaps, proved, strict=True
        )
    ]


def _convergence(result: Any) -> dict[str, Any] | None:
    if len(result.history) < 2:
        return None
    last = result.history[-1]
    drawn = svg_chart(
        "convergence",
        f"The residuals of {len(result.history)} iterations on a logarithmic scale; at the end the primal is "
        f"{last.primal:.1e}, the dual {last.dual:.1e} and the bilinear one {last.bilinear:.1e}",
        3.3,
        partial(_plot_residuals, result),
    )
    return {"svg": drawn, "last": last}


def _plot_residuals(result: Any, axes: Any) -> Any:
    """The residuals; smaller values than the end of the axis are only rounding."""
    axes = plot_convergence(result, axes)
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, min(ROUNDING, high / 10)), high)
    return axes


def _selection_content(selection: Selection, counted: str) -> dict[str, Any]:
    """The scores from which kappa was chosen, and what it counts."""
    better = "lower" if selection.smaller_is_better else "higher"
    drawn = svg_chart(
        "choice",
        f"{selection.label} against kappa, {better} is better; kappa = {selection.kappa} was chosen",
        3.6,
        lambda axes: plot_selection(selection, axes, counted=counted),
    )
    head = [("kappa", ""), ("gamma", ""), (selection.label, f"{better} is better")]
    head += [] if selection.errors is None else [("standard error", "of the mean over the folds")]
    known = selection.losses is not None and selection.rows()[0]["explained"] is not None
    head += [(str(selection.losses[0]), "the share that is explained")] if known and selection.losses else []
    rows, chosen = [], 0
    for place, row in enumerate(selection.rows()):
        cells = [number_cell(row["kappa"]), number_cell(row["gamma"]), number_cell(row["value"])]
        cells += [] if row["standard_error"] is None else [number_cell(row["standard_error"], 2)]
        cells += [] if row["explained"] is None else [number_cell(row["explained"], 3)]
        rows.append(cells)
        chosen = place if row["chosen"] else chosen
    why = f"kappa = {selection.kappa} and gamma = {number(selection.gamma)} were chosen by {selection.label} "
    why += f"({better} is better)."
    why += f" {selection.reason}" if selection.reason else ""
    return {"svg": drawn, "table": Table(head, rows), "chosen": chosen, "why": why}


def _short(value: float) -> str:
    """A number that fits into a tile on a narrow screen: with an exponent it has fewer digits."""
    text = number(value)
    return number(value, 4) if "e" in text else text


def _data_content(data: DataSummary, known: str, learned: Any) -> dict[str, Any]:
    """Samples, target and scores; `known` is the name of the target."""
    columns = data.columns
    targets = []
    for k, target in enumerate(data.targets):
        name = f"{known} {k}" if len(data.targets) > 1 else f"the {known}" if known == "target" else known
        edges, counts = target.edges, target.counts
        drawn = None
        if k < MOST_CHARTS and target.spread > 0:
            drawn = svg_chart(
                f"target{k}",
                f"Histogram of {name}: mean {number(target.mean)}, standard deviation {number(target.spread)}",
                2.4,
                partial(plot_target, edges, counts),
            )
        targets.append({"name": name, "mean": target.mean, "spread": target.spread, "svg": drawn})
    scores = dict(data.scores or {})
    if len(data.rankings) == 1:
        scores |= {"ROC AUC": data.rankings[0].area, "average precision": data.rankings[0].average_precision}
    shares = [f"{100 * count / columns.samples:.1f}\u00a0%" for _, count in data.classes]
    confusion = data.confusion if data.confusion is not None and len(data.confusion) <= MOST_CLASSES else None
    return {
        "samples": plural(columns.samples, "sample"),
        "features": plural(len(columns.means), "feature"),
        "constant": int(columns.constant.sum()),
        "targets": targets,
        "classes": [(label, f"{count:,}", part) for (label, count), part in zip(data.classes, shares, strict=True)],
        "scores": [(name, number(value, 4)) for name, value in scores.items()],
        "of_fit": data.of_fit,
        "weight": data.weight,
        "offset": bool(learned.offset) and "D\u00b2" in scores,
        "changes": data.changes.sentences(learned.features.schema) if learned.features.schema is not None else [],
        "charts": performance_content(data, known),
        "confusion": None if confusion is None else confusion.tolist(),
        "labels": [label for label, _ in data.classes],
    }
