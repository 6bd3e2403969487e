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
from psfit.cli.path import path
from psfit.cli.predict import predict
from psfit.cli.report import report
from psfit.cli.say import EXIT_CODES
from psfit.comm import PeerLostError, RemoteError
from psfit.common.command import loaded
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


def _say_version(wanted: bool) -> None:
    if wanted:
        print(f"psfit {__version__}")
        raise typer.Exit


@app.callback()
def _for_all_commands(
    version: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    pass


def _say_warning(message: Warning | str, *_: object, **__: object) -> None:
    """A warning in one line, without the place in the code that is none of the user's."""
    print(f"psfit: warning: {message}", file=sys.stderr)


def main() -> None:
    """Run a command; what the user can mend is said in one line, without a traceback."""
    loaded()
    try:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", ConvergenceWarning)
                warnings.showwarning = _say_warning
                app()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Nobody reads on, as in `psfit ... | head`; the interpreter must not try again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except RemoteError:
        # The rank that failed has said why.
        sys.exit(1)
    except StoppedError as stopped:
        if stopped.rank == 0:
            print(f"psfit: {stopped}", file=sys.stderr)
        sys.exit(EXIT_CODES[Status.TERMINATED])
    except (ValueError, TypeError, FloatingPointError, OSError, ImportError, CheckpointError, PeerLostError) as error:
        # What several ranks have found, the first of them says.
        if not isinstance(error.__cause__, RemoteError):
            print(f"psfit: error: {error}", file=sys.stderr)
        sys.exit(1)
