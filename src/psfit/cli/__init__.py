"""The command line: ``psfit fit``, ``path``, ``predict``, ``inspect`` and ``report``, one process or many."""

import os
import sys

import typer

from psfit.checkpoint import CheckpointError
from psfit.cli.fit import fit
from psfit.cli.inspect import inspect
from psfit.cli.path import path
from psfit.cli.predict import predict
from psfit.cli.report import report
from psfit.comm import PeerLostError, RemoteError
from psfit.iterate import StoppedError

# What a shell reports for a process that SIGTERM has ended: a scheduler sees that the work is not done.
STOPPED = 143

app = typer.Typer(
    help="Sparse linear models under an exact limit on nonzero coefficients, over nodes and devices.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in (fit, path, predict, inspect, report):
    app.command()(command)


def main() -> None:
    """Run a command; what the user can mend is said in one line, without a traceback."""
    try:
        try:
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
        print(f"psfit: {stopped}", file=sys.stderr)
        sys.exit(STOPPED)
    except (ValueError, TypeError, OSError, ImportError, CheckpointError, PeerLostError) as error:
        print(f"psfit: error: {error}", file=sys.stderr)
        sys.exit(1)
