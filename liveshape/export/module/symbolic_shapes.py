"""The input signature of a torch.export program: names, symbolic shapes with their ranges, and guards.

Torch is lax about sizes below 2, and about multiples that no guard states: the user's dynamic_shapes decide here.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from liveshape.formats.signature import (
    ARITHMETIC,
    COMPARISONS,
    MAX_DEPTH,
    MAX_GUARDS,
    MAX_SIZE,
    Guard,
    InputSignature,
    Signature,
    Size,
    depth,
)

_OPERATORS: Mapping[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_MOST_LETTERS = 800  # of a guard: all of them together stay below the reader's limit
_ASSUMED = 2  # 0/1 specialization: torch traces as if no size were below this, whatever was declared


def signature_of(program: Any, declared: Sequence[Any], paths: Sequence[str]) -> Signature:
    """The signature of an exported program's user inputs.

    `declared` is the dynamic_shapes entry of each input, `paths` its name in guards: `L['x'][0]`.

    Example: `signature_of(torch.export.export(module, args), [None], ["L['x']"])`.
    """
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    names = _symbol_names(nodes, specs, declared)
    inputs = []
    for spec, wanted in zip(specs, declared, strict=True):
        value: Any = nodes[spec.arg.name].meta.get("val") if spec.arg.name in nodes else None
        if hasattr(value, "shape"):
            axes = _by_axis(wanted, len(value.shape))
            sizes = (
                _size(dim, axis, program.range_constraints, names) for dim, axis in zip(value.shape, axes, strict=True)
            )
            inputs.append(InputSignature(spec.arg.name, tuple(sizes)))
        elif isinstance(value, (bool, int, float, str, type(None))) and hasattr(spec.arg, "value"):
            inputs.append(InputSignature(spec.arg.name, None, True, spec.arg.value))
        else:
            inputs.append(InputSignature(spec.arg.name))
    code = getattr(program, "_guards_code", None) or []
    guards = dict.fromkeys(guard for text in code for guard in _guards(text, paths))
    kept = [guard for guard in guards if depth(guard) <= MAX_DEPTH and len(str(guard)) <= _MOST_LETTERS]
    return Signature(tuple(inputs), tuple(kept[:MAX_GUARDS]))


# Sizes


def _by_axis(wanted: Any, rank: int) -> list[Any]:
    """The dynamic_shapes entry of each dim, from the mapping or the sequence that torch takes."""
    if isinstance(wanted, Mapping):
        return [wanted.get(axis) for axis in range(rank)]
    return list(wanted) if isinstance(wanted, (list, tuple)) and len(wanted) == rank else [None] * rank


def _symbol_names(nodes: Mapping[str, Any], specs: Sequence[Any], declared: Sequence[Any]) -> dict[Any, str]:
    """Names of torch's symbols: the user's Dim name if there is one, `batch` for `s77`."""
    found: dict[Any, str] = {}
    symbols: dict[Any, None] = {}
    for spec, wanted in zip(specs, declared, strict=True):
        shape = getattr(nodes[spec.arg.name].meta.get("val"), "shape", ()) if spec.arg.name in nodes else ()
        for dim, axis in zip(shape, _by_axis(wanted, len(shape)), strict=True):
            symbol = None if isinstance(dim, int) else _linear(dim.node.expr)[2]
            if symbol is None:
                continue
            symbols[symbol] = None
            name = getattr(getattr(axis, "root", axis), "__name__", None)
            if isinstance(name, str) and symbol not in found and name not in found.values():
                found[symbol] = name
    for symbol in symbols:
        name = str(symbol)
        while symbol not in found and name in found.values():
            name = f"_{name}"
        found.setdefault(symbol, name)
    return found


def _size(dim: Any, wanted: Any, ranges: Mapping[Any, Any], names: Mapping[Any, str]) -> Size:
    if isinstance(dim, int):
        return Size(dim, dim)
    expression = dim.node.expr
    if expression.is_Integer:
        return Size(int(expression), int(expression))
    scale, offset, symbol = _linear(expression)
    known = ranges.get(expression)
    least, most = (0, MAX_SIZE) if known is None else (_integer(known.lower, 0), _integer(known.upper, MAX_SIZE))
    if least <= _ASSUMED:
        least = max(0, getattr(wanted, "min", None) or 0)
    if symbol is None:
        # Torch's guards tie it to the sizes that it is computed from.
        return Size(least, most, str(expression))
    return Size(least, most, names[symbol], scale, offset)


def _integer(bound: Any, otherwise: int) -> int:
    """A bound of a range, which may be infinite."""
    finite = isinstance(bound, int) or getattr(bound, "is_Integer", False)
    return max(0, min(int(bound), MAX_SIZE)) if finite else otherwise


def _linear(expression: Any) -> tuple[int, int, Any]:
    """Scale, offset and symbol of `scale * symbol + offset`; the symbol is None where it is anything else."""
    offset, rest = expression.as_coeff_Add()
    scale, symbol = rest.as_coeff_Mul()
    if symbol.is_Symbol and scale.is_Integer and offset.is_Integer and scale >= 1:
        return int(scale), int(offset), symbol
    return 1, 0, None


# Guards


def _guards(text: str, paths: Sequence[str]) -> list[Guard]:
    """Parse a guard of torch into the file's form; empty if it is about more than sizes."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        parts = tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else [tree]
        return [_condition(part, paths) for part in parts]
    except (SyntaxError, _NotOfSizesError):
        return []


class _NotOfSizesError(Exception):
    """A guard on something other than sizes: strides, values, functions."""


def _condition(tree: ast.expr, paths: Sequence[str]) -> Guard:
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1 and _operator(tree.ops[0]) in COMPARISONS:
        return _operator(tree.ops[0]), _term(tree.left, paths), _term(tree.comparators[0], paths)
    raise _NotOfSizesError


def _term(tree: ast.expr, paths: Sequence[str]) -> Guard:
    if isinstance(tree, ast.Constant) and type(tree.value) is int and abs(tree.value) <= MAX_SIZE:
        return tree.value
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return "-", 0, _term(tree.operand, paths)
    if isinstance(tree, ast.BinOp) and _operator(tree.op) in ARITHMETIC:
        return _operator(tree.op), _term(tree.left, paths), _term(tree.right, paths)
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Pow) and ast.unparse(tree.right) == "2":
        return "*", _term(tree.left, paths), _term(tree.left, paths)
    if isinstance(tree, ast.Call) and ast.unparse(tree.func).lower() in ("min", "max") and len(tree.args) == 2:
        return ast.unparse(tree.func).lower(), _term(tree.args[0], paths), _term(tree.args[1], paths)
    if isinstance(tree, ast.Subscript) and isinstance(tree.slice, ast.Constant) and isinstance(tree.value, ast.Call):
        called = ast.unparse(tree.value)
        for place, path in enumerate(paths):
            if called == f"{path}.size()" and type(tree.slice.value) is int:
                return "size", place, tree.slice.value
    raise _NotOfSizesError


def _operator(tree: ast.AST) -> str:
    return _OPERATORS.get(type(tree), "")
