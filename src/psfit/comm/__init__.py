"""Communication: the only package that moves numbers between ranks."""

from psfit.comm.base import Communicator, PeerLostError, Traffic
from psfit.comm.grid import ALONE, Axis, Grid, GridSpec, RemoteError, build_grid, even_bounds
from psfit.comm.serial import Serial
from psfit.comm.transfers import Moved, Transfers

__all__ = [
    "ALONE",
    "Axis",
    "Communicator",
    "Grid",
    "GridSpec",
    "Moved",
    "PeerLostError",
    "RemoteError",
    "Serial",
    "Traffic",
    "Transfers",
    "build_grid",
    "even_bounds",
]
