"""What an estimator says of itself to scikit-learn, which asks by tags: what it predicts, and what it is fitted to.

scikit-learn's helpers cut rows out of one X, and here every organisation has an X of its own. Just before they cut,
they ask for the tag `pairwise`, whether X has to be cut in both directions; that is where they are told what to use
instead, in a sentence of its own rather than at the end of the tracebacks of all folds.
"""

from __future__ import annotations

from typing import Any

from colonnade.errors import DataError


class TagsMixin:
    """Adds `__sklearn_tags__` to an estimator; only scikit-learn calls it, so it is there."""

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags

        of = type(self).__name__

        class InputOfParties(InputTags):  # type: ignore[misc]  # Any, where it is not installed
            """Input tags that can't be asked whether X is to be cut in both directions."""

            @property
            def pairwise(self) -> bool:
                raise DataError(
                    f"{of} is fitted to parties, and scikit-learn's helpers cut rows out of one X; use "
                    f"colonnade.cross_validate(model, *parties) for scores of folds, and "
                    f"colonnade.search(model, grid, *parties) to choose options"
                )

            @pairwise.setter
            def pairwise(self, value: bool) -> None:
                """Take no value, as there is none to be told."""

            def __repr__(self) -> str:
                return f"{type(self).__name__}(sparse={self.sparse}, allow_nan={self.allow_nan})"

        trees = bool(getattr(self, "_codes", False))  # the models that take codes of categories take gaps too
        classifier = hasattr(type(self), "predict_proba")
        return Tags(
            estimator_type="classifier" if classifier else "regressor",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags() if classifier else None,
            regressor_tags=None if classifier else RegressorTags(),
            input_tags=InputOfParties(sparse=True, categorical=trees, allow_nan=trees),
        )
