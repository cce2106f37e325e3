"""Host fallback through torch: operators without a kernel are called by their schema in torch.ops.

The only file beside `export/` that imports torch; it is loaded when a program has such a node and torch is installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from liveshape.formats.dtypes import SCALAR_TYPES
from liveshape.ops.host_operator import HostOperator

# Arguments on layout and device are ignored: tensors are contiguous, on the host.
_PLACES = ("layout", "device", "pin_memory", "memory_format", "non_blocking", "generator")
_OF_RESULTS = ("out_dtype", "output_dtype")  # names of result dtype arguments beside `dtype`
_NUMBERS = {"int": int, "float": float, "bool": bool}


def torch_operator(name: str) -> HostOperator | str:
    """torch's operator for an exported name, portable or of a delegate; or why there is none.

    Example: `torch_operator("aten::linalg_inv_ex.inverse").inputs == 2`.
    """
    exported = _overload(name)
    if exported is None:
        return "torch, which could compute it on the host, does not know it"
    if exported.namespace == "et_vk":
        return "a delegate packs its arguments otherwise than torch's operator of that name takes them"
    if not _runs_here(exported):
        return "torch knows its name, but has nothing that computes it on the host"
    inputs = [argument for argument in exported._schema.arguments if not argument.is_out]
    outs = [argument for argument in exported._schema.arguments if argument.is_out]
    kinds = [str(argument.type) for argument in inputs]
    if any("str" in kind for kind in kinds) and not any("Tensor" in kind for kind in kinds):
        # Such operators may access the file system: a program must not name a file.
        return "torch does not compute it from tensors"
    # Prefer the functional overload to the exported out-variant: it infers the output sizes.
    found = (_without_outs(exported, inputs) or exported) if outs else exported
    operator = _IN_ORDER.get(found, found)
    given_back = outs or exported._schema.returns
    mutates = tuple(
        position for position, argument in enumerate(inputs) if argument.alias_info and argument.alias_info.is_write
    )

    def call(arguments: Sequence[Any], dtypes: Sequence[str | None]) -> Sequence[Any]:
        given = [_given(argument, each) for argument, each in zip(inputs, arguments, strict=True)]
        # A missing dtype is that of the output; beside a result dtype argument it is that of the first input.
        kind = dtypes[0] if dtypes else None
        if kind is not None:
            unnamed = dict.fromkeys(("dtype", *_OF_RESULTS), _kind(kind))
            if any(argument.name in _OF_RESULTS for argument in inputs):
                unnamed["dtype"] = given[0].dtype
            given = [
                unnamed.get(argument.name) if each is None else each
                for argument, each in zip(inputs, given, strict=True)
            ]
        named = {argument.name: each for argument, each in zip(inputs, given, strict=True) if argument.kwarg_only}
        if found is exported:
            named |= {each.name: torch.empty(0, dtype=_kind(kind)) for each, kind in zip(outs, dtypes, strict=False)}
        row = [each for argument, each in zip(inputs, given, strict=True) if not argument.kwarg_only]
        with torch.no_grad():
            results = operator(*row, **named)
        results = results if isinstance(results, (tuple, list)) else (results,)
        return [_array(each) for each in (*results, *(given[position] for position in mutates))]

    many = len(given_back) != 1 or "List" in str(given_back[0].type)
    return HostOperator(name, len(inputs), many, mutates, call, "torch")


def _sorted(x: torch.Tensor, dim: int, descending: bool) -> Any:
    return torch.sort(x, dim=dim, descending=descending, stable=True)


def _topmost(x: torch.Tensor, k: int, dim: int, largest: bool, in_order: bool) -> Any:
    return tuple(each.narrow(dim, 0, k) for each in _sorted(x, dim, largest))


# torch's sort and topk are not stable by default; the kernels are.
_IN_ORDER = {torch.ops.aten.sort.default: _sorted, torch.ops.aten.topk.default: _topmost}


def _overload(name: str) -> Any:
    """The torch.ops overload of `aten::index.Tensor_out`, `aten::relu_` or `aten.relu.default`."""
    namespace, _, rest = name.partition("::") if "::" in name else name.partition(".")
    base, _, overload = rest.partition(".")
    found = getattr(getattr(torch.ops, namespace, None), base, None) if base else None
    operator = getattr(found, overload or "default", None)
    return operator if isinstance(operator, torch._ops.OpOverload) else None


def _runs_here(operator: Any) -> bool:
    """Whether an operator has a CPU or a composite kernel."""
    keys = ("CPU", "CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), key) for key in keys)


def _without_outs(operator: Any, inputs: Sequence[Any]) -> Any:
    """The functional overload with the same arguments, without `out`."""
    wanted = [(argument.name, str(argument.type)) for argument in inputs]
    packet = operator.overloadpacket
    overloads = (getattr(packet, overload) for overload in packet.overloads())
    found = (
        each
        for each in overloads
        if wanted == [(argument.name, str(argument.type)) for argument in each._schema.arguments]
    )
    return next(found, None)


def _kind(dtype: str | None) -> torch.dtype:
    """The torch dtype to compute in: float32 for half and bfloat16, which few CPU operators take."""
    kind = getattr(torch, dtype or "float32")
    assert isinstance(kind, torch.dtype)
    return torch.float32 if kind in (torch.float16, torch.bfloat16) else kind


def _given(argument: Any, value: Any) -> Any:
    """Convert an argument to the schema's type: files store integral floats as integers."""
    if argument.name in _PLACES or value is None:
        return None
    if argument.name in ("dtype", *_OF_RESULTS):
        return _kind(SCALAR_TYPES[value])
    if isinstance(value, list):
        items = [_given(argument, item) for item in value]
        # A node that a kernel refused has its arguments normalized for the kernel: a single value is a list of one.
        return items if "List" in str(argument.type) else items[0]
    if isinstance(value, np.ndarray):
        tensor = torch.from_numpy(value.copy())  # operators must not write to the caller's arrays or the file's bytes
        return tensor.float() if tensor.dtype == torch.float16 else tensor
    kind = str(argument.type).removeprefix("Optional[").removeprefix("List[").rstrip("]")
    if kind == "Tensor":
        return torch.tensor(value)
    return _NUMBERS.get(kind, lambda number: number)(value)


def _array(result: Any) -> Any:
    if not isinstance(result, torch.Tensor):
        return result
    # Lazy conjugate and negative views are unknown to numpy.
    return result.resolve_conj().resolve_neg().contiguous().numpy()
