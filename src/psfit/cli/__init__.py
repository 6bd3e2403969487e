"""The command line: ``psfit inspect``, ``fit``, ``path``, ``predict``, ``score``, ``report``, ``export`` and others.

The modules of the commands import little: the help must not wait for torch. What a command computes with is imported
when the command is called.
"""

import os
import sys
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

import psfit
from psfit.cli.bench import bench
from psfit.cli.compile import compile
from psfit.cli.demo import demo
from psfit.cli.examples import epilogue
from psfit.cli.export import export
from psfit.cli.federated import federated
from psfit.cli.fit import fit
from psfit.cli.inspect import inspect
from psfit.cli.near_optimal import near_optimal
from psfit.cli.output import EXIT_CODES
from psfit.cli.path import path
from psfit.cli.predict import predict
from psfit.cli.report import report
from psfit.cli.score import score
from psfit.common.startup_interrupt import restore_ctrl_c
from psfit.common.status import Status

app = typer.Typer(
    help="Sparse linear models: at most kappa features, and a proof of how good the answer is. Data are files: tables "
    "with text, dates and missing values, or arrays.",
    epilog=epilogue("psfit"),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


class _Warnings:
    """Prints each warning once, in one line, without the place in the code: the user did not write that code."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.printed: set[str] = set()

    def __call__(self, message: Warning | str, *_: object, **__: object) -> None:
        # How a file was read is no cause for concern: it is said so that a wrong guess is noticed.
        is_note = isinstance(message, psfit.ReadingWarning)
        text = f"psfit: {'note' if is_note else 'warning'}: {message}"
        if text not in self.printed and not (is_note and self.quiet):
            self.printed.add(text)
            print(text, file=sys.stderr)


def _begin(command: Callable[..., None]) -> Callable[..., None]:
    """The command, which begins by importing nearly everything; until that is done, Ctrl-C exits at once."""

    @wraps(command)
    def run(**given: Any) -> None:
        from sklearn.exceptions import ConvergenceWarning

        import psfit.reporting

        restore_ctrl_c()
        with warnings.catch_warnings():
            warnings.simplefilter("always", ConvergenceWarning)
            warnings.simplefilter("always", psfit.ReadingWarning)
            warnings.simplefilter("always", psfit.DataWarning)
            warnings.showwarning = _Warnings(bool(given.get("quiet")))
            try:
                command(**given)
            except KeyboardInterrupt:
                print("psfit: stopped by Ctrl-C; files that are not complete were not written", file=sys.stderr)
                raise typer.Exit(EXIT_CODES[Status.INTERRUPTED]) from None

    return run


for command in (inspect, fit, path, predict, score, report, export, near_optimal, demo, bench, compile):
    app.command(epilog=epilogue(command.__name__))(_begin(command))
for part in federated.registered_commands:
    assert part.callback is not None
    part.epilog = epilogue(f"federated {part.callback.__name__}")
    part.callback = _begin(part.callback)
app.add_typer(federated, name="federated")


def _print_version(asked: bool) -> None:
    if asked:
        print(f"psfit {psfit.__version__}")
        raise typer.Exit


@app.callback()
def _common_options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run a command; an error that the user can fix is printed in one line, without a traceback."""
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe, as in `psfit ... | head`; the interpreter must not write again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        code = _print_error(error)
        if code is None:
            raise
        sys.exit(code)


def _print_error(error: Exception) -> int | None:
    """Print an error in one line; return the exit code, or None for an error of PsFiT itself."""
    if isinstance(error, psfit.RemoteError):
        # The rank that failed has printed the reason.
        return 1
    if isinstance(error, psfit.StoppedError):
        if error.rank == 0:
            print(f"psfit: {error}", file=sys.stderr)
        return EXIT_CODES[error.status]
    known = (
        ValueError,
        TypeError,
        FloatingPointError,
        OSError,
        ImportError,
        psfit.CheckpointError,
        psfit.PeerLostError,
    )
    if not isinstance(error, known):
        return None
    # Where several ranks have the same error, only the first of them prints it.
    if not isinstance(error.__cause__, psfit.RemoteError):
        print(f"psfit: error: {error}", file=sys.stderr)
    return 1
