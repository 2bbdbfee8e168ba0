"""Options of an estimator by their names, as `clone` and grid searches of scikit-learn ask for them."""

from __future__ import annotations

import inspect
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from colonnade.errors import OptionError, one_of

Model = TypeVar("Model", bound="ParameterMixin")


class ParameterMixin:
    """Adds `get_params`, `set_params` and the text of an estimator."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's options, as scikit-learn's `clone` and grid searches ask for them.

        Parameters
        ----------
        deep : bool
            Whether the options of the algorithm are returned as well, as `algorithm__tol` and so on.

        Returns
        -------
        dict
            {name of the option: its value}.
        """
        found = {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}
        inner = {name: option for name, option in found.items() if deep and _has_options(option)}
        return found | {
            f"{name}__{one.name}": getattr(of, one.name) for name, of in inner.items() for one in fields(of)
        }

    def set_params(self: Model, **params: Any) -> Model:
        """Change options; they count from the next `fit` on.

        Parameters
        ----------
        **params
            New values, by the names of the constructor's options, or of an algorithm's, as `algorithm__tol`. Any other
            name raises an `OptionError`.

        Returns
        -------
        Estimator
            The model itself.
        """
        allowed = tuple(inspect.signature(type(self)).parameters)
        inner: dict[str, dict[str, Any]] = {}
        for name, value in params.items():
            outer, _, rest = name.partition("__")
            one_of("the option's name", outer, allowed)
            if rest:
                inner.setdefault(outer, {})[rest] = value
            else:
                setattr(self, name, value)
        for name, options in inner.items():
            of = getattr(self, name)
            if not _has_options(of):
                raise OptionError(
                    f"{name} is {of!r}, which has no option {next(iter(options))!r} to set; give {name} itself first"
                )
            for option in options:
                one_of(f"the option of {name}", option, tuple(one.name for one in fields(of)))
            setattr(self, name, replace(of, **options))
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        given = [f"{k}={v!r}" for k, v in self.get_params(deep=False).items() if v != defaults[k].default]
        return f"{type(self).__name__}({', '.join(given)})"


def _has_options(value: Any) -> bool:
    """Return whether an option has options of its own, as algorithms do."""
    return is_dataclass(value) and not isinstance(value, type)
