"""Strict JSON schemas, as OpenAI's server has them: objects have the properties that are listed and no others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from liveshape.serve.refusals import Refusal

_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_TABLES = ("properties", "$defs", "definitions")
_SINGLE = ("items", "not", "additionalItems")


def closed(schema: Any, field: str, *, all_required: bool = True) -> Any:
    """A schema whose objects are closed: no additional properties, and all that are listed are required.

    OpenAI refuses schemas that do not say so; here it is added, but not where a schema asks for the contrary.

    >>> closed({"properties": {"a": {}}}, "schema")
    {'type': 'object', 'properties': {'a': {}}, 'required': ['a'], 'additionalProperties': False}
    """
    if not isinstance(schema, Mapping):
        return schema
    made = dict(schema)
    for name in _TABLES:
        if isinstance(made.get(name), Mapping):
            made[name] = {key: closed(each, field, all_required=all_required) for key, each in made[name].items()}
    for name in _LISTS:
        if isinstance(made.get(name), list):
            made[name] = [closed(each, field, all_required=all_required) for each in made[name]]
    for name in _SINGLE:
        made.update({name: closed(made[name], field, all_required=all_required)} if name in made else {})
    if not (made.get("type") == "object" or "properties" in made):
        return made
    if made.get("additionalProperties", False) is not False:
        raise Refusal(
            400, "a strict schema has no additionalProperties, and this one asks for some: leave strict out", field
        )
    if all_required and isinstance(made.get("properties"), Mapping):
        made["required"] = list(made["properties"])
    return {"type": "object", **made, "additionalProperties": False}
