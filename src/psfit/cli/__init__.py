"""The command line: ``psfit fit`` and ``psfit predict``, one process or many."""

import sys

import typer

from psfit.checkpoint import CheckpointError
from psfit.cli.fit import fit
from psfit.cli.predict import predict
from psfit.comm import PeerLostError, RemoteError
from psfit.iterate import StoppedError

# What a shell reports for a process that SIGTERM has ended: a scheduler sees that the work is not done.
STOPPED = 143

app = typer.Typer(
    help="Sparse linear models under an exact limit on nonzero coefficients, over nodes and devices.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(fit)
app.command()(predict)


def main() -> None:
    """Run a command; what the user can mend is said in one line, without a traceback."""
    try:
        app()
    except RemoteError:
        # The rank that failed has said why.
        sys.exit(1)
    except StoppedError as stopped:
        print(f"psfit: {stopped}", file=sys.stderr)
        sys.exit(STOPPED)
    except (ValueError, TypeError, OSError, ImportError, CheckpointError, PeerLostError) as error:
        print(f"psfit: error: {error}", file=sys.stderr)
        sys.exit(1)
