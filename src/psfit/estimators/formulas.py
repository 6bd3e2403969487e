"""A fitted model as an SQL expression or as a Python function of the columns of a table, for places without PsFiT."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sklearn.utils.validation import check_is_fitted

from psfit.data.schema import Column, Feature
from psfit.data.table_rules import split_offset
from psfit.estimators.targets import Labels
from psfit.estimators.targets.counts import Counts

if TYPE_CHECKING:
    from psfit.estimators.model import SparseModel


@dataclass(frozen=True)
class Term:
    """A nonzero coefficient, its feature, how the column of the feature is read, and the value where it is missing."""

    coefficient: float
    feature: Feature
    column: Column
    fill: float | None


@dataclass(frozen=True)
class Output:
    """One output of a model: its name, its intercept and its terms."""

    name: str
    intercept: float
    terms: tuple[Term, ...]


def list_outputs(model: "SparseModel") -> list[Output]:
    """The outputs of a fitted model, as sums over the columns of its table."""
    check_is_fitted(model)
    features, result, target = model.learned_.features, model.result_, model.learned_.target
    schema = features.schema
    names = [f"x{j}" for j in range(features.count)] if features.names is None else list(map(str, features.names))
    if schema is not None and schema.columns:
        made = {feature.name: feature for feature in schema.features()}
        columns = {column.name: column for column in schema.columns}
        fills = [value if value == value else None for value in schema.fills(names)]
    else:
        made = {name: Feature(name, name) for name in names}
        columns, fills = {name: Column(name, "number") for name in names}, [None] * len(names)
    fixed = _offset_terms(model.learned_.offset)
    labels = [str(label) for label in target.classes] if isinstance(target, Labels) else []
    own = _target_name(model)
    count = result.coef.shape[1]
    titles = (
        labels
        if len(labels) == count
        else labels[1:] or ([own] if count == 1 else [f"{own}_{k}" for k in range(count)])
    )
    return [
        Output(
            titles[k],
            float(result.intercept[k]),
            tuple(
                Term(float(result.coef[j, k]), made[names[j]], columns[made[names[j]].column], fills[j])
                for j in result.support.tolist()
                if result.coef[j, k]
            )
            + fixed,
        )
        for k in range(count)
    ]


def _offset_terms(offset: bool | str) -> tuple[Term, ...]:
    """The offset as a term with the coefficient one: a column of the table of the fit, or its logarithm."""
    if offset is True:
        raise ValueError(
            "the model was fitted with an offset that has no column; fit it with one (FileSource, offset=...), or use "
            "coef_ and intercept_"
        )
    if not offset:
        return ()
    column, is_logarithm = split_offset(offset)
    feature = Feature(offset, column, "logarithm" if is_logarithm else None)
    return (Term(1.0, feature, Column(column, "number"), None),)


def _target_name(model: "SparseModel") -> str:
    name = model.learned_.target_name
    return "prediction" if name is None else name


def write_sql(model: "SparseModel") -> str:
    """The predictions as SQL expressions, one a line and output; for two classes the probability of the second.

    Dates use ``EXTRACT``, as PostgreSQL and DuckDB know it. For an SVM or several classes, the values are decision
    values: the largest wins.
    """
    target = model.learned_.target
    lines = []
    for output in list_outputs(model):
        total = "\n  ".join([_sql_number(output.intercept), *(f"+ {_sql_term(term)}" for term in output.terms)])
        if isinstance(target, Counts):
            total = f"EXP({total})"
        elif hasattr(target, "probabilities") and model.result_.coef.shape[1] == 1:
            total = f"1.0 / (1.0 + EXP(-({total})))"
        lines.append(f'{total}\n  AS "{output.name.replace(chr(34), chr(34) * 2)}"')
    return ",\n".join(lines) + "\n"


def _sql_number(value: float) -> str:
    text = repr(float(value))
    return text if value >= 0 else f"({text})"


def _sql_term(term: Term) -> str:
    column = '"' + term.feature.column.replace('"', '""') + '"'
    value = _sql_value(term, column)
    if term.fill is not None and term.feature.part != "missing":
        value = f"CASE WHEN {column} IS NULL THEN {_sql_number(term.fill)} ELSE {value} END"
    return f"{_sql_number(term.coefficient)} * {value}"


def _sql_value(term: Term, column: str) -> str:
    feature, kind = term.feature, term.column.kind
    if feature.part == "missing":
        return f"CASE WHEN {column} IS NULL THEN 1.0 ELSE 0.0 END"
    if feature.part == "logarithm":
        return f"LN({column})"
    parts = {"year": "YEAR", "month": "MONTH", "weekday": "ISODOW"}
    if kind == "date" and feature.level is not None:
        return f"CASE WHEN EXTRACT({parts[str(feature.part)]} FROM {column}) = {feature.level} THEN 1.0 ELSE 0.0 END"
    if kind == "date":
        whole = f"EXTRACT(EPOCH FROM {column}) / 86400.0"
        return f"({whole})" if feature.part == "trend" else f"EXTRACT(YEAR FROM {column})"
    if kind == "category":
        level = "'" + str(feature.level).replace("'", "''") + "'"
        return f"CASE WHEN {column} = {level} THEN 1.0 ELSE 0.0 END"
    return f"CASE WHEN {column} THEN 1.0 ELSE 0.0 END" if kind == "boolean" else column


PYTHON_HEAD = '''"""Predictions of {target!r} by a sparse {loss} model; it needs only Python itself."""

import math
from datetime import datetime, timezone


def _is_missing(value):
    return value is None or value != value


def _number(row, column, fill):
    value = row[column]
    if not _is_missing(value):
        return float(value)
    if fill is None:
        raise ValueError(f"column {{column!r}} has no value")
    return fill


def _level(row, column, level, fill, levels):
    value = row[column]
    if _is_missing(value):
        if fill is None:
            raise ValueError(f"column {{column!r}} has no value")
        return fill
    if levels is not None and value not in levels:
        raise ValueError(f"column {{column!r}} holds {{value!r}}, which the fit did not see")
    return float(value == level)


def _read_date(text):
    for form in ("%d.%m.%Y", "%Y/%m/%d"):
        try:
            return datetime.strptime(text, form)
        except ValueError:
            pass
    return datetime.fromisoformat(text)


def _date(row, column, part, level, fill):
    value = row[column]
    if _is_missing(value):
        if fill is None:
            raise ValueError(f"column {{column!r}} has no value")
        return fill
    if isinstance(value, str):
        value = _read_date(value)
    elif not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if value.tzinfo is not None:
        value = value.astimezone(timezone.utc).replace(tzinfo=None)
    if part == "trend":
        return (value - datetime(1970, 1, 1)).total_seconds() / 86400
    found = {{"year": value.year, "month": value.month, "weekday": value.isoweekday()}}[part]
    return float(found) if level is None else float(found == level)


'''


def write_python(model: "SparseModel") -> str:
    """A module with a function ``predict(row)`` of a mapping from columns to values."""
    outputs, target = list_outputs(model), model.learned_.target
    head = PYTHON_HEAD.format(target=_target_name(model), loss=model.result_.loss)
    lines = [
        "def predict(row):",
        '    """The prediction for one row: a mapping from the names of columns to values."""',
    ]
    for k, output in enumerate(outputs):
        lines.append(f"    value_{k} = {output.intercept!r}")
        lines += [f"    value_{k} += {term.coefficient!r} * {_python_value(term)}" for term in output.terms]
    lines += [f"    {line}" for line in _python_result(target, len(outputs))]
    return head + "\n".join(lines) + "\n"


def _python_value(term: Term) -> str:
    feature, column, fill = term.feature, term.column, term.fill
    name = feature.column
    if feature.part == "missing":
        return f"float(_is_missing(row[{name!r}]))"
    if column.kind == "category":
        levels = set(column.levels) if column.new_levels == "refuse" else None
        shown = "None" if levels is None else repr(tuple(sorted(levels)))
        return f"_level(row, {name!r}, {feature.level!r}, {fill!r}, {shown})"
    if column.kind == "date":
        level = None if feature.level is None else int(feature.level)
        return f"_date(row, {name!r}, {feature.part!r}, {level!r}, {fill!r})"
    value = f"_number(row, {name!r}, {fill!r})"
    return f"math.log({value})" if feature.part == "logarithm" else value


def _python_result(target: Any, count: int) -> Iterator[str]:
    if isinstance(target, Labels):
        labels = [label.item() if hasattr(label, "item") else label for label in target.classes]
        if count == 1:
            yield f"return {labels[1]!r} if value_0 > 0 else {labels[0]!r}"
        else:
            yield f"values = [{', '.join(f'value_{k}' for k in range(count))}]"
            yield f"return {labels!r}[values.index(max(values))]"
    elif isinstance(target, Counts):
        yield "return math.exp(value_0)"
    else:
        yield "return value_0" if count == 1 else f"return [{', '.join(f'value_{k}' for k in range(count))}]"
