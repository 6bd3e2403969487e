"""How Arrow turns the cells of a text file into values."""

import pyarrow as pa
import pyarrow.csv as csv

from psfit.data.io.cells import DATE_FORMATS
from psfit.data.io.dialect import Dialect
from psfit.data.schema import Kind
from psfit.data.table_rules import TableRules

# The type in which the cells of each kind are read.
TYPES: dict[Kind, pa.DataType] = {
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.timestamp("us"),
    "category": pa.string(),
}
READ_AS: dict[str, Kind] = {"double": "number", "bool": "boolean", "timestamp": "date"}
# Texts that mean a missing value.
MISSING_MARKS = csv.ConvertOptions().null_values


def convert_options(types: dict[str, pa.DataType], dialect: Dialect, rules: TableRules) -> csv.ConvertOptions:
    """The options that read some columns in these types, or all in the types that their cells suggest."""
    own_format = [rules.date_format] if rules.date_format else []
    return csv.ConvertOptions(
        column_types=types,
        # An empty cell is a gap, also in a column of text.
        strings_can_be_null=True,
        quoted_strings_can_be_null=dialect.quoted_gaps,
        null_values=[*MISSING_MARKS, *rules.missing_marks],
        decimal_point=dialect.decimal,
        timestamp_parsers=[*own_format, csv.ISO8601, *DATE_FORMATS],
        **({"include_columns": list(types)} if types else {}),
    )
