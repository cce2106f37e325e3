"""Bindings above the device's limit: a tensor in parts, reached through functions that find the part of an index.

The text of a kernel is rewritten for it; it must be free of comments, which may hold brackets and names of bindings.
"""

from __future__ import annotations

import re

from liveshape.errors import PlanError


def segment_functions(name: str, writes: bool, element: str, count: int, per_segment: int) -> str:
    """Accessors that find the segment of an index, for a tensor above the device's binding limit."""
    shift, mask = per_segment.bit_length() - 1, per_segment - 1
    cases = [f"case {part}u: {{ return {name}_{part}[i & {mask}u]; }}" for part in range(count - 1)]
    cases.append(f"default: {{ return {name}_{count - 1}[i & {mask}u]; }}")
    text = f"fn {name}_at(i: u32) -> {element} {{ switch (i >> {shift}u) {{ {' '.join(cases)} }} }}"
    if writes:
        cases = [f"case {part}u: {{ {name}_{part}[i & {mask}u] = v; }}" for part in range(count - 1)]
        cases.append(f"default: {{ {name}_{count - 1}[i & {mask}u] = v; }}")
        text += f"\nfn {name}_put(i: u32, v: {element}) {{ switch (i >> {shift}u) {{ {' '.join(cases)} }} }}"
    return text


def use_segment_functions(text: str, name: str) -> str:
    """Rewrite `name[i]` to its accessor and `name[i] = v;` to its setter."""
    pieces, cursor = [], 0
    for match in re.finditer(rf"\b{name}\[", text):
        if match.start() < cursor:
            continue
        end = _closing(text, match.end() - 1)
        index = use_segment_functions(text[match.end() : end], name)
        pieces.append(text[cursor : match.start()])
        assignment = re.match(r"\s*=(?!=)", text[end + 1 :])
        if assignment:
            start = end + 1 + assignment.end()
            stop = text.index(";", start)
            pieces.append(f"{name}_put({index}, {use_segment_functions(text[start:stop], name).strip()})")
            cursor = stop
        else:
            pieces.append(f"{name}_at({index})")
            cursor = end + 1
    pieces.append(text[cursor:])
    return "".join(pieces)


def _closing(text: str, opening: int) -> int:
    depth = 0
    for position in range(opening, len(text)):
        depth += {"[": 1, "]": -1}.get(text[position], 0)
        if depth == 0:
            return position
    raise PlanError("unbalanced brackets in a kernel's text")
