"""The result of `LinearModel.statistics`: standard errors, p values and intervals, and how well the model fits."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from colonnade.errors import ColonnadeWarning, OptionError, needed
from colonnade.inference.category_tests import CategoryTest, Levels, category_tests
from colonnade.notebooks.cells import TableCell
from colonnade.runtimes.net import Traffic

Floats = npt.NDArray[np.float64]
_FAR = 0.3  # standard errors
STUDENT = ("RidgeRegression", "GammaRegression", "TweedieRegression")  # a variance is estimated too: t instead of z


@dataclass(frozen=True)
class Fit:
    """How well a model fits as a whole."""

    deviance: float
    null_deviance: float  # of a model with nothing but the intercept
    aic: float
    auc: float  # NaN, like ks, where labels are not two classes
    ks: float
    rows: int
    parameters: int  # independent columns, with the intercept
    dispersion: float  # the variance that is left, in parts of what the mean says; 1 for models that have none
    distance: float  # to the optimum in standard errors, as far as the first label holder can tell; NaN if it can't

    @property
    def df(self) -> int:
        """Degrees of freedom that are left: rows less parameters."""
        return self.rows - self.parameters

    def as_value(self) -> tuple[float | int, ...]:
        """A form that the wire can carry."""
        return (
            self.deviance, self.null_deviance, self.aic, self.auc, self.ks, self.rows, self.parameters, self.dispersion,
            self.distance,
        )  # fmt: skip


class Coefficient(NamedTuple):
    """One row of a table, with NaN where the data do not determine the coefficient."""

    name: str
    coefficient: float
    standard_error: float
    z: float  # t where a variance is estimated
    p: float  # two-sided, for the coefficient being 0
    low: float
    high: float


@dataclass(frozen=True)
class CoefficientTable:
    """A party's own coefficients: rows are found by number or name, and columns are arrays."""

    names: tuple[str, ...]
    coefficient: Floats
    standard_error: Floats
    z: Floats
    p: Floats
    low: Floats
    high: Floats

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Coefficient]:
        return (self._row(at) for at in range(len(self)))

    def __getitem__(self, which: int | str) -> Coefficient:
        if isinstance(which, str):
            if which not in self.names:
                raise OptionError(f"there is no column {which!r}; there are {', '.join(map(repr, self.names[:10]))}")
            which = self.names.index(which)
        return self._row(which)

    def _row(self, at: int) -> Coefficient:
        columns = (self.coefficient, self.standard_error, self.z, self.p, self.low, self.high)
        return Coefficient(self.names[at], *(float(column[at]) for column in columns))


def table_of(
    names: Sequence[str], coefficient: Floats, covariance: Floats, level: float, df: int | None
) -> CoefficientTable:
    """Make the table of some coefficients from their covariance.

    `df` are the degrees of freedom of Student's distribution; None stands for the normal one.
    """
    from scipy import special  # loaded here, for those alone who ask for statistics

    errors = np.sqrt(np.diag(covariance))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = coefficient / errors
    if df is None:
        p, width = 2.0 * special.ndtr(-np.abs(z)), special.ndtri(0.5 + level / 2.0)
    else:
        p, width = 2.0 * special.stdtr(df, -np.abs(z)), special.stdtrit(df, 0.5 + level / 2.0)
    reach = float(width) * errors
    return CoefficientTable(tuple(names), coefficient, errors, z, p, coefficient - reach, coefficient + reach)


def check_level(level: object) -> None:
    """Refuse a level of confidence that is not between 0 and 1."""
    if not isinstance(level, Real) or not 0.0 < float(level) < 1.0:
        raise OptionError(f"level must be between 0 and 1, got {level!r}; 0.95 is usual")


