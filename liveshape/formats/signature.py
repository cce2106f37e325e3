"""Method signatures, for which `.pte` has no field: input names, and legal sizes (ranges, symbols, guards).

Stored as an extra method that returns one string, versioned JSON, so that every runtime can still load the file.
A size is an integer, or `scale * symbol + offset` with a range; a symbol has one value per call.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from liveshape.errors import UnsupportedError
from liveshape.formats.execution_plan import ExecutionPlan, TensorSpec
from liveshape.formats.flatbuffer import damaged

SIGNATURE = "liveshape_signature"
STATIC, DYNAMIC, UNKNOWN = "static", "dynamic", "unknown"  # status of a dimension
_VERSION = 1
_MAX_TEXT, _MAX_NAME, MAX_DEPTH = 1 << 20, 256, 32
MAX_GUARDS = 1024
MAX_SIZE = (1 << 31) - 1  # also the bound of an unbounded symbol
_MAX_FACTOR = 1 << 31

Guard = int | tuple[Any, ...]  # a constant, ("size", input, dimension), or (operator, left, right)
Scalar = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Size:
    """The legal sizes of a dimension: `scale * symbol + offset`, from `min` to `max`; without a symbol it is static.

    >>> str(Size(2, 16, "batch")), str(Size(4, 32, "batch", 2)), str(Size(3, 17, "batch", 1, 1))
    ('batch', '2 * batch', 'batch + 1')
    """

    min: int
    max: int
    symbol: str | None = None
    scale: int = 1
    offset: int = 0

    def __str__(self) -> str:
        if self.symbol is None:
            return str(self.max)
        scaled = self.symbol if self.scale == 1 else f"{self.scale} * {self.symbol}"
        sign = "+" if self.offset > 0 else "-"
        return f"{scaled} {sign} {abs(self.offset)}" if self.offset else scaled


@dataclass(frozen=True, slots=True)
class InputSignature:
    """One input: its name and legal sizes, or the value that the export has fixed."""

    name: str
    sizes: tuple[Size, ...] | None = None  # None for scalars and other values
    fixed: bool = False
    value: Scalar = None


@dataclass(frozen=True, slots=True)
class Signature:
    """The inputs of a method in order, and guards between their sizes.

    Example: `Signature((InputSignature("x", (Size(1, 43, "rows"), Size(8, 8))),))`.
    """

    inputs: tuple[InputSignature, ...]
    guards: tuple[Guard, ...] = ()


def _floordiv(left: int, right: int) -> int:
    return left // right if right else 0


def _mod(left: int, right: int) -> int:
    return left % right if right else 0


ARITHMETIC: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": _floordiv,
    "%": _mod,
    "min": min,
    "max": max,
}
COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def depth(term: Guard) -> int:
    """Nesting depth of a guard expression, which is limited in files.

    >>> depth(("==", ("%", ("size", 0, 0), 8), 0))
    2
    """
    if isinstance(term, int) or term[0] == "size":
        return 0
    return 1 + max(depth(term[1]), depth(term[2]))


# Writing


def signature_text(methods: Mapping[str, Signature]) -> str:
    """Serialize signatures to the JSON string in the file.

    Example: `signature_text({"forward": Signature((InputSignature("x", (Size(1, 43, "rows"),)),))})`.
    """
    document = {"version": _VERSION, "methods": {name: _written(each) for name, each in methods.items()}}
    return json.dumps(document, separators=(",", ":"))


def _written(signature: Signature) -> dict[str, Any]:
    inputs: list[dict[str, Any]] = []
    for each in signature.inputs:
        entry: dict[str, Any] = {"name": each.name}
        if each.sizes is not None:
            entry["dims"] = [_written_size(size) for size in each.sizes]
        elif each.fixed:
            entry["value"] = each.value
        inputs.append(entry)
    return {"inputs": inputs, "guards": list(signature.guards)} if signature.guards else {"inputs": inputs}


def _written_size(size: Size) -> Any:
    if size.symbol is None:
        return size.max
    entry: dict[str, Any] = {"symbol": size.symbol, "min": size.min}
    if size.max < MAX_SIZE:
        entry["max"] = size.max
    return entry | ({"scale": size.scale, "offset": size.offset} if (size.scale, size.offset) != (1, 0) else {})


# Reading: files are untrusted


def read_signatures(plans: Mapping[str, ExecutionPlan]) -> dict[str, Signature]:
    """Parse the signatures of a file's methods; empty where its exporter wrote none.

    Example: `read_signatures({plan.name: plan for plan in plans})["forward"].inputs[0].name`.
    """
    plan = plans.get(SIGNATURE)
    if plan is None:
        return {}
    results = [plan.values[index] for index in plan.outputs]
    if plan.inputs or plan.instructions or len(results) != 1 or not isinstance(results[0], str):
        raise damaged(SIGNATURE, "the method must return one string and take nothing")
    methods = _fields(_parsed(results[0]).get("methods"), f"{SIGNATURE}.methods")
    found = {}
    for name, entry in methods.items():
        if name not in plans:
            raise damaged(f"{SIGNATURE}.methods", f"{_shown(name)} is no method of the file")
        found[name] = _signature(_fields(entry, f"{SIGNATURE}.methods.{name}"), plans[name], f"{SIGNATURE}.{name}")
    return found


def assumed_signature(plan: ExecutionPlan) -> Signature:
    """Default signature of a method without one: static tensors are static, and so are sizes of 1, which exporters fix.

    Example: `assumed_signature(program.method("forward")).inputs[0].name == "input 0"`.
    """
    inputs = []
    for place, index in enumerate(plan.inputs):
        spec, name, sizes = plan.values[index], f"input {place}", None
        if isinstance(spec, TensorSpec):
            fixed = spec.dynamism == "static"
            sizes = tuple(
                Size(bound, bound) if fixed or bound <= 1 else Size(0, bound, f"{name}, dimension {axis}")
                for axis, bound in enumerate(spec.shape)
            )
        inputs.append(InputSignature(name, sizes))
    return Signature(tuple(inputs))


def _parsed(text: str) -> dict[str, Any]:
    if len(text) > _MAX_TEXT:
        raise damaged(SIGNATURE, f"{len(text):,} characters, at most {_MAX_TEXT:,} are allowed")
    try:
        document = _fields(json.loads(text), SIGNATURE)
    except (ValueError, RecursionError) as error:
        raise damaged(SIGNATURE, f"no JSON: {error}") from error
    version = document.get("version")
    if type(version) is not int or version < 1:
        raise damaged(f"{SIGNATURE}.version", f"{_shown(version)}, a number from 1 on is expected")
    if version > _VERSION:
        raise UnsupportedError(f"{SIGNATURE}.version: {version}, this version of liveshape reads {_VERSION}; update it")
    return document


def _signature(entry: Mapping[str, Any], plan: ExecutionPlan, path: str) -> Signature:
    given = _items(entry.get("inputs"), f"{path}.inputs", len(plan.inputs))
    if len(given) != len(plan.inputs):
        raise damaged(f"{path}.inputs", f"{len(given)} inputs, the method takes {len(plan.inputs)}")
    inputs: list[InputSignature] = []
    names: set[str] = set()
    for place, (each, index) in enumerate(zip(given, plan.inputs, strict=True)):
        where = f"{path}.inputs[{place}]"
        read = _input(_fields(each, where), plan.values[index], where)
        if read.name in names:
            raise damaged(f"{where}.name", f"a second input {read.name!r}, names must differ")
        names.add(read.name)
        inputs.append(read)
    guards = _items(entry.get("guards", []), f"{path}.guards", MAX_GUARDS)
    read_guards = tuple(
        _guard(guard, inputs, COMPARISONS, f"{path}.guards[{place}]", 0) for place, guard in enumerate(guards)
    )
    return Signature(tuple(inputs), read_guards)


def _input(entry: Mapping[str, Any], spec: Any, path: str) -> InputSignature:
    name = _name(entry.get("name"), f"{path}.name")
    if "dims" not in entry:
        if isinstance(spec, TensorSpec):
            raise damaged(f"{path}.dims", "there are none, and the input is a tensor")
        value = entry.get("value")
        if not isinstance(value, (bool, int, float, str, type(None))):
            raise damaged(f"{path}.value", f"{_shown(value)}, a number, a text or null is expected")
        return InputSignature(name, None, "value" in entry, value)
    if not isinstance(spec, TensorSpec):
        raise damaged(f"{path}.dims", "the input is no tensor")
    dims = _items(entry["dims"], f"{path}.dims", len(spec.shape))
    if len(dims) != len(spec.shape):
        raise damaged(f"{path}.dims", f"{len(dims)} dimensions, the tensor has {len(spec.shape)}")
    return InputSignature(
        name,
        tuple(
            _size(dim, bound, f"{path}.dims[{axis}]")
            for axis, (dim, bound) in enumerate(zip(dims, spec.shape, strict=True))
        ),
    )


def _size(entry: Any, bound: int, path: str) -> Size:
    if type(entry) is int:
        size = _number(entry, path, 0, MAX_SIZE)
        if size != bound:
            raise damaged(path, f"static at {size}, the file has {bound}")
        return Size(size, size)
    fields = _fields(entry, path)
    least = _number(fields.get("min", 0), f"{path}.min", 0, bound)
    return Size(
        least,
        # A symbol may have a wider range than the tensor's upper bound in the file.
        min(_number(fields.get("max", bound), f"{path}.max", least, MAX_SIZE), bound),
        _name(fields.get("symbol"), f"{path}.symbol"),
        _number(fields.get("scale", 1), f"{path}.scale", 1, _MAX_FACTOR),
        _number(fields.get("offset", 0), f"{path}.offset", -_MAX_FACTOR, _MAX_FACTOR),
    )


def _guard(
    entry: Any, inputs: Sequence[InputSignature], allowed: Mapping[str, Any], path: str, level: int
) -> tuple[Any, ...]:
    parts = _items(entry, path, 3)
    if len(parts) != 3 or level > MAX_DEPTH:
        raise damaged(path, f"an operator and two operands are expected, at most {MAX_DEPTH} deep")
    name, *operands = parts
    if name == "size" and allowed is ARITHMETIC:
        place = _number(operands[0], path, 0, len(inputs) - 1)
        return "size", place, _number(operands[1], path, 0, len(inputs[place].sizes or ()) - 1)
    if not isinstance(name, str) or name not in allowed:
        raise damaged(path, f"{_shown(name)} is no operator; {', '.join(allowed)} are")
    return name, *(
        _number(operand, path, -MAX_SIZE, MAX_SIZE)
        if type(operand) is int
        else _guard(operand, inputs, ARITHMETIC, path, level + 1)
        for operand in operands
    )


def _fields(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise damaged(path, f"{_shown(value)}, an object is expected")
    return value


def _items(value: Any, path: str, most: int) -> list[Any]:
    if not isinstance(value, list):
        raise damaged(path, f"{_shown(value)}, a list is expected")
    if len(value) > most:
        raise damaged(path, f"{len(value)} items, at most {most} are allowed")
    return value


def _name(value: Any, path: str) -> str:
    if not isinstance(value, str) or not value or len(value) > _MAX_NAME or not value.isprintable():
        raise damaged(path, f"{_shown(value)}, a printable name of 1 to {_MAX_NAME} characters is expected")
    return value


def _number(value: Any, path: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise damaged(path, f"{_shown(value)}, an integer from {least} to {most} is allowed")
    return value


def _shown(value: Any) -> str:
    # Huge integers and long strings are abbreviated.
    text = ascii(value) if not isinstance(value, int) or abs(value) < 1 << 64 else "a number above 64 bits"
    return text if len(text) <= 40 else f"{text[:40]}..."
