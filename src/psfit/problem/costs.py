"""What fits in memory and which way costs less: the choices between ways that lead to the same answer."""

from dataclasses import dataclass

import torch

from psfit.comm import Grid
from psfit.data import DesignMatrix, Source
from psfit.problem.problem import Problem

# The most numbers in a rank's square matrices over columns (or samples): 1 GiB in float64.
MOST_NUMBERS = 1 << 27
# A Gram product of so many operations is cheap, by the kind of device. Above that, with a limit that is much smaller
# than the number of columns, only candidate columns are multiplied.
CHEAP_PRODUCT = {"cpu": 4e9, "cuda": 4e13}
MODEL_SHARE = 0.25
FORM_ROWS = 500
# Compute capabilities of the GPUs with fast double precision: A100, H100 and H200, B200.
FAST_DOUBLE = ((8, 0), (9, 0), (10, 0))


@dataclass(frozen=True)
class Sizes:
    """Numbers of samples, and of columns that fit in memory.

    Parameters
    ----------
    samples : int
        Samples on all nodes together.
    node_rows, most_rows : int
        The most samples of one node, and the most samples on one rank.
    column_room : int
        How many columns fit in the memory of every rank.
    """

    samples: int
    node_rows: int
    most_rows: int
    column_room: int


@dataclass(frozen=True)
class Costs:
    """The choices for a problem on a grid; the matrix has `features` columns and, if fitted, the intercept's.

    `form_known` tells whether the nodes' quadratic forms were made while the data were read, `outputs` how many outputs
    a problem has, `item_features` how many features an item has on average, and `forced` what the items that are in
    every support take of the limits.
    """

    problem: Problem
    grid: Grid
    matrix: DesignMatrix
    features: int
    sizes: Sizes
    form_known: bool
    outputs: int = 1
    item_features: int = 1
    forced: int = 0

    @property
    def tall(self) -> bool:
        """Whether all nodes together have as many rows as columns, so that the sum of Gram matrices can be regular."""
        return self.sizes.samples >= self.matrix.shape[1]

    @property
    def tall_nodes(self) -> bool:
        """Whether some node alone has as many rows as columns."""
        return self.sizes.node_rows >= self.matrix.shape[1]

    @property
    def squares_fit(self) -> bool:
        """Whether a rank can hold square matrices over the columns, one for each of its nodes."""
        return squares_fit(self.grid, self.matrix.shape[1])

    @property
    def uses_form(self) -> bool:
        """Whether the problem is solved by its quadratic form, a sum over all nodes.

        Tall nodes need their own Gram matrices anyway. For other nodes only the sum is made.
        """
        if self.form_known:
            return True
        if not self.tall or self.matrix.streamed or not self._form_fits:
            return False
        return self.squares_fit if self.tall_nodes else True

    @property
    def form_at_hand(self) -> bool:
        """Whether the nodes' own steps need Gram matrices anyway, so that their sum costs little more."""
        return self.uses_form and (self.form_known or self.tall_nodes)

    @property
    def searches_by_form(self) -> bool:
        """Whether the search for a good support uses the quadratic form.

        With more columns than rows the form proves nothing, but where it is cheap, a search by it is quick.
        """
        if self.uses_form:
            return True
        return not self.matrix.streamed and self._form_fits and (self.product_is_cheap or not self.uses_candidates)

    @property
    def product_is_cheap(self) -> bool:
        """Whether a Gram product of all columns, for all pairs of outputs that a loss couples, is cheap.

        The matrix itself costs as much as the products of FORM_ROWS samples. Losses other than the squared one need
        many such matrices, so less of each is cheap.
        """
        pairs = self.outputs * (self.outputs + 1) / 2 if self.problem.loss.joint else 1.0
        share = 1.0 if self.problem.loss.quadratic else MODEL_SHARE
        work = 2.0 * pairs * (self.sizes.samples + FORM_ROWS) * self.matrix.shape[1] ** 2
        return work <= share * CHEAP_PRODUCT[self.matrix.device.type] and self.matrix.shape[1] ** 2 <= MOST_NUMBERS

    @property
    def products_in_double(self) -> bool:
        """Whether the proof's Gram matrix, in float64, is also used for all else: on a CPU it costs little more."""
        return self.uses_form and self.matrix.device.type == "cpu"

    @property
    def _form_fits(self) -> bool:
        quadratic = self.problem.loss.quadratic and self.grid.blocks.size == 1
        return quadratic and self.matrix.shape[1] ** 2 <= MOST_NUMBERS

    @property
    def columns_out_of_reach(self) -> bool:
        """Whether an iteration with all columns is too costly: passes take too long, or factors are too large."""
        short = min(self.matrix.shape[1], self.sizes.node_rows)
        return not self.uses_form and (self.matrix.streamed or not squares_fit(self.grid, short))

    @property
    def first_candidates(self) -> int:
        """How many features are fitted when not all of them can be."""
        wanted = (4 * self._places + 50 + self.forced) * self.item_features
        return min(self.features, self.sizes.column_room, wanted)

    @property
    def _places(self) -> int:
        """How many items the different limits leave to choose, together."""
        return sum(kappa - self.forced for kappa in set(self.problem.kappa))

    @property
    def uses_candidates(self) -> bool:
        """Whether only a few candidate columns are fitted: all columns are too many, and the few fit in memory."""
        few = self.first_candidates
        enough = (2 * self._places + self.forced) * self.item_features <= few
        too_many = self.columns_out_of_reach or (not self.uses_form and not self.product_is_cheap)
        return too_many and enough and few <= min(self.features // 2, self.sizes.column_room)


def squares_fit(grid: Grid, side: int, copies: int = 1) -> bool:
    """Whether every rank has memory for `copies` square matrices for each of its nodes."""
    hosted = -(-grid.nodes.size // grid.nodes.comm.size)
    return copies * hosted * side**2 <= MOST_NUMBERS


def form_suffices(problem: Problem, source: Source, grid: Grid, copies: int = 1) -> bool:
    """Whether the form contains all that a fit needs, and every rank has memory for `copies` of its own forms."""
    n = source.matrix.shape[1] + problem.fit_intercept
    if not problem.loss.quadratic or grid.blocks.size > 1 or not squares_fit(grid, n, copies):
        return False
    return int(grid.nodes.total(torch.tensor([source.matrix.shape[0]]))) >= n


def prefers_raw_form(matrix: DesignMatrix, exact: bool, tall_nodes: bool) -> bool:
    """Whether it is cheaper to make the whole form at once, in float64, than each part when it is needed.

    This holds where every pass takes long. It also holds on GPUs with integer products, or with float64 as fast as
    float32: the proof needs that Gram matrix anyway, and the iteration can use it if nodes are tall.
    """
    if matrix.streamed or matrix.device.type != "cuda" or not tall_nodes:
        return matrix.streamed
    if not exact and matrix.has_integer_products:
        return True
    return torch.cuda.get_device_capability(matrix.device) in FAST_DOUBLE
