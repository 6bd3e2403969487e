"""A quadratic form of one problem for searches, and the way between its items and those of the problem."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from psfit.comm import Grid
from psfit.problem import Domain
from psfit.search.batch_search import Recordings, make_search
from psfit.search.form_search import End, FormSearch, SearchForm


class LocalForm:
    """A form in the items ``index (k,)`` of a problem; in all of them if there is no index.

    Searches run on the first rank alone, which tells the others where they ended: processors of different kinds round
    differently, and might end elsewhere.
    """

    def __init__(
        self,
        form: SearchForm,
        domain: Domain,
        index: Tensor | None,
        grid: Grid,
        rel_tol: float,
        recordings: Recordings | None = None,
    ) -> None:
        self.form, self.index, self.grid, self.size = form, index, grid, domain.items.size
        self.device = form.H.device
        self.search = make_search(form, domain if index is None else domain.restrict(index), rel_tol, recordings)

    def pack(self, chosen: Tensor) -> np.ndarray:
        """A support ``(size,)`` of the problem in the form's items, on the host."""
        packed: np.ndarray = (chosen if self.index is None else chosen[self.index]).cpu().numpy()
        return packed

    def unpack(self, chosen: np.ndarray) -> Tensor:
        """Supports ``(..., size)`` of the problem from those in the form's items."""
        mask = torch.from_numpy(chosen).to(self.device)
        if self.index is None:
            return mask
        whole = torch.zeros(*mask.shape[:-1], self.size, dtype=torch.bool, device=self.device)
        return whole.index_copy(-1, self.index, mask)

    def find(self, action: Callable[[FormSearch], list[End]], most: int) -> list[End]:
        """The results of a search on all ranks, at most so many."""
        if self.grid.world.size == 1:
            return action(self.search)
        first = self.grid.world.rank == 0
        ends = self.grid.run_together(lambda: action(self.search) if first else [])
        table = torch.zeros(most, self.search.items + 2, dtype=torch.float64)
        for row, end in zip(table, ends, strict=False):
            row[0], row[1] = 1.0, end.value
            row[2:] = torch.from_numpy(end.chosen)
        table = self.grid.world.broadcast(table.to(self.device)).cpu()
        return [End(row[2:].numpy() > 0, float(row[1])) for row in table if row[0] > 0]
