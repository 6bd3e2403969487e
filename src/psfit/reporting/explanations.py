"""The problem, the proof and the coefficients explained in sentences."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from psfit.estimators.registry import LOSSES
from psfit.estimators.targets import Numbers
from psfit.pipeline.result import Result
from psfit.reporting.formats import number, percent, plural

# Up to the first gap a better model is not worth a search; from the second one on the bound says little.
TIGHT, WIDE = 1e-4, 0.05


def loss_in_words(loss: str) -> tuple[str, str]:
    """What is fitted, and the loss of one sample; a loss without a text of its own is described by its name."""
    name = f"{loss.replace('_', ' ')} loss"
    known = LOSSES[loss].loss
    return known.fits or f"a model with the {name}", known.formula or f"the {name} of \u03b7 and y"


def predictor_in_words(offset: bool | str) -> str:
    """The linear predictor of a sample."""
    column = f" (column {offset})" if isinstance(offset, str) else ""
    return "the predictor \u03b7 = a\u2032x + intercept" + (f" + offset{column}" if offset else "")


def explain_weights(weight: bool | str) -> list[tuple[str, str]]:
    """Where the weights of the samples come from, if the fit had some."""
    place = f"those of the column {weight}" if isinstance(weight, str) else "given"
    return [("weights of the samples", f"{place}; they multiply the losses")] if weight else []


def explain_parameters(loss: str, parameters: dict[str, Any]) -> list[tuple[str, str]]:
    """The fields of the loss that the estimator sets, each with its meaning."""
    entry = LOSSES[loss]
    found = []
    for name, source in entry.parameters.items():
        value, meaning = number(float(parameters[source])), entry.loss.meanings.get(name)
        found.append((name, value if meaning is None else f"{value}: {meaning}"))
    return found


@dataclass(frozen=True)
class ProofText:
    """What is proved: a verdict of a few words, its kind (``good``, ``fair``, ``open`` or ``none``), what it means
    and what the user can do.
    """

    verdict: str
    kind: str
    meaning: list[str]
    advice: list[str]


def kappa_in_words(
    kappa: tuple[int, ...], sparsity: str, outputs: int, joint: bool, classes: bool, counted: str = ""
) -> str:
    """What the limit counts; `counted` says it where constraints change that."""
    if counted:
        each = f" for each {'class against the rest' if classes else 'target'}" if len(kappa) > 1 else ""
        return f"at most {kappa[0]} {counted}{each}"
    limit = plural(kappa[0], "coefficient" if sparsity == "element" or outputs == 1 else "feature")
    if sparsity == "feature" and outputs > 1:
        return f"at most {limit}, which all {'classes' if classes else 'targets'} may use"
    if joint:
        return f"at most {limit.replace(' coefficient', ' nonzero coefficient')} over all classes together"
    each = f" for each {'class against the rest' if classes else 'target'}" if len(kappa) > 1 else ""
    return f"at most {limit.replace(' coefficient', ' nonzero coefficient')}{each}"


def explain_settings(fit_intercept: bool, standardize: bool, gamma: float) -> list[tuple[str, str]]:
    """Ridge, intercept and scaling, each with its meaning."""
    return [
        (
            "gamma",
            f"{number(gamma)}: the ridge \u2016x\u2016\u00b2 / (2 gamma) is added to the losses, which are summed over "
            "samples; a large gamma means a small ridge",
        ),
        ("intercept", "fitted; it pays no ridge and does not count" if fit_intercept else "none"),
        (
            "scaling",
            "the ridge applies to columns divided by their standard deviations; coefficients have the units of the data"
            if standardize
            else "none: columns are in the units of the data",
        ),
    ]


def explain_proof(result: Result) -> ProofText:
    """What objective, bound and gap of a fit mean."""
    if not np.isfinite(result.lower_bound):
        return ProofText(
            "no proof was asked for",
            "none",
            ["This model is the best that the search has found. No bound was computed, so a better one may exist."],
            ["Fit with certify=True (the default; --certify on the command line) to get a lower bound."],
        )
    meaning = [
        f"The objective of this model, its losses and its ridge together, is {number(result.objective, 8)}. It is "
        f"proved that no model within the limit has an objective below {number(result.lower_bound, 8)}, whatever "
        "features it uses. Rounding errors are taken into account.",
        _gap_in_words(result),
        *_supports_in_words(result),
    ]
    if result.tree_nodes:
        meaning.append(f"The proof took a search over {plural(result.tree_nodes, 'tree node')}.")
    unique = len(result.kappa) == 1 and result.certain_in >= result.kappa[0]
    if result.gap <= TIGHT:
        return ProofText("proved: the best support" if unique else "proved: as good as the best", "good", meaning, [])
    if unique:
        return ProofText("proved: the best support", "good", meaning, [])
    if result.gap <= WIDE:
        return ProofText(f"proved within {percent(result.gap)}", "fair", meaning, _advice(result)[:2])
    return ProofText("open: the bound is wide", "open", meaning, _advice(result))


def _gap_in_words(result: Result) -> str:
    if result.gap == 0:
        return "Both numbers are the same: no model within the limit is better."
    text = (
        f"The gap between them is {percent(result.gap)} of the objective: a better model, if there is one, is "
        "better by no more than that."
    )
    if result.gap > 1 and result.objective > 0:
        text += " A gap above 100 % means that the bound is below zero and is of no use."
    if result.gap > WIDE:
        text += " This does not mean that the model is bad: the proof is only not complete."
    return text


def _supports_in_words(result: Result) -> list[str]:
    """What is known about single features or groups."""
    if len(result.kappa) == 1 and result.certain_in >= result.kappa[0]:
        return [
            f"Every support that could be better has all {result.item}s of this one. So no other support is better."
        ]
    if not result.certain_in and not result.certain_out:
        return []
    known = []
    if result.certain_in:
        kept = plural(result.certain_in, result.item)
        known.append(f"every support that could be better has {kept} of this model")
    if result.certain_out:
        left = plural(result.certain_out, f"other {result.item}")
        known.append(f"no support that could be better has any of {left}")
    return [f"It is proved that {', and '.join(known)}. The others are undecided."]


def _advice(result: Result) -> list[str]:
    """What can make a wide gap smaller, the most useful first."""
    found = [
        "BiCADMM(exact=True, time_limit=...) (--exact --time-limit) continues until the gap is closed or the time is "
        "over. It often succeeds with up to some hundred features.",
        "A smaller gamma always tightens the bound, and shrinks the coefficients more. If the support at gamma / 10 is "
        "the same, that fit proves it for the smaller gamma.",
    ]
    loss = LOSSES[result.loss].loss
    if loss.curvature_vanishes:
        found.append(
            f"The curvature of the {result.loss.replace('_', ' ')} loss can be close to zero, so the bound depends on "
            "the ridge alone: gaps of tens of percent are normal for gamma = 1 and more."
        )
    elif loss.quadratic and result.samples < 10 * result.coef.shape[0]:
        found.append("There are few samples for each feature: more samples tighten the bound.")
    found.append(
        "If many supports are almost equally good, the gap cannot be small; stability_selection shows which features "
        "are chosen in most resamples."
    )
    return found


def explain_path_proof(gaps: np.ndarray, kappas: np.ndarray) -> ProofText:
    """What is proved along a path, over all gammas ``(G, K)``."""
    if not np.isfinite(gaps).all():
        return ProofText(
            "no proof was asked for",
            "none",
            ["No lower bounds were computed."],
            ["Use certify=True (the default; --certify on the command line) to get them."],
        )
    tight = int((gaps <= TIGHT).sum())
    meaning = [
        "For every limit it is proved that no model within it has an objective below the bound. The gap is the "
        "distance from the objective to the bound as a share of the objective: a better model, if there is one, is "
        "better by no more than that.",
        f"The gaps go from {percent(float(gaps.min()))} to {percent(float(gaps.max()))}; {tight} of {gaps.size} are "
        f"at most {percent(TIGHT)}.",
    ]
    if gaps.max() <= TIGHT:
        return ProofText("proved: all are as good as the best", "good", meaning, [])
    if gaps.max() <= WIDE:
        return ProofText(f"proved within {percent(float(gaps.max()))}", "fair", meaning, [])
    worst = kappas[int(np.argmax(gaps.max(axis=0)))]
    return ProofText(
        "open for some limits",
        "open",
        meaning,
        [
            f"The widest gap is at kappa = {worst}. Fit that limit alone with BiCADMM(exact=True) to continue the "
            "proof, or use a smaller gamma, which tightens the bound and shrinks the coefficients."
        ],
    )


def coefficient_meaning(loss: str, outputs: list[str], classes: list[str], spreads: bool) -> str:
    """What one coefficient means; if the columns' spreads are known, ratios are for one standard deviation."""
    step = "One standard deviation" if spreads else "One unit"
    ratio = ratio_name(loss, len(outputs))
    if ratio is not None and classes:
        return (
            f"{step} more of a feature multiplies the odds of {outputs[0]} against {classes[0]} by the {ratio}, "
            "the others held fixed."
        )
    if ratio is not None:
        return f"{step} more of a feature multiplies the expected count by the {ratio}, the others held fixed."
    if classes and len(outputs) == 1:
        return f"Positive coefficients favour {outputs[0]}, negative ones {classes[0]}."
    if classes:
        return "A positive coefficient favours the class of its column, a negative one the other classes."
    what = "prediction" if issubclass(LOSSES[loss].target, Numbers) else "predictor \u03b7"
    return f"One unit more of a feature changes the {what} by its coefficient, the others held fixed."


def ratio_name(loss: str, outputs: int) -> str | None:
    """The name of the exponential of a coefficient; None if it has no meaning."""
    return LOSSES[loss].target.ratio if outputs == 1 else None
