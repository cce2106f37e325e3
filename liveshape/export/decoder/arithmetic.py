"""Elementwise operators, activations, softmax, views and scalar constants of a decoder's graph."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from liveshape.export.file.delegate_blob import BlobTensor, DelegateBuilder, Shape
from liveshape.export.model.families import Activation
from liveshape.export.weights.matrices import Tensors


@dataclass
class Arithmetic:
    """Emits elementwise operators, views and scalar constants into one graph.

    Example: `Arithmetic(graph, tensors).scaled(x, 0.5)`.
    """

    graph: DelegateBuilder
    tensors: Tensors
    _numbers: dict[float, BlobTensor] = field(default_factory=dict)

    def add(self, one: BlobTensor, other: BlobTensor) -> BlobTensor:
        return self.graph.call("aten.add.Tensor", one, other, 1, shape=one.shape)

    def mul(self, one: BlobTensor, other: BlobTensor) -> BlobTensor:
        return self.graph.call("aten.mul.Tensor", one, other, shape=one.shape)

    def view(self, x: BlobTensor, shape: Shape) -> BlobTensor:
        return self.graph.call("aten.view_copy.default", x, shape, shape=shape)

    def permuted(self, x: BlobTensor, order: tuple[int, ...]) -> BlobTensor:
        return self.graph.call("aten.permute_copy.default", x, order, shape=tuple(x.shape[axis] for axis in order))

    def scaled(self, x: BlobTensor, factor: float) -> BlobTensor:
        """Multiply by a scalar; no operator for a factor of 1."""
        return x if factor == 1.0 else self.mul(x, self.number(factor))

    def capped(self, x: BlobTensor, cap: float, scale: float = 1.0) -> BlobTensor:
        """Soft cap (Gemma's logit softcapping): cap * tanh(x * scale / cap)."""
        pressed = self.scaled(x, scale / cap)
        return self.scaled(self.graph.call("aten.tanh.default", pressed, shape=x.shape), cap)

    def activated(self, x: BlobTensor, activation: Activation) -> BlobTensor:
        """The activation function of an MLP: SiLU, ReLU or GELU."""
        if activation == "silu":
            return self.mul(x, self.graph.call("aten.sigmoid.default", x, shape=x.shape))
        if activation == "relu":
            return self.graph.call("aten.relu.default", x, shape=x.shape)
        approximate = "tanh" if activation == "gelu_tanh" else "none"
        return self.graph.call("aten.gelu.default", x, approximate, shape=x.shape)

    def clamped_gate(self, gate: BlobTensor, up: BlobTensor, limit: float, gain: float) -> BlobTensor:
        """Clamped SwiGLU of gpt-oss: gate * sigmoid(gain * gate) * (up + 1), gate and up clamped to the limit."""
        gate = self.graph.call("aten.clamp.default", gate, None, limit, shape=gate.shape)
        up = self.graph.call("aten.clamp.default", up, -limit, limit, shape=up.shape)
        share = self.graph.call("aten.sigmoid.default", self.scaled(gate, gain), shape=gate.shape)
        return self.mul(self.mul(gate, share), self.add(up, self.number(1.0)))

    def softmax(self, x: BlobTensor) -> BlobTensor:
        """Softmax along the last dim."""
        return self.graph.call("aten._softmax.default", x, -1, False, shape=x.shape)

    def number(self, value: float) -> BlobTensor:
        """A scalar as a constant tensor of one element; equal scalars share one."""
        if value not in self._numbers:
            assert not math.isnan(value)
            constant = self.tensors.repeated(f"number.{value!r}", (1,), value)
            self._numbers[value] = self.graph.prepacked(constant)
        return self._numbers[value]
