"""The command line: ``psfit fit``, ``path``, ``predict``, ``inspect``, ``report``, ``demo`` and ``bench``."""

import os
import sys
import warnings
from typing import Annotated

import typer
from sklearn.exceptions import ConvergenceWarning

from psfit.admm.checkpoint import CheckpointError
from psfit.admm.loop import StoppedError
from psfit.cli.bench import bench
from psfit.cli.demo import demo
from psfit.cli.fit import fit
from psfit.cli.inspect import inspect
from psfit.cli.output import EXIT_CODES
from psfit.cli.path import path
from psfit.cli.predict import predict
from psfit.cli.report import report
from psfit.comm import PeerLostError, RemoteError
from psfit.common.startup_interrupt import restore_ctrl_c
from psfit.common.status import Status
from psfit.common.version import __version__

app = typer.Typer(
    help="Sparse linear models under an exact limit on nonzero coefficients, over nodes and devices. "
    "New here? Begin with: psfit demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in (fit, path, predict, inspect, report, demo, bench):
    app.command()(command)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"psfit {__version__}")
        raise typer.Exit


@app.callback()
def _common_options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


def _print_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning in one line, without the place in the code: the user did not write that code."""
    print(f"psfit: warning: {message}", file=sys.stderr)


def main() -> None:
    """Run a command; an error that the user can fix is printed in one line, without a traceback."""
    restore_ctrl_c()
    try:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", ConvergenceWarning)
                warnings.showwarning = _print_warning
                app()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe, as in `psfit ... | head`; the interpreter must not write again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except RemoteError:
        # The rank that failed has printed the reason.
        sys.exit(1)
    except StoppedError as stopped:
        if stopped.rank == 0:
            print(f"psfit: {stopped}", file=sys.stderr)
        sys.exit(EXIT_CODES[Status.TERMINATED])
    except (ValueError, TypeError, FloatingPointError, OSError, ImportError, CheckpointError, PeerLostError) as error:
        # Where several ranks have the same error, only the first of them prints it.
        if not isinstance(error.__cause__, RemoteError):
            print(f"psfit: error: {error}", file=sys.stderr)
        sys.exit(1)
