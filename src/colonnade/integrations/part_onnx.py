"""A party's own part of a linear model as a graph of ONNX, with the preparation that was learned.

It has an input for each column: doubles with NaN where a value is missing, or strings with an empty one there, each a
column of rows; and one output, `contribution`, with a column for each score. All of it is calculated in doubles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade import __version__
from colonnade.errors import OptionError
from colonnade.integrations.linear_part import LinearPart, Lookup, PartTerm
from colonnade.tables.learned import Column
from colonnade.tables.steps import Clip, Impute, NumberStep, Scale, Standardise

Array = npt.NDArray[Any]
_OPSET, _ML_OPSET, _IR = 17, 3, 8  # of 2022: what any runtime in use knows
_ML = "ai.onnx.ml"
OUTPUT = "contribution"


class _Graph:
    """Nodes and constants, each with a name of its own."""

    def __init__(self, onnx: Any, taken: Sequence[str]) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.apart = "."  # what our names begin with, and no column's does
        while any(name.startswith(self.apart) for name in taken):
            self.apart += "."

    def node(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output, and return its name."""
        name = f"{self.apart}{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [name], domain=domain, **attributes))
        return name

    def constant(self, value: Any) -> str:
        """Add a constant, and return its name."""
        name = f"{self.apart}constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(value), name))
        return name


