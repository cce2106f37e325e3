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
from liveshape.kernels.pointwise_operands import Operands
from liveshape.kernels.pointwise_text import statements


@lru_cache(maxsize=4096)
def pointwise_kernel(expression: Expression, operands: Operands, half: bool, in_place: bool = False) -> Kernel:
    """The kernel that stores the results of an expression of its operands, four elements a thread.

    Where it works `in_place`, its first operand is what `out` holds, and `operands` are the others.

    Example: `pointwise_kernel(expression, Operands(("float32",), ("same",)), half=True)`.
    """
    loads, names = operands.loads("i")
    before = [f"let before = {loaded(expression.operands[0], 'out', 'i')};"] if in_place else []
    lines, results = statements(expression, ["before", *names] if in_place else names, operands.number, half)
    outs = [("out", "TOut"), *kept_bindings(expression)]
    dtypes = [expression.dtype_of(place) for place in expression.results]
    body = [*before, *loads, *lines]
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
            *(["// composable: each vector is stored once."] if plain and not in_place else []),
            "override WG: u32 = 64;",
            "struct Params {",
            *(f"    {name}: {kind}," for name, kind in operands.fields(expression)),
            "}",
            *slots,
            f"@group(0) @binding({len(bindings)}) var<uniform> params: Params;",
            needed(body),
            operands.functions(),
            _ENTRY.replace("BODY", "\n    ".join(body)),
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
_ENTRY = """
override THREAD_RUN: u32 = 0; // as in common/each_in_runs.wgsl

fn each(i: u32) {
    BODY
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let last = (params.count - 1u) / 4u;
#if THREAD_RUN
    let first = group_index(group, grid) * WG * THREAD_RUN + thread;
    for (var i = first; i <= min(first + WG * (THREAD_RUN - 1u), last); i += WG) {
        each(i);
    }
#else
    let i = group_index(group, grid) * WG + thread;
    if (i <= last) {
        each(i);
    }
#endif
}
"""
