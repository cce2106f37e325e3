"""Sweeps that travel with the package: operators with inputs at several live shapes, and what torch gave for them.

All are in one file: a manifest, and the elements of all arrays one behind the other, by dtype. A zip of thousands of
small arrays would have more headers than numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from liveshape.check.node_arguments import read, written
from liveshape.disk import Path
from liveshape.errors import FormatError
from liveshape.graph import Graph, Node, SymInt, Tensor, Value
from liveshape.graph.constants import all_bytes
from liveshape.graph.elements import prod
from liveshape.ops import OPS
from liveshape.run.array_files import read_arrays
from liveshape.run.arrays import as_array

FILE = "sweeps.npz"
_VERSION = 1
_MANIFEST = "manifest"
_MAX_BYTES = 64 << 20  # of all elements, unpacked
_DAMAGED = "reinstall it: pip install --force-reinstall liveshape"


@dataclass(frozen=True)
class LiveCall:
    """What an operator reads at one live shape, and what it should write."""

    size: int  # what the sweep varies
    given: Mapping[Value, Any]
    want: Mapping[Value, Any]


@dataclass(frozen=True)
class Sweep:
    """An operator in one form, with calls at its bound and below."""

    name: str
    node: Node
    calls: tuple[LiveCall, ...]
    tolerance: float

    @property
    def values(self) -> tuple[Value, ...]:
        return tuple(dict.fromkeys((*self.node.inputs, *self.node.written)))

    @property
    def graph(self) -> Graph:
        """A program of this node alone."""
        return Graph(self.name, (self.node,), self.values, (), self.node.written)

    @property
    def family(self) -> str:
        """The module of `liveshape/ops` that has the operator."""
        return self.node.run.__module__.rsplit(".", 1)[-1]

    @property
    def dtypes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(value.dtype for value in self.values if isinstance(value, Tensor)))


def shipped_sweeps() -> list[Sweep]:
    """The sweeps that travel with the package.

    Example: `[sweep.name for sweep in shipped_sweeps() if sweep.family == "matmul"]`.
    """
    return load_sweeps(str(resources.files("liveshape.check").joinpath(FILE)))


def save_sweeps(path: Path, sweeps: Iterable[Sweep]) -> None:
    """Write sweeps, without pickles; the same sweeps give the same bytes.

    Example: `save_sweeps(Path("some.npz"), shipped_sweeps()[:9])`.
    """
    elements: dict[str, list[Any]] = {}
    rows = [_row(sweep, elements) for sweep in sweeps]
    manifest = json.dumps({"version": _VERSION, "sweeps": rows}, separators=(",", ":"))
    arrays: dict[str, Any] = {_MANIFEST: np.frombuffer(manifest.encode(), np.uint8)}
    arrays |= {kind: np.concatenate(elements[kind]) for kind in sorted(elements)}
    with open(path, "wb") as file:
        np.savez_compressed(file, **arrays)


def load_sweeps(path: Path) -> list[Sweep]:
    """Read what `save_sweeps` wrote; FormatError where it is damaged.

    Example: `load_sweeps(Path("some.npz"))[0].calls`.
    """
    try:
        arrays = _arrays(path)
        manifest = json.loads(arrays.pop(_MANIFEST).tobytes())
        if manifest["version"] != _VERSION:
            raise FormatError(f"{path} is of version {manifest['version']}, this liveshape reads {_VERSION}")
        elements = _Elements(arrays)
        sweeps = [_sweep(row, elements) for row in manifest["sweeps"]]
        elements.end()
    except FormatError:
        raise
    except FileNotFoundError:
        raise FormatError(f"{path}: this installation has no sweeps; {_DAMAGED}") from None
    except (KeyError, ValueError, TypeError, IndexError, OSError) as error:
        raise FormatError(f"{path} is damaged: {type(error).__name__}: {error}; {_DAMAGED}") from error
    return sweeps


def _arrays(path: Path) -> dict[str, Any]:
    try:
        return read_arrays(path, most=_MAX_BYTES)
    except FormatError as error:
        raise FormatError(f"{error}: the file is damaged; {_DAMAGED}") from error


class _Elements:
    """Arrays from the elements of their dtype, in the order in which they were written."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._arrays, self._taken = arrays, dict.fromkeys(arrays, 0)

    def take(self, kind: str, shape: Sequence[int]) -> Any:
        start, count = self._taken[kind], prod(tuple(shape))
        if min(shape, default=0) < 0 or start + count > self._arrays[kind].size:
            raise FormatError(f"an array {tuple(shape)} of {kind} is not in the file; {_DAMAGED}")
        self._taken[kind] += count
        return self._arrays[kind][start : start + count].reshape(tuple(shape))

    def end(self) -> None:
        """Raise if elements are left."""
        for kind, array in self._arrays.items():
            if self._taken[kind] != array.size:
                left = array.size - self._taken[kind]
                raise FormatError(f"{left} elements of {kind} belong to no array; {_DAMAGED}")


