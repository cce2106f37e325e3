"""The operators that patterns look for and put in their place: the one list of names outside of `ops/`.

A pattern knows the arguments of each operator of it, so it names them. Everything else asks for traits.
"""

from __future__ import annotations

from liveshape.ops import OPS

# As exporters write them
ADD = "aten.add.Tensor"
MUL = "aten.mul.Tensor"
SUB = "aten.sub.Tensor"
BELOW = "aten.lt.Scalar"
AND = "aten.logical_and.default"
COUNT = "aten.arange.start_step"
SIGMOID = "aten.sigmoid.default"
VIEW = "aten.view_copy.default"
NORM = "et_vk.rms_norm.default"
LINEAR = frozenset({"aten.linear.default", "aten::linear.out"})
LINEAR_Q4 = "et_vk.linear_q4gsw.default"
LINEAR_OF_BYTES = "et_vk.linear_dq8ca_q4gsw.default"
EMBEDDING = frozenset({"aten.embedding.default", "aten::embedding.out"})
EMBEDDING_Q4 = "et_vk.embedding_q4gsw.default"
EMBEDDING_BYTES = "quantized_decomposed.embedding_byte.dtype"
DEQUANTIZE = "torchao.dequantize_affine.default"
SUM = frozenset({"aten.sum.dim_IntList", "aten::sum.IntList_out"})
EXPAND = frozenset({"aten.expand_copy.default", "aten::expand_copy.out"})
ROTARY = frozenset({"et_vk.apply_rotary_emb_hf.default", "et_vk.apply_rotary_emb.default"})
ATTENTION_WITH_UPDATE = "sdpa_with_kv_cache.default"
ATTENTION = "custom_sdpa.default"

# As patterns make them
SWIGLU = "liveshape.swiglu"
ADDED_NORM = "liveshape.add_rms_norm"
ROTARY_TO_CACHE = "liveshape.rotary_to_cache"
THREE_LAYERS = "liveshape.three_linear_q4gsw"
GATED_LAYERS = "liveshape.gated_linear_q4gsw"
TURNED_LAYERS = "liveshape.turned_linear_q4gsw"
ADDED_LAYER = "liveshape.added_linear_q4gsw"
ROUNDED_ADDED_LAYER = "liveshape.rounded_added_linear_q4gsw"
EMBEDDING_WITH_MINIMA = "liveshape.embedding_with_minima"
ROUNDED_ROWS = "liveshape.rounded_rows"
ROW_BYTES = "liveshape.row_bytes"
# Layers by the operator of these and the RMSNorm before them: as they are declared.
NORMED = {
    entry.traits.fused_from[-1]: name
    for name, entry in OPS.items()
    if entry.traits.product is not None and entry.traits.product.normed
}
