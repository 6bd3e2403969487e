"""The part of a grid that holds samples: engines may give a rank no rows, and a node needs some."""

from dataclasses import replace

import torch

from psfit.comm.grid import Axis, Grid


def keep_row_holders(grid: Grid, rows: int) -> Grid | None:
    """The grid of the ranks that hold rows; None on a rank that holds none, which then takes no further part.

    All ranks must call this. Each row is on one rank only, so ranks cannot share a node: the grid has one block.
    """
    if grid.blocks.size > 1:
        raise ValueError(f"grid: blocks={grid.blocks.size}, but each row is on one rank only; use blocks=1")
    total = grid.world.all_reduce(torch.tensor([rows], dtype=torch.int64))
    if not bool(total):
        raise ValueError("X is empty: there is no sample in any partition")
    if grid.world.size == 1:
        return grid
    holders = grid.world.split(int(rows > 0))
    if not rows:
        return None
    return replace(grid, nodes=Axis(grid.spec.nodes or holders.size, holders), world=holders)
