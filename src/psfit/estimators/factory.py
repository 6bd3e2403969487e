"""The estimator of a loss, by the name of the loss, as the commands need it."""

from psfit import estimators
from psfit.estimators.model import SparseModel
from psfit.estimators.registry import LOSSES, check_loss


def make_estimator(loss: str, selecting: bool = False, power: float | None = None) -> SparseModel:
    """An estimator for this loss with default parameters; with `selecting`, one that chooses kappa.

    `power` is a parameter of the Tweedie loss alone.
    """
    kind: type[SparseModel] = getattr(estimators, LOSSES[check_loss(loss)].estimator + "CV" * selecting)
    model = kind()
    if power is not None:
        if "power" not in model.get_params():
            raise ValueError(f"power={power} is a parameter of the tweedie loss, and the loss is {loss}")
        model.set_params(power=power)
    if "loss" in model.get_params():
        return model.set_params(loss=loss)
    if model.loss != loss:
        raise ValueError(f"{kind.__name__} has no parameter for the {loss} loss; sparse_path takes it")
    return model
