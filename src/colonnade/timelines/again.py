"""The timeline of a model: it is trained again, with the same bits, under a virtual clock that is looked at."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from typing import Any

from colonnade.errors import ColonnadeError, OptionError
from colonnade.runtimes.simulation import Simulation
from colonnade.timelines.timeline import Timeline


class TimelineMixin:
    """What a model's training looks like from above."""

    def timeline(self, *parties: Any, on: Simulation | None = None, **how: Any) -> Timeline:
        """Return who worked, waited and sent what while a copy of this model is trained.

        Training under the virtual clock repeats to the bit from its seed, so this is what happened, or would happen, in
        `fit` with the same arguments. The model itself stays as it is, fitted or not. A run that fails, as one with
        `faults` may, has a timeline too, up to its end; its `error` says why.

        Parameters
        ----------
        *parties
            What `fit` takes: parties, or sites.
        on : Simulation, optional
            The lines, speeds and faults of the run.
        **how
            Further arguments of `fit`, such as `validation`.

        Returns
        -------
        Timeline
            `print` shows lanes of letters, a notebook shows a picture, and `save` writes a page to look around in.
        """
        if on is not None and not isinstance(on, Simulation):
            raise OptionError(
                f"on must be a Simulation, as a timeline is of virtual time, got a {type(on).__name__}; of processes, "
                f"`times_` of the model says how long each computed and waited"
            )
        seen = Timeline()
        options = copy.copy(self.get_params(deep=False))  # type: ignore[attr-defined]
        again: Any = type(self)(**{name: 0 if name == "verbose" else value for name, value in options.items()})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are those of `fit`
            try:
                again.fit(*parties, on=replace(on or Simulation(), onlooker=seen), **how)
            except ColonnadeError as error:
                if not seen.parties:  # refused before anything ran
                    raise
                seen.error = str(error)
        return seen
