"""The arguments of a node as JSON: values by their place in a list, rows of arguments, and plain numbers and texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from liveshape.graph import Value


def written(argument: Any, places: Mapping[Value, int]) -> Any:
    """An argument as JSON has it.

    >>> x = Value("x")
    >>> written((x, 1.5), {x: 0})
    {'row': [{'value': 0}, 1.5]}
    """
    if isinstance(argument, Value):
        return {"value": places[argument]}
    if isinstance(argument, tuple):
        return {"row": [written(item, places) for item in argument]}
    return argument


def read(argument: Any, values: Sequence[Value]) -> Any:
    """What `written` wrote.

    >>> read({"row": [{"value": 0}, 1.5]}, [Value("x")])[1]
    1.5
    """
    if isinstance(argument, dict):
        if "value" in argument:
            return values[argument["value"]]
        return tuple(read(item, values) for item in argument["row"])
    return argument
