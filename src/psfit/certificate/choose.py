"""Which relaxation serves a problem that has no quadratic form."""

from psfit.certificate.data_relaxation import DataRelaxation, count_iterations
from psfit.certificate.newton_relaxation import NewtonRelaxation, count_steps, serves
from psfit.certificate.relaxation import Relaxation
from psfit.problem.instance import Instance


def choose_relaxation(inst: Instance) -> tuple[Relaxation, int]:
    """Second-order steps where they can be made, else passes over the data; and how many of them a root may take."""
    if serves(inst):
        return NewtonRelaxation(inst), count_steps(inst)
    return DataRelaxation(inst), count_iterations(inst)
