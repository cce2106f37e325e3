"""Rotary tables of another length: the rows of the file, and more by the arithmetic that made them.

A file says how its tables are made. That it says the truth is seen by making those that it has.
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
# How far the same cosine may be apart on two machines, as a share of the largest.
_APART = {"float32": 1e-6, "float16": 1e-3}


def longer_tables(graph: Graph, context: int, rows: int, parameters: ContextParameters | None) -> dict[Value, Value]:
    """The tables of a graph for a context, of so many rows, by the name of those that they replace.

    Without parameters tables stay as they are, and must be long enough.

    Example: `longer_tables(graph, 4096, 4096, parameters_of(constants))`.
    """
    found: dict[Value, Value] = {}
    for node in graph.nodes:
        declared = node.traits.tables
        for place, name in enumerate(() if declared is None else declared.tables):
            table = node.named[name]
            if table in found or not _is_table(graph, table):
                continue
            made = None if parameters is None else _remade(table, place, context, rows, parameters.rotation)
            if made is not None:
                found[table] = made
            elif table.max_shape[0] < rows:
                raise UnsupportedError(f"the rotary table of {node.label} ends at position {table.max_shape[0]:,}")
    return found


def turned_otherwise(parameters: ContextParameters | None, own: int, context: int) -> bytes:
    """What tells the rotation in a context from that in the file's own one; nothing where they are the same.

    Example: `turned_otherwise(parameters_of(constants), 4096, 131072) == b""` but for longrope and dynamic scaling.
    """
    if parameters is None:
        return b""
    with _sound():
        before, now = (inverse_frequencies(parameters.rotation, length).tobytes() for length in (own, context))
    return b"" if before == now else now


@contextmanager
def _sound() -> Iterator[None]:
    """Numbers of a file that no rotation has are its fault, not the arithmetic's."""
    try:
        with np.errstate(all="ignore"):
            yield
    except (ArithmeticError, ValueError) as error:
        raise FormatError(f"{METHOD} of the program describes no rotary embedding: {error}") from error


def _is_table(graph: Graph, table: Any) -> bool:
    fits = isinstance(table, Tensor) and table.rank == 2 and table.constant is not None and table.dtype in _DTYPES
    return fits and not graph.writers[table]


def _remade(table: Tensor, place: int, context: int, rows: int, rotation: Rotation) -> Tensor | None:
    """A table of cosines (place 0) or sines (1) for another context, if it is one of this rotation."""
    assert table.constant is not None
    length, width = table.max_shape
    if rotation.rotary_size != width or not length:
        return None
    dtype = _DTYPES[table.dtype]
    stored = np.frombuffer(all_bytes(table.constant), dtype).reshape(table.max_shape)
    # A table is that of all layers, or of those with a window, which may turn otherwise.
    for local in (False, True):
        with _sound():
            own = rotary_tables(rotation, length, local)[place].astype(dtype)
            scale = float(np.abs(own).max(initial=1.0))
            if not np.allclose(own, stored, rtol=0, atol=_APART[table.dtype] * scale):
                continue
            made = rotary_tables(rotation, context, local, rows)[place].astype(dtype)
        both = min(length, rows)
        if np.array_equal(made[:both], own[:both]):
            made[:both] = stored[:both]  # the same angles: rows of the file stay what they are, to the last bit
        return replace(table, max_shape=(rows, width), constant=memoryview(made.tobytes()))
    return None
