"""Bindings that are accessed through functions: those above the device's limit, in segments that a function finds by
index, and those of bfloat16, which is stored in f32 and rounded by the setter.

The text of a kernel is rewritten for it; it must be free of comments, which may hold brackets and names of bindings.
"""

from __future__ import annotations

import re

from liveshape.kernels.accesses import accesses


def segment_functions(name: str, writes: bool, element: str, count: int, per_segment: int, rounds: bool = False) -> str:
    """Accessors that find the segment of an index, for a tensor above the device's binding limit.

    Where it `rounds`, stores round to the nearest bfloat16, ties to even.
    """
    value = f"{name}_rounded(v)" if rounds else "v"
    rounding = f"{_rounding(name, element)}\n" if rounds else ""
    if count == 1:
        text = f"fn {name}_at(i: u32) -> {element} {{ return {name}_0[i]; }}"
        return f"{rounding}{text}\nfn {name}_put(i: u32, v: {element}) {{ {name}_0[i] = {value}; }}"
    shift, mask = per_segment.bit_length() - 1, per_segment - 1
    cases = [f"case {segment}u: {{ return {name}_{segment}[i & {mask}u]; }}" for segment in range(count - 1)]
    cases.append(f"default: {{ return {name}_{count - 1}[i & {mask}u]; }}")
    text = f"fn {name}_at(i: u32) -> {element} {{ switch (i >> {shift}u) {{ {' '.join(cases)} }} }}"
    if writes:
        cases = [f"case {segment}u: {{ {name}_{segment}[i & {mask}u] = {value}; }}" for segment in range(count - 1)]
        cases.append(f"default: {{ {name}_{count - 1}[i & {mask}u] = {value}; }}")
        text += f"\nfn {name}_put(i: u32, v: {element}) {{ switch (i >> {shift}u) {{ {' '.join(cases)} }} }}"
    return rounding + text


def _rounding(name: str, element: str) -> str:
    vector = re.match(r"vec\d", element)
    bits = f"{vector.group()}<u32>" if vector else "u32"
    return (
        f"fn {name}_rounded(v: {element}) -> {element} {{ let bits = bitcast<{bits}>(v); "
        f"let nearest = (bits + {bits}(0x7fffu) + ((bits >> {bits}(16u)) & {bits}(1u))) & {bits}(0xffff0000u); "
        # By their bits: naga takes comparisons of numbers to be free of NaN.
        f"return select(bitcast<{element}>(nearest), v, (bits & {bits}(0x7fffffffu)) > {bits}(0x7f800000u)); }}"
    )


def use_segment_functions(text: str, name: str) -> str:
    """Rewrite `name[i]` to its accessor and `name[i] = v;` to its setter."""
    pieces, cursor = [], 0
    for access in accesses(text, (name,)):
        if access.start < cursor:
            continue
        index = use_segment_functions(access.subscript, name)
        pieces.append(text[cursor : access.start])
        assignment = re.match(r"\s*=(?!=)", text[access.end :])
        if assignment:
            start = access.end + assignment.end()
            stop = text.index(";", start)
            pieces.append(f"{name}_put({index}, {use_segment_functions(text[start:stop], name).strip()})")
            cursor = stop
        else:
            pieces.append(f"{name}_at({index})")
            cursor = access.end
    pieces.append(text[cursor:])
    return "".join(pieces)
