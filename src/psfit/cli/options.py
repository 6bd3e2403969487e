"""Options that several commands share."""

import tomllib
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

# The choices are written out: the help shows them, and it must not wait for torch.
LOSSES = ("squared", "huber", "logistic", "softmax", "squared_hinge", "hinge", "poisson", "gamma", "tweedie")
Loss = Enum("Loss", {name: name for name in LOSSES}, type=str)  # type: ignore[misc]
Effort = Enum("Effort", {name: name for name in ("low", "medium", "high")}, type=str)  # type: ignore[misc]
Sparsity = Enum("Sparsity", {name: name for name in ("element", "feature")}, type=str)  # type: ignore[misc]
Categories = Enum("Categories", {name: name for name in ("group", "columns")}, type=str)  # type: ignore[misc]
Missing = Enum("Missing", {name: name for name in ("refuse", "fill", "indicator")}, type=str)  # type: ignore[misc]
MissingTarget = Enum("MissingTarget", {name: name for name in ("refuse", "drop")}, type=str)  # type: ignore[misc]
NewLevels = Enum("NewLevels", {name: name for name in ("refuse", "zero")}, type=str)  # type: ignore[misc]
# Headings under which the help lists the options.
DATA_PANEL, GRID_PANEL, SEARCH_PANEL, OUTPUT_PANEL = "Data", "Nodes and devices", "Search", "Output"


