"""The shipped block program as an ONNX file of the same weights, for runtimes that read no `.pte`."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

from liveshape.formats.pte import open_program
from liveshape.graph import SymInt, Tensor
from liveshape.lower.lowering import examine

_FLOAT, _INT64 = 1, 7  # of TensorProto
_OPSET = 17


def onnx_file(program: Path) -> bytes:
    """The method `forward` of a program of the operators below, with one live dimension.

    Example: `Path("block.onnx").write_bytes(onnx_file(shipped("demo")))`.
    """
    with open_program(program) as file:
        graph, problems = examine(file, "forward", {})
        assert not problems
        nodes, constants = [], []
        for node in graph.nodes:
            if node.name == "sym_size.int":
                continue
            for tensor in node.args:
                if isinstance(tensor, Tensor) and tensor.constant is not None:
                    linear = node.name == "aten.linear.default"
                    constants.append(_constant(tensor.name, _numbers(tensor).T if linear else _numbers(tensor)))
            made, shapes = _node(node.name, node.args)
            nodes.append(made)
            constants += shapes
        values = [_field(11, _value(tensor)) for tensor in graph.inputs if isinstance(tensor, Tensor)]
        values += [_field(12, _value(tensor)) for tensor in graph.outputs if isinstance(tensor, Tensor)]
        body = [_field(1, node) for node in nodes] + [_field(5, each) for each in constants] + values
        whole = b"".join([_field(2, b"block"), *body])
    return _field(1, 8) + _field(8, _field(1, b"") + _field(2, _OPSET)) + _field(7, whole)


def _node(name: str, args: tuple[Any, ...]) -> tuple[bytes, list[bytes]]:
    """A node, and the constant of its shape if it has one."""
    *_, out = args
    first, *others = (each.name for each in args[:-1] if isinstance(each, Tensor))
    if name == "aten.view_copy.default":
        shape = np.array([-1 if isinstance(size, SymInt) else size for size in args[1]], np.int64)
        return _call("Reshape", [first, f"{out.name} shape"], out.name), [_constant(f"{out.name} shape", shape)]
    kinds = {
        "aten.linear.default": "MatMul",
        "aten.bmm.default": "MatMul",
        "aten.mul.Tensor": "Mul",
        "aten.add.Tensor": "Add",
        "aten.sigmoid.default": "Sigmoid",
    }
    if name in kinds:
        return _call(kinds[name], [first, *others], out.name), []
    if name == "aten.permute_copy.default":
        return _call("Transpose", [first], out.name, _integers("perm", args[1])), []
    if name == "aten._softmax.default":
        return _call("Softmax", [first], out.name, _integer("axis", args[1])), []
    if name == "et_vk.rms_norm.default":
        attributes = _integer("axis", -1) + _float("epsilon", args[2])
        return _call("SimplifiedLayerNormalization", [first, *others], out.name, attributes), []
    raise ValueError(f"there is no ONNX operator here for {name}")


def _numbers(tensor: Tensor) -> Any:
    data: Any = tensor.constant
    return np.frombuffer(data, tensor.dtype).reshape(tensor.max_shape)


# Protocol buffers


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _call(kind: str, inputs: list[str], output: str, attributes: bytes = b"") -> bytes:
    names = b"".join(_field(1, name.encode()) for name in inputs)
    return names + _field(2, output.encode()) + _field(3, output.encode()) + _field(4, kind.encode()) + attributes


def _integer(name: str, value: int) -> bytes:
    return _field(5, _field(1, name.encode()) + _field(3, value) + _field(20, 2))


def _float(name: str, value: float) -> bytes:
    return _field(5, _field(1, name.encode()) + _varint(2 << 3 | 5) + struct.pack("<f", value) + _field(20, 1))


def _integers(name: str, values: tuple[int, ...]) -> bytes:
    return _field(5, _field(1, name.encode()) + b"".join(_field(8, value) for value in values) + _field(20, 7))


def _constant(name: str, array: Any) -> bytes:
    kind = _INT64 if array.dtype == np.int64 else _FLOAT
    sizes = b"".join(_field(1, size) for size in array.shape)
    return sizes + _field(2, kind) + _field(8, name.encode()) + _field(9, np.ascontiguousarray(array).tobytes())


def _value(tensor: Tensor) -> bytes:
    """An input or output: its second dimension is live."""
    sizes = [_field(1, 1), _field(2, b"rows"), *(_field(1, size) for size in tensor.max_shape[2:])]
    shape = b"".join(_field(1, size) for size in sizes)
    return _field(1, tensor.name.encode()) + _field(2, _field(1, _field(1, _FLOAT) + _field(2, shape)))
