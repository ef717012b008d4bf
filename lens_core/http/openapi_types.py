"""JSON schemas of the types that routes declare: what queries hold and what bodies are made of."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

logger = logging.getLogger("lens.openapi")

_TEMPLATE = "#/components/schemas/{name}"


def schemas_of(kinds: Iterable[Any]) -> tuple[dict[Any, dict[str, Any]], dict[str, Any]]:
    """The schema of each type, and the named ones that they refer to.

    Types of the same name get longer names. A type that has no schema is said and has {}: a mistake of one author
    leaves everybody else's routes described.
    """
    able = [*dict.fromkeys(kind for kind in kinds if _has_schema(kind))]
    found, named = msgspec.json.schema_components(able, ref_template=_TEMPLATE)
    return dict(zip(able, found, strict=True)), named


def _has_schema(kind: Any) -> bool:
    try:
        hash(kind)
        msgspec.json.schema_components([kind])
    # ValueError: bounds that do not fit into 64 bits.
    except (TypeError, ValueError) as error:
        logger.warning("A type that a route declares has no JSON schema. type=%r error=%s", kind, error)
        return False
    return True


def schema_of(kind: Any, schemas: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    """Return the schema that `schemas_of` found for a type; {} for one that has no schema."""
    return schemas.get(kind, {}) if isinstance(kind, Hashable) else {}


def parameters_of(query: type[msgspec.Struct]) -> Iterator[dict[str, Any]]:
    """The query parameters that a struct declares: one for each field; a list may be repeated."""
    references, named = schemas_of([query])
    schema = _resolved(references.get(query, {}), named)
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        told = _resolved(field, named)
        description = told.pop("description", "")
        yield parameter(name, description, told, required=name in required)


def _resolved(schema: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """A schema with what it refers to in place of the reference, its own words first."""
    name = schema.get("$ref", "").rpartition("/")[2]
    return {**named.get(name, {}), **{key: value for key, value in schema.items() if key != "$ref"}}


def parameter(name: str, description: str, schema: Mapping[str, Any], *, required: bool = False) -> dict[str, Any]:
    """One query parameter as OpenAPI writes it."""
    found = {"name": name, "in": "query", "description": description, "schema": dict(schema)}
    return {**found, "required": True} if required else found