@dataclass(frozen=True)
class Statistics(TableCell):
    """What `statistics` of a linear model returns; printed, it is a table.

    Attributes
    ----------
    model
        The name of the estimator.
    coefficients
        {party: the table of its own coefficients}.
    intercept
        The row of the intercept, or None where the model has none.
    covariance
        {party: covariance of its coefficients}; the first label holder's ends with the intercept.
    fit
        How well the model fits as a whole; its numbers are also attributes of this object.
    rows
        How many of the `n` rows the correlations between parties come from.
    level
        The confidence of the intervals, 0.95 by default.
    traffic
        {party: what it sent}.
    categories
        {party: a joint test of each of its categories, whose levels are columns of their own}.
    """

    model: str
    coefficients: dict[str, CoefficientTable]
    intercept: Coefficient | None
    covariance: dict[str, Floats] = field(repr=False)
    fit: Fit
    rows: int
    level: float
    traffic: dict[str, Traffic] = field(repr=False)
    categories: dict[str, tuple[CategoryTest, ...]] = field(default_factory=dict)

    def frame(self) -> Any:
        """Return the table as a pandas data frame, a row for each coefficient, by party and column."""
        pd = needed("pandas", "frame()")

        rows = [((party, row.name), row[1:]) for party, table in self.coefficients.items() for row in table]
        if self.intercept is not None:
            rows.insert(0, (("", self.intercept.name), self.intercept[1:]))
        index = pd.MultiIndex.from_tuples([at for at, _ in rows], names=["party", "column"])
        return pd.DataFrame([list(values) for _, values in rows], index=index, columns=list(Coefficient._fields[1:]))

    @property
    def deviance(self) -> float:
        """Twice the log-likelihood that the model falls short of a perfect fit; the squared error of a ridge model."""
        return self.fit.deviance

    @property
    def null_deviance(self) -> float:
        """The deviance of a model of nothing but the intercept (if this one has one)."""
        return self.fit.null_deviance

    @property
    def aic(self) -> float:
        """Akaike's criterion; it counts all coefficients, however small the penalty keeps them."""
        return self.fit.aic

    @property
    def auc(self) -> float:
        """Area under the ROC curve; with several label holders the mean of theirs, weighted by rows."""
        return self.fit.auc

    @property
    def ks(self) -> float:
        """Kolmogorov and Smirnov's statistic; with several label holders the mean of theirs, weighted by rows."""
        return self.fit.ks

    @property
    def n(self) -> int:
        """How many rows the model was trained on."""
        return self.fit.rows

    @property
    def df(self) -> int:
        """Degrees of freedom that are left: rows less parameters."""
        return self.fit.df

    @property
    def dispersion(self) -> float:
        """The variance that ridge regression leaves, Pearson's dispersion of gamma and Tweedie; 1 for the others."""
        return self.fit.dispersion

    def __str__(self) -> str:
        from rich.console import Console

        text = io.StringIO()
        Console(file=text, width=100, color_system=None).print(self.__rich__())
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def __rich__(self) -> Any:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        z = "t" if self.model in STUDENT else "z"
        kept = f"{100 * self.level:g} %"
        table = Table(title=self.model, box=box.SIMPLE_HEAD, caption=self._summary(), caption_justify="left")
        for name in ("party", "column"):
            table.add_column(name)
        for name in ("coefficient", "std. error", z, f"P(>|{z}|)", f"{kept} from", "to"):
            table.add_column(name, justify="right")
        rows = [(party, row) for party, found in self.coefficients.items() for row in found]
        if self.intercept is not None:
            rows.insert(0, ("", self.intercept))
        for party, row in rows:
            # As text, since the unit in "dose [mg]" is not the name of a colour.
            table.add_row(Text(party), Text(row.name), *(_shown(value, at == 3) for at, value in enumerate(row[1:])))
        for party, tests in self.categories.items():
            for test in tests:
                beside = "" if test.reference is None else f", beside {test.reference}"
                what = f"{test.name}: all levels{beside} (df {test.df})"
                table.add_row(Text(party), Text(what), "", "", _shown(test.wald, False), _shown(test.p, True), "", "")
        return table

    def _summary(self) -> str:
        lines = [
            f"rows {self.n:,}, degrees of freedom {self.df:,}"
            + (f", correlations from {self.rows:,} rows" if self.rows < self.n else ""),
            f"deviance {self.deviance:.6g}, null deviance {self.null_deviance:.6g}"
            + ("" if math.isnan(self.aic) else f", AIC {self.aic:.6g}"),
        ]
        if not math.isnan(self.auc):
            lines.append(f"AUC {self.auc:.4f}, KS {self.ks:.4f}")
        if self.model in STUDENT:
            lines.append(f"dispersion {self.dispersion:.6g}")
        return "\n".join(lines)


def _shown(value: float, chance: bool) -> str:
    if math.isnan(value):
        return "-"
    if chance:
        return "<1e-16" if value < 1e-16 else f"{value:.2g}"
    return f"{value:.4g}"


def warn_far(fit: Fit, leader: str) -> None:
    """Warn that a model is not at the optimum that statistics are about, as far as its first label holder can tell."""
    if fit.distance > _FAR:
        warnings.warn(
            f"the model is not at its optimum: party {leader!r} alone could still move its coefficients by "
            f"{fit.distance:.2g} standard errors, and all statistics are about the optimum; train it longer, with "
            f"BlockNewton, or without rows held out for stopping",
            ColonnadeWarning,
            stacklevel=4,
        )


def own_table(
    names: Sequence[str], state: Any, found: Any, model: str, level: float
) -> tuple[CoefficientTable, Coefficient | None]:
    """Return a party's own table, and the intercept where it has it, from what its program returned."""
    theta, intercept, *_ = state
    covariance, df, _ = found
    all_names, values = (*names, "intercept"), theta[:, 0]
    if intercept is not None:
        values = np.append(values, intercept)
    whole = table_of(all_names[: len(values)], values, covariance, level, df if model in STUDENT else None)
    if intercept is None:
        return whole, None
    cut = {column.name: getattr(whole, column.name)[:-1] for column in fields(whole)}
    return CoefficientTable(**cut), whole[len(names)]


def own_tests(levels: Levels, state: Any, found: Any, model: str) -> tuple[CategoryTest, ...]:
    """Return the joint tests of a party's own categories, from what its program returned."""
    covariance, df, _ = found
    return category_tests(levels, state[0][:, 0], covariance, df if model in STUDENT else None)


def put_together(
    model: str,
    columns: Mapping[str, Sequence[str]],
    states: Mapping[str, Any],
    found: Mapping[str, Any],
    leader: str,
    rows: int,
    level: float,
    traffic: dict[str, Traffic],
    levels: Mapping[str, Levels] | None = None,
) -> Statistics:
    """Make the statistics of a model from what each party's program returned.

    `levels` are the columns of each party's categories, which it knows for itself.
    """
    tables, intercept = {}, None
    for name, names in columns.items():
        tables[name], own = own_table(names, states[name], found[name], model, level)
        intercept = own or intercept
    covariances = {name: value[0] for name, value in found.items()}
    tests = {name: own_tests(own, states[name], found[name], model) for name, own in (levels or {}).items() if own}
    return Statistics(model, tables, intercept, covariances, Fit(*found[leader][2]), rows, level, traffic, tests)
