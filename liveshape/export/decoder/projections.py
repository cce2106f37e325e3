"""Linear layers and embedding lookups: the operators for float, 8-bit and 4-bit group-quantized weights."""

from __future__ import annotations

from dataclasses import dataclass, field

from liveshape.export.file.delegate_blob import BlobTensor, DelegateBuilder, Shape, bound_of
from liveshape.export.weights.lazy_constants import Constant
from liveshape.export.weights.matrices import GroupedMatrix, Tensors

_BYTE = (-128, 127)


@dataclass
class Projections:
    """Emits linear layers and embeddings; `rounds_rows`: dynamic 8-bit activations for 4-bit weights (8da4w).

    Activation scales and group sums that several layers need of the same input are computed once.

    Example: `Projections(graph, tensors, rounds_rows=False).linear(x, "model.layers.0.self_attn.q_proj")`.
    """

    graph: DelegateBuilder
    tensors: Tensors
    rounds_rows: bool
    _flat: dict[int, BlobTensor] = field(default_factory=dict)
    _rounded: dict[int, tuple[BlobTensor, BlobTensor]] = field(default_factory=dict)
    _sums: dict[tuple[int, int], BlobTensor] = field(default_factory=dict)

    def linear(self, x: BlobTensor, name: str, apart: tuple[int, int] | None = None) -> BlobTensor:
        """Linear layer (..., K) -> (..., N), with the checkpoint's bias if any; `apart` splits N into two dims."""
        weight = f"{name}.weight"
        count = self.tensors.storage.shapes[weight][0]
        matrix = self.tensors.matrix(weight)
        bias = self._bias(name, count if matrix is None else matrix.rows)
        if matrix is None:
            out = self._plain_linear(x, self.graph.constant(self.tensors.plain(weight)), bias)
        elif matrix.layout.bits == 8:
            out = self._plain_linear(x, self._dequantized(matrix), bias)
        else:
            out = self._four_bit_linear(x, matrix, bias)
        if matrix is not None and matrix.layout.minima:
            out = self._add(self._shaped(out, (*x.shape[:-1], matrix.rows)), self._of_minima(x, matrix))
        if out.width != count:
            out = self._first(out, count)
        return self._shaped(out, (*x.shape[:-1], *(apart or (count,))))

    def exact_linear(self, x: BlobTensor, name: str) -> BlobTensor:
        """An unquantized linear layer, whatever the recipe: for small, sensitive weights such as an MoE router."""
        weight = self.graph.constant(self.tensors.plain(f"{name}.weight"))
        count = self.tensors.storage.shapes[f"{name}.weight"][0]
        return self._shaped(self._plain_linear(x, weight, self._bias(name, count)), (*x.shape[:-1], count))

    def exact_rows(self, ids: BlobTensor, name: str) -> BlobTensor:
        """Lookup (..., K) in an unquantized embedding table, whatever the recipe."""
        table = self.graph.constant(self.tensors.plain(f"{name}.weight"))
        return self._rows_of(table, ids, table.width)

    def embedding(self, tokens: BlobTensor, name: str) -> BlobTensor:
        """Token embedding lookup (..., K), dequantized."""
        weight = f"{name}.weight"
        matrix = self.tensors.matrix(weight, lookup=True)
        width = self.tensors.storage.shapes[weight][1]
        if matrix is None:
            return self._rows_of(self.graph.constant(self.tensors.plain(weight)), tokens, width)
        if matrix.layout.bits == 8:
            out = self._rows_of(self._dequantized(matrix), tokens, width)
        else:
            codes, scales = self.graph.constant(matrix.codes), self.graph.constant(matrix.scales)
            shape = (*tokens.shape, width)
            arguments = codes, scales, matrix.layout.group, tokens, True
            out = self.graph.call("et_vk.embedding_q4gsw.default", *arguments, shape=shape)
        return self._with_minima(out, tokens, matrix) if matrix.layout.minima else out

    def _bias(self, name: str, rows: int) -> BlobTensor | None:
        bias = f"{name}.bias"
        if not self.tensors.has(bias):
            return None
        count = self.tensors.storage.shapes[bias][0]
        constant: Constant = self.tensors.plain(bias) if count == rows else self.tensors.filled(bias, rows)
        return self.graph.constant(constant)

    def _plain_linear(self, x: BlobTensor, weight: BlobTensor, bias: BlobTensor | None) -> BlobTensor:
        """aten.linear on a 2-D input, which is what every runtime takes."""
        rows = self._flattened(x)
        shape = (rows.shape[0], weight.shape[0])
        return self.graph.call("aten.linear.default", rows, weight, bias, shape=shape)

    def _flattened(self, x: BlobTensor) -> BlobTensor:
        """(1, S, K) as (S, K)."""
        if len(x.shape) == 2:
            return x
        if x.id not in self._flat:
            assert bound_of(x.shape)[:-2] == (1,), f"rows of one sequence, not {bound_of(x.shape)}"
            self._flat[x.id] = self._view(x, x.shape[-2:])
        return self._flat[x.id]

    def _four_bit_linear(self, x: BlobTensor, matrix: GroupedMatrix, bias: BlobTensor | None) -> BlobTensor:
        codes, scales = self.graph.constant(matrix.codes), self.graph.constant(matrix.scales_by_group)
        group, shape = matrix.layout.group, (*x.shape[:-1], matrix.rows)
        if not self.rounds_rows:
            return self.graph.call("et_vk.linear_q4gsw.default", x, codes, scales, group, bias, shape=shape)
        scale, zero = self._row_scales(x)
        arguments = x, scale, zero, codes, self.graph.constant(matrix.sums), scales, group, bias
        return self.graph.call("et_vk.linear_dq8ca_q4gsw.default", *arguments, shape=shape)

    def _row_scales(self, x: BlobTensor) -> tuple[BlobTensor, BlobTensor]:
        """Scale and zero point of each row for dynamic 8-bit activation quantization."""
        if x.id not in self._rounded:
            block = (*(1 for _ in x.shape[:-1]), x.width)
            arguments = x, "ASYMMETRIC", block, None, *_BYTE, None, None, None, False
            rows = x.shape[:-1]
            found = self.graph.call_two(
                "torchao.choose_qparams_affine.default", *arguments, first=(rows, None), second=(rows, "int8")
            )
            self._rounded[x.id] = found
        return self._rounded[x.id]

    def _dequantized(self, matrix: GroupedMatrix) -> BlobTensor:
        """Dequantize 8-bit weights; liveshape fuses it into the linear or embedding that follows."""
        codes, scales = self.graph.constant(matrix.codes), self.graph.constant(matrix.scales)
        arguments = codes, (1, matrix.layout.group), scales, None, None, *_BYTE, None
        return self.graph.call("torchao.dequantize_affine.default", *arguments, shape=codes.shape)

    def _of_minima(self, x: BlobTensor, matrix: GroupedMatrix) -> BlobTensor:
        """The minima's contribution to an asymmetric linear: the activations' group sums times the minima."""
        minima = self.graph.constant(matrix.minima)
        shape = (*x.shape[:-1], matrix.rows)
        return self.graph.call("aten.linear.default", self._group_sums(x, matrix), minima, None, shape=shape)

    def _group_sums(self, x: BlobTensor, matrix: GroupedMatrix) -> BlobTensor:
        group = matrix.layout.group
        if (x.id, group) not in self._sums:
            apart = self._view(x, (*x.shape[:-1], matrix.groups, group))
            self._sums[x.id, group] = self.graph.call(
                "aten.sum.dim_IntList", apart, (-1,), False, None, shape=apart.shape[:-1]
            )
        return self._sums[x.id, group]

    def _with_minima(self, rows: BlobTensor, tokens: BlobTensor, matrix: GroupedMatrix) -> BlobTensor:
        """Add the minimum of each group to rows of an asymmetric embedding."""
        minima = self._rows_of(self.graph.constant(matrix.minima), tokens, matrix.groups)
        column = self._view(minima, (*minima.shape, 1))
        spread: Shape = (*minima.shape, matrix.layout.group)
        repeated = self.graph.call("aten.expand_copy.default", column, spread, False, shape=spread)
        return self._add(rows, self._view(repeated, rows.shape))

    def _rows_of(self, table: BlobTensor, tokens: BlobTensor, width: int) -> BlobTensor:
        shape = (*tokens.shape, width)
        return self.graph.call("aten.embedding.default", table, tokens, -1, False, False, shape=shape)

    def _add(self, one: BlobTensor, other: BlobTensor) -> BlobTensor:
        return self.graph.call("aten.add.Tensor", one, other, 1, shape=one.shape)

    def _shaped(self, x: BlobTensor, shape: Shape) -> BlobTensor:
        return x if x.shape == shape else self._view(x, shape)

    def _view(self, x: BlobTensor, shape: Shape) -> BlobTensor:
        return self.graph.call("aten.view_copy.default", x, shape, shape=shape)

    def _first(self, x: BlobTensor, count: int) -> BlobTensor:
        """Drop the padding outputs."""
        last = len(x.shape) - 1
        return self.graph.call("aten.slice_copy.Tensor", x, last, 0, count, 1, shape=(*x.shape[:-1], count))
