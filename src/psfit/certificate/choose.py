"""Which relaxation serves a problem that has no quadratic form."""

from psfit.certificate.data_relaxation import DataRelaxation, count_iterations
from psfit.certificate.joint_nodes import JointNewtonRelaxation, serves_joint_nodes
from psfit.certificate.joint_relaxation import STEPS, JointRelaxation, serves_jointly
from psfit.certificate.kink_relaxation import KinkRelaxation
from psfit.certificate.newton_cases import count_steps, serves, serves_groups
from psfit.certificate.newton_relaxation import NewtonRelaxation
from psfit.certificate.relaxation import Fit, Relaxation
from psfit.problem.instance import Instance


def make_newton(inst: Instance, rough: float = 0.0, fit: Fit | None = None) -> NewtonRelaxation:
    """The relaxation by second-order steps, where these serve."""
    return (NewtonRelaxation if inst.problem.loss.smooth else KinkRelaxation)(inst, rough, fit)


def make_joint(inst: Instance, rough: float = 0.0, fit: Fit | None = None) -> tuple[Relaxation, int]:
    """The relaxation of a joint loss, where that is served, and how many steps its root may take."""
    if serves_joint_nodes(inst):
        return JointNewtonRelaxation(inst, rough, fit), STEPS
    return JointRelaxation(inst, fit), STEPS


def choose_relaxation(inst: Instance) -> tuple[Relaxation, int]:
    """Second-order steps where they can be made, else passes over the data; and how many of them a root may take."""
    if serves(inst) or serves_groups(inst):
        return make_newton(inst), count_steps(inst)
    if serves_jointly(inst):
        return make_joint(inst)
    return DataRelaxation(inst), count_iterations(inst)
