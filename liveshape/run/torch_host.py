"""Operators of torch for nodes that no kernel computes: the schema of an exported name says what its arguments are.

The only file beside `export/` that imports torch; it is loaded when a program has such a node and torch is installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from liveshape.formats.dtypes import SCALAR_TYPES
from liveshape.ops.host import HostOperator

# Where and in which order elements lie is not torch's to say here.
_PLACES = ("layout", "device", "pin_memory", "memory_format", "non_blocking", "generator")
_NUMBERS = {"int": int, "float": float, "bool": bool}


def torch_operator(name: str) -> HostOperator | str:
    """The operator that torch has under an exported name, portable or of a delegate; or why it has none.

    Example: `torch_operator("aten::linalg_inv_ex.inverse").inputs == 2`.
    """
    operator = _overload(name)
    if operator is None:
        return "torch, which could compute it on the host, does not know it"
    schema = operator._schema
    inputs = [argument for argument in schema.arguments if not argument.is_out]
    outs = [argument for argument in schema.arguments if argument.is_out]
    if any("List" in str(each.type) for each in (*outs, *schema.returns)):
        return "torch gives a list of tensors, which is not computed on the host"
    count = len(outs) or len(schema.returns)
    mutates = tuple(
        position for position, argument in enumerate(inputs) if argument.alias_info and argument.alias_info.is_write
    )

    def call(arguments: Sequence[Any], dtypes: Sequence[str | None]) -> Sequence[Any]:
        given = [_given(argument, each) for argument, each in zip(inputs, arguments, strict=True)]
        # Out-variants give a new tensor the size that the data has.
        empty = [torch.empty(0, dtype=_kind(dtype)) for dtype, _ in zip(dtypes, outs, strict=False)]
        named = {argument.name: each for argument, each in zip(inputs, given, strict=True) if argument.kwarg_only}
        named |= {argument.name: each for argument, each in zip(outs, empty, strict=True)}
        row = [each for argument, each in zip(inputs, given, strict=True) if not argument.kwarg_only]
        with torch.no_grad():
            results = operator(*row, **named)
        results = results if isinstance(results, (tuple, list)) else (results,)
        return [_array(each) for each in (*results, *(given[position] for position in mutates))]

    return HostOperator(name, len(inputs), count != 1, mutates, call, "torch")


def _overload(name: str) -> Any:
    """`aten::index.Tensor_out`, `aten::relu_` and `aten.relu.default` as what torch calls."""
    namespace, _, rest = name.partition("::") if "::" in name else name.partition(".")
    base, _, overload = rest.partition(".")
    found = getattr(getattr(torch.ops, namespace, None), base, None) if base else None
    try:
        operator = getattr(found, overload or "default", None)
    except RuntimeError:
        return None
    return operator if isinstance(operator, torch._ops.OpOverload) else None


def _kind(dtype: str | None) -> torch.dtype:
    """What torch computes a dtype in: few operators take halves on the host, and float32 holds them."""
    kind = getattr(torch, dtype or "float32")
    assert isinstance(kind, torch.dtype)
    return torch.float32 if kind in (torch.float16, torch.bfloat16) else kind


def _given(argument: Any, value: Any) -> Any:
    """A value as the schema wants it: files keep floats as integers where they are equal."""
    if argument.name in _PLACES or value is None:
        return None
    if argument.name == "dtype":
        return _kind(SCALAR_TYPES[value])
    if isinstance(value, list):
        return [_given(argument, item) for item in value]
    if isinstance(value, np.ndarray):
        tensor = torch.from_numpy(value.copy())  # the caller's arrays and the file's bytes stay as they are
        return tensor.float() if tensor.dtype == torch.float16 else tensor
    kind = str(argument.type).removeprefix("Optional[").removeprefix("List[").rstrip("]")
    if kind == "Tensor":
        return torch.tensor(value)
    return _NUMBERS.get(kind, lambda number: number)(value)


def _array(result: Any) -> Any:
    return result.contiguous().numpy() if isinstance(result, torch.Tensor) else result