def _row(sweep: Sweep, elements: dict[str, list[Any]]) -> dict[str, Any]:
    """A sweep as the manifest has it; its arrays are appended to the elements."""
    values = sweep.values
    places = {value: place for place, value in enumerate(values)}
    described: list[dict[str, Any]] = []
    for value in values:
        if isinstance(value, Tensor):
            row: dict[str, Any] = {"name": value.name, "dtype": value.dtype, "shape": value.max_shape}
            if value.static:
                row["static"] = True
            if value.constant is not None:
                row["constant"] = _kept(np.frombuffer(all_bytes(value.constant), np.uint8), elements)
        else:
            assert isinstance(value, SymInt)
            row = {"name": value.name, "initial": value.initial}
        described.append(row)
    return {
        "name": sweep.name,
        "operator": sweep.node.name,
        "tolerance": sweep.tolerance,
        "values": described,
        "args": [written(argument, places) for argument in sweep.node.args],
        "calls": [
            [each.size, *(_written_held(held, places, elements) for held in (each.given, each.want))]
            for each in sweep.calls
        ],
    }


def _written_held(held: Mapping[Value, Any], places: Mapping[Value, int], elements: dict[str, list[Any]]) -> Any:
    return {places[value]: _kept(array, elements) for value, array in held.items()}


def _kept(array: Any, elements: dict[str, list[Any]]) -> Any:
    """A scalar itself, or dtype and shape of an array whose elements are appended."""
    if isinstance(array, (bool, int, float)):
        return array
    elements.setdefault(str(array.dtype), []).append(array.reshape(-1))
    return [str(array.dtype), list(array.shape)]


def _sweep(row: Mapping[str, Any], elements: _Elements) -> Sweep:
    values = [_value(each, elements) for each in row["values"]]
    name = row["operator"]
    if name not in OPS:
        raise FormatError(f"the operator {name} has no kernel here; {_DAMAGED}")
    args = tuple(read(argument, values) for argument in row["args"])
    calls = tuple(
        LiveCall(int(size), _held(given, values, elements), _held(want, values, elements))
        for size, given, want in row["calls"]
    )
    return Sweep(str(row["name"]), OPS[name].bind(0, name, args), calls, float(row["tolerance"]))


def _value(row: Mapping[str, Any], elements: _Elements) -> Value:
    if "initial" in row:
        return SymInt(row["name"], row["initial"])
    shape = tuple(int(size) for size in row["shape"])
    constant = memoryview(elements.take(*row["constant"]).tobytes()) if "constant" in row else None
    made = Tensor(row["name"], row["dtype"], shape, constant, bool(row.get("static", False)))
    if constant is not None:
        as_array(made)  # raises unless it has the bytes of its shape
    return made


def _held(held: Mapping[str, Any], values: Sequence[Value], elements: _Elements) -> dict[Value, Any]:
    return {
        values[int(place)]: elements.take(*kept) if isinstance(kept, list) else kept for place, kept in held.items()
    }
