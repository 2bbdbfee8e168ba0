"""A job between sites: what they agree on, as `site_job_file` has read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from colonnade.estimators.horizontal import SSCAClassifier
from colonnade.families.rows import RowsOptions
from colonnade.horizontal.conduct import ServerJob
from colonnade.horizontal.messages import method_from_value
from colonnade.horizontal.stated_problem import StatedProblem
from colonnade.jobs.job import Job
from colonnade.leaks import Setting
from colonnade.settings.settings import Settings
from colonnade.site_jobs.problem_text import constraint_of, objective_of
from colonnade.sums.agreement import FEWEST


@dataclass(frozen=True)
class SiteJob(Job):
    """A job in which organisations hold rows; its label holders are the sites.

    Attributes
    ----------
    server
        Who asks: a site, or a party without rows.
    minimum_sites
        How many sites have to answer, so that a round counts.
    prepare
        How all sites prepare their columns; None is as by default.
    columns
        The columns that every site brings; empty: all that they have, which must be the same.
    classes
        All classes, where the job names them.
    """

    server: str = ""
    minimum_sites: int = 0
    prepare: Settings | None = None
    columns: tuple[str, ...] = ()
    classes: tuple[Any, ...] = ()

    @property
    def hub(self) -> str:
        """Who has a line to all others; sites have none to each other."""
        return self.server

    @property
    def sites(self) -> tuple[str, ...]:
        """The parties with rows, in the order that gives them their numbers."""
        return self.holders

    def setting(self, rows: int | None = None) -> Setting:
        """Return those facts about the run that decide what is shown to whom."""
        return Setting(
            self.parties, self.sites, self.loss, self.sum, model=self.family, outputs=None, rows=rows, aligned=True,
            held_out=self.validation > 0, server=self.server, fewest=self.fewest_parts,
        )  # fmt: skip

    @property
    def most_rounds(self) -> int:
        """After how many rounds training ends at the latest: with limits it goes on at higher prices of slack."""
        limited = self.model.cost_limit is not None or bool(self.model.constraints)
        return (self.algorithm.rounds or 0) * (getattr(self.algorithm, "penalties", 1) if limited else 1)

    @property
    def fewest_parts(self) -> int:
        """Of how many sites' parts a sum may be: two, where only some are chosen for a round and all but these fail."""
        chosen = len(method_from_value(self.algorithm.as_value()).chosen(len(self.sites), 1)) or len(self.sites)
        return self.minimum_sites if chosen == len(self.sites) else min(self.minimum_sites, FEWEST)

    def estimator(self, network: Any = None, classes: Sequence[Any] = ()) -> SSCAClassifier:
        """Return the estimator that the job stands for.

        `network` is the function that makes a site's own module, `classes` are those that a limit may name: in TOML all
        keys are texts.
        """
        model: RowsOptions = self.model
        known = {str(one): one for one in classes or self.classes}
        limit = model.cost_limit
        if isinstance(limit, tuple):
            limit = {known.get(key, key): most for key, most in limit}
        return SSCAClassifier(
            hidden=model.hidden,
            l2=model.l2,
            cost_limit=limit,
            objective=objective_of(model.objective) if model.objective else None,
            constraints=[constraint_of(text) for text in model.constraints] or None,
            fit_intercept=model.intercept,
            network=network,
            algorithm=method_from_value(self.algorithm.as_value()),
            protection=self.protection,
            verbose=0,
        )

    def stated(self, classes: Sequence[Any] = ()) -> StatedProblem:
        """Return the problem in numbers."""
        return self.estimator(classes=classes).statement(grouped=False)

    def plan(self, features: int, classes: Sequence[Any], network: Any = None) -> ServerJob:
        """Return what the server is told of the run, and every site works out by itself from the same files."""
        made, method = self.estimator(network, classes), method_from_value(self.algorithm.as_value())
        told = made.plan(method, self.sites, features, len(classes), self.stated(classes))
        masked = self.sum != "plain"
        changed = {"threshold": self.minimum_sites if masked else 0, "fewest": self.minimum_sites}
        return ServerJob(**{**told.__dict__, **changed})
