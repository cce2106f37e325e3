"""A node that diverged as a file: operator, arguments, what it read and what was expected, to run it alone again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from liveshape.check.differences import Difference, difference
from liveshape.check.node_arguments import read, written
from liveshape.check.single_node import SingleNode
from liveshape.device.protocol import Device
from liveshape.disk import Path
from liveshape.errors import FormatError, InputError, LiveshapeError
from liveshape.graph import Graph, Node, SymInt, Tensor, Value
from liveshape.graph.activation_kinds import FLOAT16, FLOAT32, check_activations, with_rounding
from liveshape.graph.constants import all_bytes
from liveshape.graph.elements import supported
from liveshape.ops import OPS
from liveshape.run.array_files import read_arrays
from liveshape.run.arrays import as_array

_VERSION = 1
_META = "case"
_META_BYTES = 1 << 22  # of its description
_FREE_BYTES, _MAX_RATIO = 1 << 26, 16  # of arrays: so many whatever the file is, and so many for each of its bytes


@dataclass(frozen=True)
class Case:
    """A node, what it read, what its reference gives, and the kind of activations that it ran with."""

    node: Node
    given: Mapping[Value, Any]
    want: Mapping[Value, Any]
    tolerance: float
    activations: str = FLOAT32

    def save(self, path: Path) -> None:
        """Write a `.npz` without pickles."""
        values = list(dict.fromkeys((*self.node.inputs, *self.node.written)))
        places = {value: place for place, value in enumerate(values)}
        arrays: dict[str, Any] = {}
        described = []
        for place, value in enumerate(values):
            constant = isinstance(value, Tensor) and value.constant is not None
            if isinstance(value, Tensor):
                described.append({"dtype": value.dtype, "shape": value.max_shape, "constant": constant})
                if value.constant is not None:
                    arrays[f"constant {place}"] = np.frombuffer(all_bytes(value.constant), np.uint8)
            elif isinstance(value, SymInt):
                described.append({"initial": value.initial})
            described[-1]["name"] = value.name
            if value in self.given:
                arrays[f"given {place}"] = np.asarray(self.given[value])
            if value in self.want:
                arrays[f"want {place}"] = np.asarray(self.want[value])
        meta = {
            "version": _VERSION,
            "operator": self.node.name,
            "label": self.node.label,
            "tolerance": self.tolerance,
            "activations": self.activations,
            "values": described,
            "args": [written(argument, places) for argument in self.node.args],
        }
        arrays[_META] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
        with open(path, "wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> Case:
        """Read what `save` wrote.

        Example: `Case.load(Path("case.npz")).replay(device)`.
        """
        try:
            size = os.stat(path).st_size
            meta = json.loads(read_arrays(path, [_META], _META_BYTES)[_META].tobytes())
            if meta["version"] != _VERSION:
                raise FormatError(f"{path} is of version {meta['version']}, this liveshape reads {_VERSION}")
            count = range(len(meta["values"]))
            named = {f"{kind} {place}" for kind in ("constant", "given", "want") for place in count}
            # What compresses better than any numbers of a program is no case.
            arrays = read_arrays(path, named, _FREE_BYTES + _MAX_RATIO * size)
            values = [_value(place, row, arrays) for place, row in enumerate(meta["values"])]
            args = tuple(read(argument, values) for argument in meta["args"])
            name, label, tolerance = str(meta["operator"]), str(meta["label"]), float(meta["tolerance"])
            activations = str(meta.get("activations", FLOAT32))
            check_activations(activations, (FLOAT32, FLOAT16))
            if name not in OPS:
                raise FormatError(f"{path} is of the operator {name}, which has no kernel here")
            node = OPS[name].bind(0, label, args)
            given, want = (_held(kind, values, arrays) for kind in ("given", "want"))
            if others := [value.name for value in want if value not in node.written]:
                raise FormatError(f"{path} expects values that {label} does not write: {', '.join(others)}")
        except FileNotFoundError:
            raise InputError(f"{path}: there is no such file; `liveshape check --save FILE` writes one") from None
        except LiveshapeError:
            raise
        except Exception as error:  # whatever a part is that has the wrong type, or is not there
            reason = f"{type(error).__name__}: {error}"
            raise FormatError(f"{path} is no case of `liveshape check --save`, or is damaged: {reason}") from error
        return cls(node, given, want, tolerance, activations)

    def replay(self, device: Device) -> tuple[list[str], dict[str, Difference | None]]:
        """Run it alone: the kernels, and how each of its values differs, by name."""
        values = tuple(dict.fromkeys((*self.node.inputs, *self.node.written)))
        graph = Graph("case", (self.node,), values, (), self.node.written)
        single = SingleNode(graph, self.node, device, with_rounding(device.limits, self.activations))
        try:
            lacking = [value.name for value in single.reads if value not in self.given]
            if lacking:
                raise FormatError(f"the case of {self.node.label} does not have what it reads: {', '.join(lacking)}")
            got = single.run(self.given)
            found = {
                value.name: difference(
                    got[value], want, value.dtype if isinstance(value, Tensor) else "int64", self.tolerance
                )
                for value, want in self.want.items()
            }
            return single.kernels, found
        finally:
            single.close()


def _value(place: int, row: Mapping[str, Any], arrays: Mapping[str, Any]) -> Value:
    if "initial" in row:
        if not isinstance(row["initial"], (bool, int, float)):
            raise FormatError(f"value {place}: a number was expected, {row['initial']!r} was given")
        return SymInt(str(row["name"]), row["initial"])
    tensor = Tensor(str(row["name"]), str(row["dtype"]), tuple(int(size) for size in row["shape"]))
    if not supported(tensor.dtype) or min(tensor.max_shape, default=0) < 0:
        raise FormatError(f"value {place}: there are no tensors of {tensor.dtype} {tensor.max_shape}")
    if not row["constant"]:
        return tensor
    made = replace(tensor, constant=memoryview(arrays[f"constant {place}"].tobytes()))
    as_array(made)  # raises unless it has the bytes of its shape
    return made


def _held(kind: str, values: list[Value], arrays: Mapping[str, Any]) -> dict[Value, Any]:
    found = {value: arrays[f"{kind} {place}"] for place, value in enumerate(values) if f"{kind} {place}" in arrays}
    for value, array in found.items():
        if array.dtype.kind not in "biufc":
            raise FormatError(f"{kind} {value.name} is of {array.dtype}: numbers were expected")
    return {value: array.item() if isinstance(value, SymInt) else array for value, array in found.items()}
