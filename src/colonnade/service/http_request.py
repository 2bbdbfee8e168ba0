"""Reads what a request for scores holds, and describes the HTTP endpoint in OpenAPI."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from colonnade import __version__
from colonnade.data.ids import encodable, normal
from colonnade.data.raw_columns import Numbers, Texts
from colonnade.data.row_weights import Floats, as_exposure, as_offset
from colonnade.errors import DataError
from colonnade.tables.learned import LearnedPreparation
from colonnade.tables.table import Table

MAX_PEOPLE = 10_000
_CHECKS = {"exposure": as_exposure, "offset": as_offset}
_NOTHING: Mapping[str, str] = {}


def parse(
    body: bytes, prepared: LearnedPreparation, beside: Mapping[str, str] = _NOTHING
) -> tuple[list[str], Table | None]:
    """Return (ids, rows) of a request, or raise with one sentence about what is wrong with it.

    Parameters
    ----------
    body
        The request.
    prepared
        The columns that the model has here.
    beside
        The columns of exposures and offsets, {"exposure": name}, where the party's own file names any. Every row has
        them, as in a file: an exposure that is left out is a mistake more often than an exposure of 1.
    """
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        raise DataError("the body must be JSON") from None
    if (
        not isinstance(request, dict)
        or len(request) != 1
        or not isinstance(people := next(iter(request.values())), list)
    ):
        raise DataError('the body must be {"ids": [...]} or {"rows": [{"id": ..., column: value, ...}, ...]}')
    if not 0 < len(people) <= MAX_PEOPLE:
        raise DataError(f"a request is about 1 to {MAX_PEOPLE} people, got {len(people)}")
    if "ids" in request:
        return [_id(one) for one in people], None
    if "rows" not in request or not all(isinstance(row, dict) and "id" in row for row in people):
        raise DataError('the body must be {"ids": [...]} or {"rows": [{"id": ..., column: value, ...}, ...]}')
    if prepared.sparse is not None:
        raise DataError("this party's columns are sparse; ask by ids")
    ids = [_id(row["id"]) for row in people]
    known = {column.name for column in prepared.columns} | set(beside.values())
    if strange := sorted({key for row in people for key in row} - known - {"id"}):
        raise DataError(f"{strange[0]!r} is no column of the model; columns are {', '.join(map(repr, sorted(known)))}")
    columns: dict[str, Numbers | Texts] = {}
    for column in prepared.columns:
        values = [row.get(column.name) for row in people]
        columns[column.name] = _texts(column.name, values) if column.text else _numbers(column.name, values)
    added = {role: _beside(role, name, people) for role, name in beside.items()}
    return ids, Table("the request", columns, offset=added.get("offset"), exposure=added.get("exposure"))


def _beside(role: str, name: str, people: list[dict[str, Any]]) -> Floats:
    """Return the exposures or offsets of all rows."""
    lacking = [number for number, row in enumerate(people) if row.get(name) is None]
    if lacking:
        raise DataError(
            f"{name!r}, the {role} of each person, is missing in {len(lacking)} of {len(people)} rows, the first is "
            f"row {lacking[0]}; give it in every row"
        )
    found, trouble = _CHECKS[role](_numbers(name, [row[name] for row in people]).values, len(people))
    if trouble is not None:
        raise DataError(f"{name!r}, the {role} of each person, {trouble}")
    return found


def _id(value: Any) -> str:
    """Return an id in its normal form, so that it is the same person however the id is written."""
    text = None if isinstance(value, float) else normal(value)
    if not text:
        raise DataError("an id must be text or a whole number")
    if not encodable(text):
        raise DataError("an id holds characters that are not Unicode text (lone surrogates); send it as it is written")
    return text


def _numbers(name: str, values: list[Any]) -> Numbers:
    if any(isinstance(value, bool) or not isinstance(value, (int, float, type(None))) for value in values):
        raise DataError(f"column {name!r} holds numbers, or null where a value is missing")
    if any(value is not None and not abs(value) <= sys.float_info.max for value in values):
        raise DataError(f"column {name!r} holds finite numbers, or null where a value is missing")
    return Numbers(np.array([np.nan if value is None else float(value) for value in values]))


def _texts(name: str, values: list[Any]) -> Texts:
    if any(not isinstance(value, (str, type(None))) for value in values):
        raise DataError(f"column {name!r} holds text, or null where a value is missing")
    if not all(encodable(value) for value in values if value):
        raise DataError(f"column {name!r} holds characters that are not Unicode text (lone surrogates); correct them")
    categories = sorted({value for value in values if value})  # an empty text is a missing one, as in a file
    place = {value: number for number, value in enumerate(categories)}
    codes = np.array([place[value] if value else -1 for value in values], dtype=np.int32)
    found = np.empty(len(categories), dtype=object)
    found[:] = categories
    return Texts(codes, found)


_PEOPLE = {
    "oneOf": [
        {
            "type": "object",
            "required": ["ids"],
            "properties": {"ids": {"type": "array", "maxItems": MAX_PEOPLE, "items": {"type": ["string", "integer"]}}},
        },
        {
            "type": "object",
            "required": ["rows"],
            "properties": {
                "rows": {
                    "type": "array",
                    "maxItems": MAX_PEOPLE,
                    "items": {
                        "type": "object",
                        "required": ["id"],
                        "description": "the id, this party's own columns, and its exposure or offset, if it has any",
                    },
                }
            },
        },
    ]
}
_SCORE = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "known": {"type": "boolean", "description": "whether every party knows this person; if not, there is no score"},
        "prediction": {},
        "probabilities": {"type": "object", "additionalProperties": {"type": "number"}},
    },
}
_ALIVE = {"200": {"description": "it does"}, "503": {"description": "a partner is out of reach"}}
DESCRIPTION: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Colonnade scores", "version": __version__},
    "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    "paths": {
        "/score": {
            "post": {
                "summary": "Scores of people, by id or by this party's own features",
                "security": [{"token": []}],
                "requestBody": {"required": True, "content": {"application/json": {"schema": _PEOPLE}}},
                "responses": {
                    "200": {
                        "description": "one score per person, in the order asked",
                        "content": {
                            "application/json": {
                                "schema": {"properties": {"scores": {"type": "array", "items": _SCORE}}}
                            }
                        },
                    },
                    "400": {"description": "the request is wrong; the sentence says how"},
                    "401": {"description": "no token, or another one"},
                    "408": {"description": "it took too long to come"},
                    "413": {"description": "too long"},
                    "429": {"description": "a party's policy does not answer so many, or so few"},
                    "503": {"description": "a partner is out of reach, or too many requests come at once"},
                },
            }
        },
        "/health": {
            "get": {
                "summary": "Whether it runs",
                "responses": _ALIVE,
            }
        },
        "/metrics": {
            "get": {
                "summary": "Counts of requests and people, and how long answers took, as Prometheus reads them",
                "security": [{"token": []}],
                "responses": {
                    "200": {"description": "the metrics", "content": {"text/plain": {"schema": {"type": "string"}}}},
                    "401": {"description": "no token, or another one"},
                },
            }
        },
    },
}
