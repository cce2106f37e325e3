"""RoPE tables (cos, sin) for another context length, recomputed from the RoPE scaling parameters in the file.

The parameters are verified by recomputing the tables that the file has.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from liveshape.errors import FormatError, UnsupportedError
from liveshape.export.decoder.context_parameters import METHOD, ContextParameters
from liveshape.export.decoder.rope import Rotation, inverse_frequencies, rotary_tables
from liveshape.graph import Graph, Tensor, Value
from liveshape.graph.constants import all_bytes

_DTYPES: dict[str, np.dtype[Any]] = {"float32": np.dtype("<f4"), "float16": np.dtype("<f2")}
# Tolerance for the same cosine computed on two machines, relative to the largest.
_TOLERANCE = {"float32": 1e-6, "float16": 1e-3}
# A frequency that another machine, or a page, has rounded otherwise turns further off with every position.
_DRIFT = 2.0**-22


def resized_tables(graph: Graph, context: int, rows: int, parameters: ContextParameters | None) -> dict[Value, Value]:
    """Replacements for the RoPE tables of a graph, with `rows` rows, for a context length.

    Without parameters the tables stay, and must be long enough.

    Example: `resized_tables(graph, 4096, 4096, parameters_of(constants))`.
    """
    found: dict[Value, Value] = {}
    for node in graph.nodes:
        declared = node.traits.tables
        for place, name in enumerate(() if declared is None else declared.tables):
            table = node.named[name]
            if table in found or not _is_table(graph, table):
                continue
            made = None if parameters is None else _recomputed(table, place, context, rows, parameters.rotation)
            if made is not None:
                found[table] = made
            elif table.max_shape[0] < rows:
                raise UnsupportedError(f"the rotary table of {node.label} ends at position {table.max_shape[0]:,}")
    return found


def changed_frequencies(parameters: ContextParameters | None, own: int, context: int) -> bytes:
    """The inverse frequencies for a context if they differ from those of the file's own; empty if they are equal.

    Example: `changed_frequencies(parameters_of(constants), 4096, 131072) == b""` but for longrope and dynamic scaling.
    """
    if parameters is None or own == context:
        return b""
    with _as_format_error():
        before, now = (inverse_frequencies(parameters.rotation, length).tobytes() for length in (own, context))
    return b"" if before == now else now


@contextmanager
def _as_format_error() -> Iterator[None]:
    """Invalid RoPE parameters raise a FormatError, since they come from the file."""
    try:
        with np.errstate(all="ignore"):
            yield
    except (ArithmeticError, ValueError) as error:
        raise FormatError(f"{METHOD} of the program describes no rotary embedding: {error}") from error


def _is_table(graph: Graph, table: Any) -> bool:
    fits = isinstance(table, Tensor) and table.rank == 2 and table.constant is not None and table.dtype in _DTYPES
    return fits and not graph.writers[table]


def _is_same(own: Any, stored: Any, tolerance: float) -> bool:
    """Whether two tables are of one rotation: early positions tell, late ones may have drifted apart."""
    scale = max(float(own.max(initial=1.0)), -float(own.min(initial=-1.0)))
    begin, end = 0, 1
    while begin < len(own):
        if not np.allclose(own[begin:end], stored[begin:end], rtol=0, atol=(tolerance + _DRIFT * end) * scale):
            return False
        begin, end = end, 2 * end
    return True


def _recomputed(table: Tensor, place: int, context: int, rows: int, rotation: Rotation) -> Tensor | None:
    """The table of cosines (place 0) or sines (1) for another context; None if it is not one of this rotation."""
    assert table.constant is not None
    length, width = table.max_shape
    if rotation.rotary_size != width or not length:
        return None
    dtype = _DTYPES[table.dtype]
    stored = np.frombuffer(all_bytes(table.constant), dtype).reshape(table.max_shape)
    # Layers with a sliding window may have a RoPE base of their own.
    for local in (False, True):
        with _as_format_error():
            own = rotary_tables(rotation, length, local)[place].astype(dtype)
            if not _is_same(own, stored, _TOLERANCE[table.dtype]):
                continue
            made = rotary_tables(rotation, context, local, rows)[place].astype(dtype)
        both = min(length, rows)
        if np.array_equal(made[:both], own[:both]):
            made[:both] = stored[:both]  # same angles: keep the file's rows bit-exact
        return replace(table, max_shape=(rows, width), constant=memoryview(made.tobytes()))
    return None
