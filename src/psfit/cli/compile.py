"""``psfit compile``: the kernels for CPUs, compiled before the first fit."""

import typer

REMEDY = "set NUMBA_CACHE_DIR to a folder that can be written, here and for all fits"


def compile() -> None:
    """Compile the kernels for CPUs, so that the first fit does not wait for it."""
    from psfit.kernels import cpu

    cpu.compile_all(typer.echo)
    folders = cpu.cache_folders()
    if not folders:
        raise OSError(f"no folder for compiled kernels can be written; {REMEDY}")
    for folder in folders:
        typer.echo(f"compiled kernels are kept in {folder}")
    typer.echo(f"if other users or jobs cannot write there, {REMEDY}")
