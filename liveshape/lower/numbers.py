"""Numbers that a program writes as literals, as tensors of one element, or as tensors that are filled with one."""

from __future__ import annotations

import struct
from typing import Any

from liveshape.graph import Tensor
from liveshape.graph.constants import all_bytes
from liveshape.graph.elements import prod
from liveshape.lower.def_use import DefUse
from liveshape.lower.pattern_operators import FILLED

_FORMATS = {"float32": "<f", "float16": "<e", "int32": "<i", "int64": "<q"}


def number_of(value: Any, uses: DefUse) -> float | None:
    """What every element of a value is at every call, if that is one number.

    Example: `number_of(node.args[1], uses) == 0.125`.
    """
    if isinstance(value, (int, float)):
        return float(value)
    if not isinstance(value, Tensor) or uses.writes[value] > 1 or value in uses.graph.given:
        return None
    node = uses.producer.get(value)
    if node is not None:
        filled = node.name in FILLED and not node.mutates
        return number_of(node.named.get("value", 0), uses) if filled else None
    code = _FORMATS.get(value.dtype)
    if value.constant is None or code is None or prod(value.max_shape) != 1:
        return None
    (number,) = struct.unpack_from(code, all_bytes(value.constant))
    return float(number)


def is_true(value: Any, uses: DefUse) -> bool:
    """Whether every element of a tensor of booleans is true at every call.

    Example: of `torch.ones(rows, keys, dtype=torch.bool)`.
    """
    return isinstance(value, Tensor) and value.dtype == "bool" and number_of(value, uses) == 1
