"""Communication: the only package that moves numbers between ranks."""

from psfit.comm.base import Communicator
from psfit.comm.grid import Axis, Grid, GridSpec, even_bounds
from psfit.comm.serial import Serial

__all__ = ["Axis", "Communicator", "Grid", "GridSpec", "Serial", "even_bounds"]