def _read_config(context: typer.Context, file: Path | None) -> Path | None:
    """Take defaults from a TOML file; options on the command line take precedence."""
    if file is None:
        return None
    try:
        found = tomllib.loads(file.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read ({error})") from None
    known = {parameter.name for parameter in context.command.params}
    given = {name.replace("-", "_"): value for name, value in found.items()}
    unknown = sorted(set(given) - known)
    if unknown:
        raise typer.BadParameter(f"{file} sets {', '.join(unknown)}, which is not an option of {context.info_name}")
    context.default_map = {**(context.default_map or {}), **given}
    return file


ModelFile = Annotated[
    Path, typer.Argument(help="A model file (.psfit) that `psfit fit --out` or `psfit path --out` wrote.")
]
Data = Annotated[
    list[Path],
    typer.Argument(
        help="Files or folders of them: .csv .tsv (also .gz .zst .zip) .parquet .feather .arrow .npy .npz .svm .h5"
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        help="The target: a column (by default the last), an array (y), or a .npy file.", rich_help_panel=DATA_PANEL
    ),
]
TargetOfFit = Annotated[
    str | None,
    typer.Option(
        help="The target: a column, an array (y), or a .npy file; by default the column of the fit.",
        rich_help_panel=DATA_PANEL,
    ),
]
Weight = Annotated[str | None, typer.Option(help="Column or array of sample weights.", rich_help_panel=DATA_PANEL)]
Offset = Annotated[
    str | None,
    typer.Option(
        help="Column or array that is added to the linear predictor; log(NAME) is the logarithm of a column of a "
        "table, such as the exposure.",
        rich_help_panel=DATA_PANEL,
    ),
]
WeightOfScore = Annotated[
    str | None,
    typer.Option(
        help="Column or array of sample weights; by default there are none, also if the fit had some.",
        rich_help_panel=DATA_PANEL,
    ),
]
OffsetOfFit = Annotated[
    str | None,
    typer.Option(
        help="The offset of the samples, for a model that has one; by default the column of the fit.",
        rich_help_panel=DATA_PANEL,
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        help="Use only these columns, separated by commas; * stands for any letters, ? for one, @FILE for a file of "
        "names.",
        rich_help_panel=DATA_PANEL,
    ),
]
Exclude = Annotated[
    str | None, typer.Option(help="Columns not to use, written as in --columns.", rich_help_panel=DATA_PANEL)
]
Id = Annotated[
    str | None,
    typer.Option(
        help="Columns that are not features but are written next to the predictions; as in --columns.",
        rich_help_panel=DATA_PANEL,
    ),
]
CategoriesOption = Annotated[
    Categories | None,
    typer.Option(
        help="Turn a column of text into one column for each text. group: these are in the model together or not at "
        "all. columns: each by itself.",
        rich_help_panel=DATA_PANEL,
    ),
]
Dates = Annotated[
    str | None,
    typer.Option(
        help="Features to make from dates, separated by commas: year, month, weekday, trend; or all.",
        rich_help_panel=DATA_PANEL,
    ),
]
MissingOption = Annotated[
    Missing,
    typer.Option(
        help="Missing values: refuse them, fill them (median, or most frequent text), or also add an indicator column.",
        rich_help_panel=DATA_PANEL,
    ),
]
MissingTargetOption = Annotated[
    MissingTarget | None,
    typer.Option(
        help="Rows of a table that have no target: refuse them, or leave them out.", rich_help_panel=DATA_PANEL
    ),
]
NewLevelsOption = Annotated[
    NewLevels,
    typer.Option(
        help="At prediction, texts that the fit has not seen: refuse them, or set all columns of the text to zero.",
        rich_help_panel=DATA_PANEL,
    ),
]
Csv = Annotated[
    list[str] | None,
    typer.Option(
        help="How a text file is written, if that is not recognised: separator=, decimal=, thousands=, encoding=, "
        "missing= or dates= and a value, such as separator=; or decimal=comma. Repeat it for more.",
        rich_help_panel=DATA_PANEL,
    ),
]
OneHot = Annotated[
    bool,
    typer.Option("--one-hot", help="The same as --categories group.", rich_help_panel=DATA_PANEL),
]
Memory = Annotated[
    str | None,
    typer.Option(
        help="Memory for the features, such as 2GB; data beyond it are read from disk in every pass.",
        rich_help_panel=DATA_PANEL,
    ),
]
LossOption = Annotated[
    Loss,
    typer.Option(
        help="What to fit. Numbers: squared (linear regression) or huber. Classes: logistic, softmax, or an SVM "
        "(squared_hinge, hinge). Counts: poisson. Amounts: gamma, or tweedie if many are zero."
    ),
]
Power = Annotated[
    float | None,
    typer.Option(help="For --loss tweedie: p from 1 to 2; the variance is proportional to the mean to the power p."),
]
Standardize = Annotated[
    bool,
    typer.Option(
        "--standardize",
        help="Apply the ridge to columns divided by their standard deviations; --gamma auto always does so.",
    ),
]
Intercept = Annotated[bool, typer.Option(help="Fit an intercept.")]
SparsityOption = Annotated[Sparsity, typer.Option(help="What kappa counts with several outputs: entries or features.")]
Nodes = Annotated[int | None, typer.Option(help="Nodes; one for each rank if not given.", rich_help_panel=GRID_PANEL)]
Blocks = Annotated[int, typer.Option(help="Feature blocks in each node.", rich_help_panel=GRID_PANEL)]
Backend = Annotated[str, typer.Option(help="auto, serial, torch or mpi.", rich_help_panel=GRID_PANEL)]
Device = Annotated[str, typer.Option(help="A torch device, or auto.", rich_help_panel=GRID_PANEL)]
Dtype = Annotated[
    str | None, typer.Option(help="float32 or float64; that of the data if not given.", rich_help_panel=GRID_PANEL)
]
Timeout = Annotated[float, typer.Option(help="Seconds to wait for another rank.", rich_help_panel=GRID_PANEL)]
EffortOption = Annotated[Effort, typer.Option(help="How long to search for the support.", rich_help_panel=SEARCH_PANEL)]
Certify = Annotated[bool, typer.Option(help="Prove a lower bound.", rich_help_panel=SEARCH_PANEL)]
TimeLimit = Annotated[float | None, typer.Option(help="Seconds after which to stop.", rich_help_panel=SEARCH_PANEL)]
Report = Annotated[
    Path | None,
    typer.Option(help="Where to write a report (.html).", rich_help_panel=OUTPUT_PANEL),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.", rich_help_panel=OUTPUT_PANEL)]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing but errors and warnings.", rich_help_panel=OUTPUT_PANEL)
]
Config = Annotated[
    Path | None,
    typer.Option(help="A TOML file with defaults for these options.", callback=_read_config, is_eager=True),
]
