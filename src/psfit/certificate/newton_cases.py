"""Which problems the relaxation by second-order steps serves, and how many steps a root may take."""

from psfit.data import half_gram
from psfit.problem.instance import Instance

# The most steps of a root, and of a root with more numbers than LARGE.
STEPS, FEW_STEPS, LARGE = 60, 20, 1 << 22
# The kinds of devices on which these steps were measured. On others passes over the data serve.
DEVICES = ["cpu", "cuda"]
# With more columns, second derivatives take too long; where there are more rows than columns, even earlier. On one GPU
# they are cheap in half precision. With many rows for each column they then cost less than passes over the data.
MOST_COLUMNS, MOST_TALL_COLUMNS, MOST_GROUPED_COLUMNS = 2048, 1024, 1024
MOST_ROUGH_COLUMNS, ROUGH_ROWS = 4096, 10


def serves(inst: Instance) -> bool:
    """Whether this way can be taken: a smooth loss of one output, single items of any size, columns in memory."""
    loss, matrix = inst.problem.loss, inst.source.matrix
    alone = inst.items.separate and not inst.items.in_groups and inst.source.outputs == 1 and inst.grid.blocks.size == 1
    here = matrix.device.type in DEVICES and not matrix.streamed and matrix.shape[1] <= _most_columns(inst)
    can_step = loss.smooth or (loss.envelope(1.0) is not None and inst.box is None)
    signs = inst.box is None or inst.box.limits_only_signs
    return can_step and not loss.joint and alone and here and signs


def _most_columns(inst: Instance) -> int:
    """The most columns of a problem that this way serves; all ranks must find the same number."""
    matrix = inst.source.matrix
    tall = inst.samples >= ROUGH_ROWS * matrix.shape[1]
    rough = tall and inst.problem.loss.smooth and inst.grid.world.size == 1 and half_gram.available(matrix)
    return MOST_ROUGH_COLUMNS if rough else MOST_COLUMNS


def serves_groups(inst: Instance) -> bool:
    """Whether the root of a problem with groups of features is better served this way than by passes over the data.

    That was measured on CPUs: steps without the data cost about the cube of the number of columns.
    """
    loss, matrix = inst.problem.loss, inst.source.matrix
    alone = inst.items.separate and inst.items.in_groups and inst.source.outputs == 1 and inst.grid.blocks.size == 1
    here = matrix.device.type == "cpu" and not matrix.streamed and matrix.shape[1] <= MOST_GROUPED_COLUMNS
    return loss.smooth and not loss.joint and inst.box is None and alone and here and inst.costs.tall


def serves_all_columns(inst: Instance) -> bool:
    """Whether this way is better than candidates: with more rows than columns, a relaxation uses most columns."""
    return serves(inst) and inst.costs.tall and inst.source.matrix.shape[1] <= MOST_TALL_COLUMNS


def count_steps(inst: Instance) -> int:
    """How many steps the root of a problem may take."""
    return STEPS if inst.samples * inst.source.matrix.shape[1] <= LARGE else FEW_STEPS
