"""How a generated text loads and stores four neighbours, by the dtype of a tensor: bytes are packed in a word, and
complex numbers lie in two vectors."""

from __future__ import annotations

from liveshape.graph.elements import is_complex, is_packed
from liveshape.kernels.pointwise_text import scalar_of, vector_of


def array_of(dtype: str, alias: str) -> str:
    """The WGSL type of a binding of four elements an index, or of two complex ones.

    >>> array_of("float16", "T0"), array_of("uint8", "T0"), array_of("complex64", "T0")
    ('array<vec4<T0>>', 'array<u32>', 'array<vec4<f32>>')
    """
    return "array<u32>" if is_packed(dtype) else f"array<vec4<{'f32' if is_complex(dtype) else alias}>>"


def loaded(dtype: str, source: str, fours: str) -> str:
    """Four neighbours from the index of a vector on.

    >>> loaded("bool", "x", "i"), loaded("int8", "x", "i")
    ('vec4<i32>(x[i])', 'signed_bytes(x[i])')
    """
    if is_complex(dtype):
        return f"complex_four({source}[2u * ({fours})], {source}[2u * ({fours}) + 1u])"
    if is_packed(dtype):
        return f"{'' if dtype == 'int8' else 'un'}signed_bytes({source}[{fours}])"
    return f"{vector_of(dtype)}({source}[{fours}])"


def one(dtype: str, source: str, at: str) -> str:
    """An element; a complex one in all four places.

    >>> one("bool", "x", "i"), one("int8", "x", "i")
    ('i32(x[(i) >> 2u][(i) & 3u])', 'signed_byte(x[(i) >> 2u], (i) & 3u)')
    """
    if is_complex(dtype):
        return f"complex_all({source}[({at}) >> 1u], {at})"
    word = f"{source}[({at}) >> 2u]"
    if is_packed(dtype):
        return f"signed_byte({word}, ({at}) & 3u)" if dtype == "int8" else f"unsigned_bytes({word})[({at}) & 3u]"
    return f"{scalar_of(dtype)}({word}[({at}) & 3u])"


def placed(dtype: str, name: str, lane: str, element: str) -> list[str]:
    """The statements that put `one` element into a place of a variable."""
    if is_complex(dtype):
        return [f"{name}[{part}][{lane}] = {element}[{part}].x;" for part in (0, 1)]
    return [f"{name}[{lane}] = {element};"]


def stored(dtype: str, target: str, alias: str, fours: str, value: str, count: str) -> list[str]:
    """The statements that store four neighbours in a binding of that alias, of `count` elements in all."""
    if is_packed(dtype):
        return [f"{target}[{fours}] = packed({value});"]
    if not is_complex(dtype):
        return [f"{target}[{fours}] = vec4<{alias}>({value});"]
    return [
        f"{target}[2u * {fours}] = complex_halves({value})[0];",
        f"if (4u * {fours} + 2u < {count}) {{ {target}[2u * {fours} + 1u] = complex_halves({value})[1]; }}",
    ]
