"""What a fit costs on paper: operations, bytes and messages, read off the code and not fitted to any run.

Counted for one rank. A product of ``(a, b)`` with ``(b, k)`` is ``2 a b k`` operations.
"""

from dataclasses import dataclass
from math import ceil, log2

# Per coefficient of a node and iteration, outside the local solver's products: operations, and arrays read or written.
VECTOR_FLOPS = 14
VECTOR_PASSES = 23
# The global step, per counted item: two sorts, and elementwise work.
SORTS = 2
GLOBAL_FLOPS = 50
STOP_WISHES = 2


@dataclass(frozen=True)
class Shape:
    """A fit as the model sees it, from one rank.

    Parameters
    ----------
    rows, columns : int
        m_i samples of each node; n features, with the intercept.
    outputs : int
        c columns of coefficients, the portfolio's copies among them. Each is a problem of its own here.
    copies : int
        How often the portfolio has each problem.
    intercept : bool
        Whether the last column is the intercept's.
    here : int
        Nodes that this rank hosts.
    blocks, across : int
        M blocks of features, and how many ranks share them; each hosts ``blocks / across``.
    down : int
        How many ranks (or rows of ranks that share a node) divide the nodes.
    inner : float
        K inner steps of the feature split in each outer iteration; zero means the direct solver.
    """

    rows: int
    columns: int
    outputs: int
    here: int
    copies: int = 1
    intercept: bool = False
    blocks: int = 1
    across: int = 1
    down: int = 1
    inner: float = 0.0
    itemsize: int = 8

    @property
    def block(self) -> float:
        """Columns of one block."""
        return self.columns / self.blocks

    @property
    def tall(self) -> bool:
        """Whether Gram matrices are factored, and not matrices on the samples."""
        return self.rows >= self.block

    @property
    def ranks(self) -> int:
        """All ranks."""
        return self.down * self.across


@dataclass(frozen=True)
class Cost:
    """Operations, bytes of memory that must be moved at least, and what is handed to the communicators."""

    flops: float
    bytes: float
    reductions: float
    numbers: float


def set_up(s: Shape) -> Cost:
    """Gram matrices, Cholesky factors (a third of a cube) and inverses (two thirds), once."""
    m, b, blocks_here = s.rows, s.block, s.blocks / s.across
    short, long = (b, m) if s.tall else (m, b)
    flops = s.here * blocks_here * (2 * long * short**2 + short**3)
    held = s.here * blocks_here * (m * b + 2 * short**2)
    return Cost(flops, held * s.itemsize, *_set_up_messages(s))


def iteration(s: Shape) -> Cost:
    """One outer iteration: local step, sums, global step."""
    n, c = s.columns, s.outputs
    products, touched = _local(s)
    items = n * c
    flops = products + s.here * VECTOR_FLOPS * items + items * (SORTS * log2(max(n, 2)) + GLOBAL_FLOPS)
    moved = touched + s.here * VECTOR_PASSES * items
    sent = reductions(s)
    return Cost(flops, moved * s.itemsize, sum(k for k, _, _ in sent), sum(k * size for k, size, _ in sent))


def product(s: Shape) -> tuple[float, float]:
    """Operations and bytes of the local solver's products alone, which the calibration runs."""
    flops, touched = _local(s)
    return flops, touched * s.itemsize


def _local(s: Shape) -> tuple[float, float]:
    """Operations of the local step's products, and the numbers they read."""
    m, b, c = s.rows, s.block, s.outputs
    solve, factor = (2 * b * b * c, b * b) if s.tall else (4 * m * b * c + 2 * m * m * c, 2 * m * b + m * m)
    if not s.inner:
        return s.here * solve, s.here * factor
    times = s.inner * s.here * s.blocks / s.across
    return times * (4 * m * b * c + solve), times * (2 * m * b + factor)


def reductions(s: Shape) -> list[tuple[float, int, int]]:
    """The reductions of an outer iteration: how many, of how many numbers, over how many ranks."""
    n, c, problems = s.columns, s.outputs, s.outputs
    everywhere = [(1, n * c + 3 * problems + STOP_WISHES, s.ranks)]
    # Norms over the blocks of each node; in each inner step the partial predictors and a number for the stopping test.
    inside = [(1, 3 * s.here * problems, s.across), (s.inner, s.here * s.rows * c + 1, s.across)]
    return [kind for kind in everywhere + inside if kind[2] > 1]


def _set_up_messages(s: Shape) -> tuple[float, float]:
    """Reductions before the first iteration on each rank, and the numbers in them."""
    if s.ranks == 1:
        return 0, 0
    n, c, p = s.columns, s.outputs, s.columns - s.intercept
    # Whether all could deal out their rows: the lengths of messages about it, then the messages, which are empty.
    reductions, numbers = 2, s.ranks
    if s.down > 1:
        # Heights; sums of columns, weights, targets and rows; norms; the first gradient.
        reductions, numbers = reductions + 4, numbers + 2 + (p + c // s.copies + 2) + p + n * c
    if s.across > 1:
        # Sums, norms and the gradient put together from the ranks' own columns; the first predictors.
        reductions, numbers = reductions + 4, numbers + 2 * p + p * c + s.here * s.rows * c + 1
    return reductions, numbers


def tree_seconds(ranks: int, size: float, latency: float, bandwidth: float) -> float:
    """An all-reduce by recursive doubling: every round sends the whole message."""
    return ceil(log2(ranks)) * (latency + size / bandwidth) if ranks > 1 else 0.0


def ring_seconds(ranks: int, size: float, latency: float, bandwidth: float) -> float:
    """An all-reduce around a ring: many rounds, but each sends only a share of the message."""
    return 2 * (ranks - 1) * (latency + size / ranks / bandwidth)
