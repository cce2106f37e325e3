"""The kernels of a 4-bit linear layer: by how many rows there are, by what the rows are, and by their epilogue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from liveshape.graph.expression import Expression
from liveshape.kernels import Kernel


class Q4Epilogue(NamedTuple):
    """The kernels with an epilogue, by name, and the values that it takes.

    It may quantize units of a workgroup, so many together; that of pairs of columns stores a `gate` of each.
    """

    kernels: Mapping[str, Kernel]
    quantized_units: int = 0
    values: tuple[tuple[str, Any], ...] = ()
    gate: Expression | None = None

    def of(self, **values: Any) -> Q4Epilogue:
        """The same with these values."""
        return self._replace(values=(*self.values, *values.items()))


# By name, the file and its choices.
_FLOATS = {
    "gemv": ("gemv", {}),
    "staged_gemv": ("gemv", {"ROW": "staged"}),  # with its row in workgroup memory
    "normed_staged_gemv": ("gemv", {"ROW": "rms"}),  # and with its RMSNorm in the prologue
    "few_rows": ("few_rows", {}),
    "tiles": ("tiles", {}),
    "matrix_tiles": ("matrix_tiles", {}),  # rows and weight as halves, by matrix units
    "combine_splits": ("combine_splits", {}),  # the partial sums of split-K
}
_INT8 = {"OPERANDS": "int8"}
_QUANTIZED_ROW = {
    "int8_gemv": ("gemv", _INT8),
    "quantizing_gemv": ("gemv", _INT8 | {"ROW": "staged"}),  # every workgroup quantizes the row in its prologue
}
_QUANTIZED = _QUANTIZED_ROW | {
    # The RMSNorm scale is applied in the epilogue, from the sum of squares of the row.
    "normed_int8_gemv": ("gemv", _INT8 | {"TOTAL": "sums_and_squares"}),
    "normed_quantizing_gemv": ("gemv", _INT8 | {"ROW": "rms"}),
    "int8_few_rows": ("few_rows", _INT8),
    "int8_tiles": ("tiles", _INT8),
    "combine_splits": ("combine_splits", {}),
}


GATED_UNITS, RESIDUAL_UNITS = 16, 8  # of four columns, that have the 32 neighbours of a scale


def _with(epilogue: str, names: Mapping[str, tuple[str, dict[str, str]]], units: int = 0, **choices: str) -> Q4Epilogue:
    """The kernels with this epilogue of q4/epilogue.wgsl, and its other choices."""
    given = {"EPILOGUE": epilogue} | choices
    return Q4Epilogue({name: Kernel.load(f"q4/{file}", **given, **own) for name, (file, own) in names.items()}, units)


STORE, SPLIT_K, QKV, ROTARY, RESIDUAL, GATED = (
    _with(epilogue, _FLOATS | _QUANTIZED) for epilogue in ("store", "split_k", "qkv", "rotary", "residual", "gated")
)
ROTARY_BY_TABLE = _with("rotary", _FLOATS | _QUANTIZED, POSITIONS="table")
GATED_QUANTIZED = _with("gated_quantized", _QUANTIZED, GATED_UNITS)
RESIDUAL_QUANTIZED = _with("residual_quantized", _QUANTIZED_ROW, RESIDUAL_UNITS)  # of one row
