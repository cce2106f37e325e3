"""The kernel of an expression: a text is generated for each, and for how each of its operands is found.

Kernels are cached by what they are generated from, so that one text is compiled once.
"""

from __future__ import annotations

from functools import lru_cache

from liveshape.graph.elements import is_complex, is_packed
from liveshape.graph.expression import Expression
from liveshape.kernels.function_library import needed
from liveshape.kernels.kernel import Kernel
from liveshape.kernels.pointwise_elements import array_of, loaded, stored
from liveshape.kernels.pointwise_operands import HELD, Operands
from liveshape.kernels.pointwise_text import statements


@lru_cache(maxsize=4096)
def pointwise_kernel(expression: Expression, operands: Operands, half: bool) -> Kernel:
    """The kernel that stores the results of an expression of its operands, four elements a thread.

    An operand that is held is what the memory of the first result holds.

    Example: `pointwise_kernel(expression, Operands(("float32",), ("same",)), half=True)`.
    """
    each_operand = zip(operands.names, operands.dtypes, operands.found, strict=True)
    held = [f"let {name} = {loaded(dtype, 'out', 'i')};" for name, dtype, how in each_operand if how == HELD]
    lines, results = statements(expression, operands.names, operands.number, half)
    outs = [("out", "TOut"), *kept_bindings(expression)]
    dtypes = [expression.dtype_of(place) for place in expression.results]
    body = [*held, *operands.loads("i"), *lines]
    for (name, alias), dtype, result in zip(outs, dtypes, results, strict=True):
        body += stored(dtype, name, alias, "i", result, "params.count")
    bindings = [("read_write", name, array_of(dtype, alias)) for (name, alias), dtype in zip(outs, dtypes, strict=True)]
    bindings += [("read", *each) for each in operands.arrays()]
    slots = [
        f"@group(0) @binding({slot}) var<storage, {access}> {name}: {kind};"
        for slot, (access, name, kind) in enumerate(bindings)
    ]
    plain = not any(is_packed(dtype) or is_complex(dtype) for dtype in dtypes)
    text = "\n".join(
        [
            *(["// composable: each vector is stored once."] if plain and not held else []),
            "override WG: u32 = 64;",
            "struct Params {",
            *(f"    {name}: {kind}," for name, kind in operands.fields(expression)),
            "}",
            *slots,
            needed(body),
            operands.functions(),
            "fn each(i: u32) {",
            "if (i <= (params.count - 1u) / 4u) {",
            *body,
            "}",
            "}",
            "#include common/each_in_runs",
        ]
    )
    return Kernel.parse(f"pointwise/{named(expression)}", text)


def kept_bindings(expression: Expression) -> list[tuple[str, str]]:
    """Name and element alias of the bindings for what it keeps beside its result.

    >>> kept_bindings(Expression(("float32",), (), ()))
    []
    """
    return [(f"kept_{place}", f"TKept{place}") for place in range(len(expression.kept))]


def named(expression: Expression) -> str:
    """What an expression is called in profiles and logs: its functions, the first ones of many.

    >>> from liveshape.graph.expression import Applied
    >>> named(Expression(("float32",), (), (Applied("exp", (0,), "float32"), Applied("neg", (1,), "float32"))))
    'exp+neg'
    """
    functions = expression.functions
    return "+".join(functions[:_MAX_NAMED]) + ("+more" if len(functions) > _MAX_NAMED else "")


_MAX_NAMED = 6
