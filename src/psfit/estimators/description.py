"""What every fitted model can say: a summary, its coefficients as a table, and HTML in notebooks."""

from typing import Any

from sklearn.base import BaseEstimator

from psfit.estimators.results.stability import Stability
from psfit.estimators.statements import Evidence, coefficient_frame, model_html, summarise


class Described(BaseEstimator):
    """Adds descriptions to an estimator. A model that is not fitted looks in a notebook as scikit-learn draws it."""

    def coefficients(
        self,
        X: Any = None,
        y: Any = None,
        *,
        stability: Stability | None = None,
        level: float = 0.95,
        random_state: int | None = 0,
    ) -> Any:
        """The nonzero coefficients as a DataFrame, the largest first.

        For odds and rates it has their ratio, the exponential of the coefficient.

        Parameters
        ----------
        X : optional
            Samples, such as those of the fit. Then there are also the `spread` of each feature (its standard
            deviation), the `standardised` coefficient (times the spread), and the share of the variance of the
            predictor that is `lost` without the feature, the others unchanged.
        y : array-like (m,), optional
            Their targets. Then there are also intervals from `lower` to `upper`, by data splitting: a random half of
            the samples chooses features by the same settings, the other half is fitted on these features without a
            ridge, and its errors are estimated without a model of the noise. They hold for the features that the first
            half chose, and for the best linear model of these features alone; a feature that it did not choose has
            none (NaN), and one whose coefficient cannot be estimated an infinite one. Half of the samples see fewer
            features than all of them, so the intervals are wide. ``attrs["caveat"]`` of the table says this, too.
        stability : Stability, optional
            What `psfit.stability_selection` found on the same features: adds the `frequency` with which it chose each.
        level : float, default=0.95
            The share of intervals that should hold the true value.
        random_state : int or None, default=0
            Seed of the halves.
        """
        return coefficient_frame(self, Evidence(X, y, stability, level, random_state))

    def summary(self, X: Any = None, y: Any = None, *, stability: Stability | None = None) -> str:
        """What was fitted, how good it is within its limit, and its largest coefficients, as text.

        X, y and stability add the columns that `coefficients` describes.
        """
        return summarise(self, Evidence(X, y, stability))

    def _repr_html_inner(self) -> str:
        return self._complete_html(super()._repr_html_inner())

    def _repr_mimebundle_(self, **settings: Any) -> dict[str, str]:
        found: dict[str, str] = super()._repr_mimebundle_(**settings)
        return {kind: self._complete_html(text) if kind == "text/html" else text for kind, text in found.items()}

    def _complete_html(self, parameters: str) -> str:
        return model_html(self, parameters) if hasattr(self, "result_") else parameters
