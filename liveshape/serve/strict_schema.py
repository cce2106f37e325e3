"""Closed JSON schemas: objects have the properties that are listed and no others, of which small models find no end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from liveshape.serve.refusals import Refusal

_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_TABLES = ("properties", "$defs", "definitions")
# What may want properties that another part of a schema lists: closing either could leave nothing that fits both.
_JOINING = ('"allOf"', '"not"', '"if"', '"dependentSchemas"', '"unevaluatedProperties"', '"patternProperties"')


def strict(schema: Any, field: str, *, all_required: bool = True) -> Any:
    """A schema whose objects are closed, with all listed properties required, as OpenAI's server has it.

    OpenAI refuses schemas that do not say so; here it is added, but not where a schema asks for the contrary.

    >>> strict({"properties": {"a": {}}}, "schema")
    {'type': 'object', 'properties': {'a': {}}, 'required': ['a'], 'additionalProperties': False}
    """

    def change(made: dict[str, Any]) -> dict[str, Any]:
        if not (made.get("type") == "object" or "properties" in made):
            return made
        if made.get("additionalProperties", False) is not False:
            raise Refusal(
                400, "a strict schema has no additionalProperties, and this one asks for some: leave strict out", field
            )
        if all_required and isinstance(made.get("properties"), Mapping):
            made["required"] = list(made["properties"])
        return {"type": "object", **made, "additionalProperties": False}

    return _changed(schema, change)


def closed(schema: Any) -> Any:
    """A schema whose objects are closed where nothing is said of further properties: whatever fits it fits the schema.

    >>> closed({"type": "object", "properties": {"a": {}}})["additionalProperties"]
    False
    """

    def change(made: dict[str, Any]) -> dict[str, Any]:
        listed = made.get("properties")
        if not isinstance(listed, Mapping) or not listed or "additionalProperties" in made or "$ref" in made:
            return made
        if any(name in made for name in ("anyOf", "oneOf")) or not set(made.get("required", ())) <= set(listed):
            return made
        return {**made, "additionalProperties": False}

    try:
        joining = any(name in json.dumps(schema) for name in _JOINING)
    except (TypeError, ValueError, RecursionError):
        return schema  # no schema, which is refused where it is compiled
    return schema if joining else _changed(schema, change)


def _changed(schema: Any, change: Any) -> Any:
    """A schema with its objects changed, the inner ones first."""
    if not isinstance(schema, Mapping):
        return schema
    made = dict(schema)
    for name in _TABLES:
        if isinstance(made.get(name), Mapping):
            made[name] = {key: _changed(each, change) for key, each in made[name].items()}
    for name in _LISTS:
        if isinstance(made.get(name), list):
            made[name] = [_changed(each, change) for each in made[name]]
    if "items" in made:
        made["items"] = _changed(made["items"], change)
    return change(made)
