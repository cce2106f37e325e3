"""The shipped block program as an ONNX file of the same weights, for runtimes that read no `.pte`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench import onnx_proto as onnx
from liveshape.formats.pte import open_program
from liveshape.graph import SymInt, Tensor
from liveshape.lower.lowering import examine


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
                    constants.append(onnx.constant(tensor.name, _numbers(tensor).T if linear else _numbers(tensor)))
            made, shapes = _node(node.name, node.args)
            nodes.append(made)
            constants += shapes
        inputs, outputs = (
            [_value(tensor) for tensor in tensors if isinstance(tensor, Tensor)]
            for tensors in (graph.inputs, graph.outputs)
        )
        return onnx.model("block", nodes, constants, inputs, outputs)


def _node(name: str, args: tuple[Any, ...]) -> tuple[bytes, list[bytes]]:
    """A node, and the constant of its shape if it has one."""
    *_, out = args
    first, *others = (each.name for each in args[:-1] if isinstance(each, Tensor))
    if name == "aten.view_copy.default":
        shape = np.array([-1 if isinstance(size, SymInt) else size for size in args[1]], np.int64)
        wanted = f"{out.name} shape"
        return onnx.node("Reshape", [first, wanted], [out.name]), [onnx.constant(wanted, shape)]
    kinds = {
        "aten.linear.default": "MatMul",
        "aten.bmm.default": "MatMul",
        "aten.mul.Tensor": "Mul",
        "aten.add.Tensor": "Add",
        "aten.sigmoid.default": "Sigmoid",
    }
    if name in kinds:
        return onnx.node(kinds[name], [first, *others], [out.name]), []
    if name == "aten.permute_copy.default":
        return onnx.node("Transpose", [first], [out.name], onnx.integers("perm", args[1])), []
    if name == "aten._softmax.default":
        return onnx.node("Softmax", [first], [out.name], onnx.integer("axis", args[1])), []
    if name == "et_vk.rms_norm.default":
        attributes = onnx.integer("axis", -1) + onnx.real("epsilon", args[2])
        return onnx.node("SimplifiedLayerNormalization", [first, *others], [out.name], attributes), []
    raise ValueError(f"there is no ONNX operator here for {name}")


def _numbers(tensor: Tensor) -> Any:
    data: Any = tensor.constant
    return np.frombuffer(data, tensor.dtype).reshape(tensor.max_shape)


def _value(tensor: Tensor) -> bytes:
    """An input or output: its second dimension is live."""
    return onnx.value(tensor.name, [1, "rows", *tensor.max_shape[2:]])