def part_onnx(part: LinearPart, names: list[str], beside: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """Return the model, as a file of ONNX holds it.

    Parameters
    ----------
    part
        The part.
    names
        What its scores are called.
    beside
        The columns of what the party adds to each score by itself, as {"exposure": name} or {"offset": name}.
    """
    try:
        import onnx
    except ImportError:
        raise OptionError(
            "--to onnx needs the library onnx, which is not installed; install the extra: pip install 'colonnade[onnx]'"
        ) from None
    columns = [term.column.name for term in part.terms]
    graph, kinds = _Graph(onnx, [*columns, *beside.values()]), onnx.TensorProto
    if OUTPUT in (*columns, *beside.values()):
        raise OptionError(f"a column is called {OUTPUT!r}, as the output of the graph is; rename it and train anew")
    inputs, terms = [], []
    for term in part.terms:
        column = term.column
        if column.date is not None:
            raise OptionError(
                f"column {column.name!r} holds dates, which ONNX can't read; export the part with --to sql, or exclude "
                f"the column and train anew"
            )
        kind = kinds.STRING if column.text else kinds.DOUBLE
        inputs.append(onnx.helper.make_tensor_value_info(column.name, kind, ["rows", 1]))
        terms.append(_term(graph, term))
    if not terms:
        raise OptionError(f"{part.party!r} has no columns in this model, so there is nothing to export")
    for role, name in beside.items():
        inputs.append(onnx.helper.make_tensor_value_info(name, kinds.DOUBLE, ["rows", 1]))
        terms.append(name if role == "offset" else graph.node("Log", name))
    total = graph.node("Sum", *terms) if len(terms) > 1 else terms[0]
    total = graph.node("Add", total, graph.constant(part.intercept[None, :]))
    graph.nodes.append(onnx.helper.make_node("Identity", [total], [OUTPUT]))
    output = onnx.helper.make_tensor_value_info(OUTPUT, kinds.DOUBLE, ["rows", part.outputs])
    whole = onnx.helper.make_graph(graph.nodes, part.party, inputs, [output], graph.constants)
    model = onnx.helper.make_model(
        whole, producer_name="colonnade", producer_version=__version__, ir_version=_IR,
        opset_imports=[onnx.helper.make_opsetid("", _OPSET), onnx.helper.make_opsetid(_ML, _ML_OPSET)],
    )  # fmt: skip
    about = {"party": part.party, "training": part.training, "scores": ", ".join(names)}
    onnx.helper.set_model_props(model, about)
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


def _term(graph: _Graph, term: PartTerm) -> str:
    """Add what a column adds to the scores, and return its name."""
    column = term.column
    if term.lookup is not None and column.text:
        return _text(graph, term.lookup, column.name)
    x, marks = _numbers(graph, column, column.name)
    if term.lookup is not None:
        return _number(graph, term.lookup, x)
    beside = graph.node("Concat", x, *marks, axis=1) if marks else x
    return graph.node("MatMul", beside, graph.constant(term.weights))


def _numbers(graph: _Graph, column: Column, x: str) -> tuple[str, list[str]]:
    marks = []
    for step in column.steps:
        gone = graph.node("IsNaN", x)
        if isinstance(step, Impute):
            if step.indicator:
                marks.append(graph.node("Cast", gone, to=graph.onnx.TensorProto.DOUBLE))
            x = graph.node("Where", gone, graph.constant(np.float64(step.fill)), x)
        else:
            x = graph.node("Where", gone, x, _applied(graph, step, x))  # what is missing stays missing
    return x, marks


def _applied(graph: _Graph, step: NumberStep, x: str) -> str:
    """Return the name of a number after a step that fills nothing in."""
    if isinstance(step, Clip):
        return graph.node("Clip", x, graph.constant(np.float64(step.low)), graph.constant(np.float64(step.high)))
    if isinstance(step, Standardise):
        centred = graph.node("Sub", x, graph.constant(np.float64(step.mean)))
        if step.deviation:
            return graph.node("Div", centred, graph.constant(np.float64(step.deviation)))
        return graph.node("Mul", centred, graph.constant(np.float64(0.0)))
    if isinstance(step, Scale):
        return graph.node("Div", x, graph.constant(np.float64(step.by)))
    return graph.node("Log", graph.node("Add", x, graph.constant(np.float64(1.0))))


def _text(graph: _Graph, lookup: Lookup, x: str) -> str:
    """Look texts up: those that are known by their number, an empty one behind them, and any other behind that."""
    keys = [str(key) for key in lookup.keys or ()]
    places = graph.node(
        "LabelEncoder", x, domain=_ML, keys_strings=[*keys, ""], values_int64s=list(range(len(keys) + 1)),
        default_int64=len(keys) + 1,
    )  # fmt: skip
    return _gathered(graph, np.vstack([lookup.found, lookup.missing, lookup.other]), places)


def _number(graph: _Graph, lookup: Lookup, x: str) -> str:
    """Look numbers up, by the range that they are in or by their values."""
    whole = {"to": graph.onnx.TensorProto.INT64}
    gone = graph.node("IsNaN", x)
    count = len(lookup.found)
    if lookup.edges is not None:
        beyond = graph.node("GreaterOrEqual", x, graph.constant(np.array([lookup.edges], dtype=np.float64)))
        place = _summed(graph, graph.node("Cast", beyond, **whole)) if lookup.edges else None
    else:
        same = graph.node("Equal", x, graph.constant(np.array([lookup.keys or (0.0,)], dtype=np.float64)))
        # 1 for the first key, 2 for the second one, and 0 where none is the same: that is the last row.
        ranks = graph.constant(np.arange(1, max(count, 1) + 1, dtype=np.int64)[None, :])
        found = _summed(graph, graph.node("Mul", graph.node("Cast", same, **whole), ranks))
        place = graph.node("Sub", found, graph.constant(np.int64(1)))
        none = graph.node("Less", place, graph.constant(np.int64(0)))
        place = graph.node("Where", none, graph.constant(np.int64(count + 1)), place)
    if place is None:  # one range, in which everything is
        place = graph.node("Mul", graph.node("Cast", gone, **whole), graph.constant(np.int64(0)))
    place = graph.node("Where", gone, graph.constant(np.int64(count)), place)
    return _gathered(graph, np.vstack([lookup.found, lookup.missing, lookup.other]), place)


def _summed(graph: _Graph, x: str) -> str:
    return graph.node("ReduceSum", x, graph.constant(np.array([1], dtype=np.int64)), keepdims=1)


def _gathered(graph: _Graph, rows: Array, places: str) -> str:
    """Return the rows at these places, which are a column."""
    found = graph.node("Gather", graph.constant(rows), places, axis=0)
    return graph.node("Squeeze", found, graph.constant(np.array([1], dtype=np.int64)))
