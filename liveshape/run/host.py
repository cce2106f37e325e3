"""Host fallback of operators without a kernel: numpy for a few, torch for the rest where it is installed.

Results are validated before any is written: dtype, upper bound, and range of the device's storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from liveshape.errors import InputError, PlanError, UnsupportedError
from liveshape.formats.dtypes import SCALAR_TYPES
from liveshape.graph import Graph, Limits
from liveshape.graph.live import LiveTensor
from liveshape.kernels.requests import OnHost
from liveshape.ops.host_operator import HostOperator
from liveshape.packages import import_whole
from liveshape.plan.plan import Choices, Plan
from liveshape.run.arrays import as_dtype, numpy_dtype, stored
from liveshape.run.constant_norms import compile_measured

Compile = Callable[[Graph, Limits, Choices | None], Plan]


@dataclass(frozen=True)
class Results:
    """Results of a host operator: shapes and scalars in order, and the bytes of the tensors."""

    found: list[Any]
    data: list[tuple[LiveTensor, Any]]


def tensors_in(arguments: Sequence[Any]) -> Iterator[LiveTensor]:
    """The tensors among arguments, including those in lists."""
    for each in arguments:
        if isinstance(each, LiveTensor):
            yield each
        elif isinstance(each, tuple):
            yield from tensors_in(each)


def computed(request: OnHost, arrays: Mapping[LiveTensor, Any], half: bool) -> Results:
    """Call a host operator on arrays; raises unless every result fits its output."""

    def held(argument: Any) -> Any:
        if isinstance(argument, tuple):
            return [held(item) for item in argument]
        return arrays[argument] if isinstance(argument, LiveTensor) else argument

    dtypes = [value.dtype if isinstance(value, LiveTensor) else None for value in request.written]
    given = request.function([held(argument) for argument in request.arguments], dtypes)
    if len(given) != len(request.written):
        raise PlanError(f"{len(given)} results were computed, the program takes {len(request.written)}")
    found: list[Any] = []
    data: dict[LiveTensor, Any] = {}
    for value, result in zip(request.written, given, strict=True):
        if isinstance(value, LiveTensor):
            array = np.asarray(result)
            value.tensor.check(array.shape)
            try:
                data[value] = stored(as_dtype(value.name, array, value.dtype), value.tensor, half)
            except InputError as error:
                raise PlanError(str(error)) from error
            found.append(array.shape)
        else:
            found.append(_number(value.name, value.symint.kind, result))
    return Results(found, [(tensor, each) for tensor, each in data.items() if each.size])


def _number(name: str, kind: type, result: Any) -> Any:
    number = kind(result)
    if kind is int and not -(1 << 31) <= number < 1 << 31:
        raise PlanError(f"{name}: the number {number} does not fit 32 bits")
    return number


_NUMPY: dict[str, HostOperator] = {}


def host(*names: str, inputs: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a numpy function as the host operator of these exported names, with `inputs` arguments.

    Example: `@host("aten.trace.default", "aten::trace.out", inputs=1)`.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            _NUMPY[name] = HostOperator(name, inputs, False, (), lambda given, _: [function(*given)], "numpy")
        return function

    return register


@lru_cache(maxsize=1024)  # bounded: names come from untrusted files
def find_on_host(name: str) -> HostOperator | str:
    """The host fallback of an operator: numpy for a few, torch where it is installed; or why there is none.

    Example: `find_on_host("aten::cumprod.out").library == "numpy"`.
    """
    if name in _NUMPY:
        return _NUMPY[name]
    try:
        # Ctrl-C may interrupt a load here, and after half an import torch fails for good.
        torch_host = import_whole("liveshape.run.torch_host")
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            if name.startswith(("aten.", "aten::")):
                return "torch, which could compute it on the host, is not installed: pip install torch"
            return "nothing on the host knows it"
        return _broken(error)
    except Exception as error:
        return _broken(error)
    found: HostOperator | str = torch_host.torch_operator(name)
    return found


def _broken(error: Exception) -> str:
    return (
        f"torch, which could compute it on the host, cannot be imported ({type(error).__name__}: {error}): "
        "start Python anew, or install it again"
    )


def compile_with_host(
    graph: Graph, limits: Limits, choices: Choices | None = None, compiled: Compile = compile_measured
) -> Plan:
    """Compile a graph, with nodes that kernels refuse moved to the host where it supports all of them.

    `compiled` is how: `compile` leaves the nodes that are there.

    Example: `compile_with_host(lower(program, "forward", {}), device.limits)`.
    """
    try:
        return compiled(graph, limits, choices)
    except UnsupportedError as error:
        refused = {label for label, _ in error.details}
        instead = {node.index: find_on_host(node.name) for node in graph.nodes if node.label in refused}
        nodes = list(graph.nodes)
        for index, found in instead.items():
            node = nodes[index]
            if isinstance(found, str) or (found.arity, found.mutates) != (len(node.args), node.mutates):
                raise
            nodes[index] = found.bind(index, node.label, node.args, node.sources)
        if not instead:
            raise
    return compiled(replace(graph, nodes=tuple(nodes)), limits, choices)


# Host operators by exported name.


@host("aten.cumprod.default", "aten::cumprod.out", inputs=3)
def cumprod(x: Any, dim: int, dtype: Any) -> Any:
    # Integers and booleans promote to int64 unless a dtype is given.
    kind = np.dtype(np.int64) if x.dtype.kind in "iub" else x.dtype
    wide = _cast(x, kind if dtype is None else numpy_dtype(SCALAR_TYPES[dtype]))
    return np.cumprod(wide, dim, wide.dtype) if x.ndim else wide


def _cast(x: Any, wanted: np.dtype[Any]) -> Any:
    """As torch casts: a negative float becomes an unsigned integer modulo its range, on every processor."""
    if wanted.kind == "u" and x.dtype.kind in "fc":
        x = x.real.astype(np.int64)
    return x.astype(wanted)


@host("aten.trace.default", "aten::trace.out", inputs=1)
def trace(x: Any) -> Any:
    return np.trace(x)


@host("aten.gcd.default", "aten::gcd.out", inputs=2)
def gcd(a: Any, b: Any) -> Any:
    return np.gcd(a, b)


@host("aten.heaviside.default", "aten::heaviside.out", inputs=2)
def heaviside(x: Any, at_zero: Any) -> Any:
    # Not np.heaviside, which takes only floats and propagates NaN.
    return np.where(x == 0, at_zero, (x > 0).astype(at_zero.dtype))


@host("aten.linalg_cross.default", "aten::linalg_cross.out", inputs=3)
def linalg_cross(a: Any, b: Any, dim: int) -> Any:
    a, b = np.broadcast_arrays(a, b)
    return np.cross(a, b, axis=dim)
