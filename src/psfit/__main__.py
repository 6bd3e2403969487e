"""``python -m psfit``: the command line, also under torchrun and mpirun."""

from psfit.cli import main

main()
