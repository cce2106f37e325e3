"""The operators that patterns match and those that replace them: the one list of names outside of `ops/`.

A pattern knows the arguments of each operator of it, so it names them. Everything else asks for traits.
"""

from __future__ import annotations

from liveshape.ops import OPS

# As exporters write them
ADD = "aten.add.Tensor"
MUL = "aten.mul.Tensor"
SUB = "aten.sub.Tensor"
LESS_THAN = "aten.lt.Scalar"
AT_LEAST = "aten.ge.Scalar"
AND = "aten.logical_and.default"
ARANGE = "aten.arange.start_step"
SIGMOID = "aten.sigmoid.default"
TANH = "aten.tanh.default"
LOG10 = "aten.log10.default"
WHERE = "aten.where.self"
MAXIMUM = "aten.amax.default"
SOFTMAX = "aten._softmax.default"
MATRICES = "aten.bmm.default"
PERMUTE = "aten.permute_copy.default"
VIEW = "aten.view_copy.default"
SIZE = "sym_size.int"
SQUEEZE, UNSQUEEZE = "aten.squeeze_copy.dim", "aten.unsqueeze_copy.default"
RMS_NORM = "et_vk.rms_norm.default"
CLAMPED_CONVOLUTION = frozenset({"et_vk.conv_with_clamp.default"})
LINEAR_Q4 = "et_vk.linear_q4gsw.default"
LINEAR_DQ8CA_Q4 = "et_vk.linear_dq8ca_q4gsw.default"
EMBEDDING_Q4 = "et_vk.embedding_q4gsw.default"
EMBEDDING_INT8 = "quantized_decomposed.embedding_byte.dtype"
DEQUANTIZE = "torchao.dequantize_affine.default"
SUM = frozenset({"aten.sum.dim_IntList", "aten::sum.IntList_out"})
ROTARY = frozenset({"et_vk.apply_rotary_emb_hf.default", "et_vk.apply_rotary_emb.default"})
UPDATE_CACHE = "update_cache.default"
ATTENTION_WITH_UPDATE = "sdpa_with_kv_cache.default"
ATTENTION = "custom_sdpa.default"
UPDATE = "liveshape.update_caches"

# Fused
POINTWISE = "liveshape.pointwise"
POINTWISE_RESULTS = "liveshape.pointwise_results"
COMPOSED = "liveshape.composed"
LOADED = "liveshape.loaded"
ADD_RMS_NORM = "liveshape.add_rms_norm"
ROTARY_TO_CACHE = "liveshape.rotary_to_cache"
QKV_LAYERS = "liveshape.qkv_linear_q4gsw"
GATED_LAYERS = "liveshape.gated_linear_q4gsw"
ROTARY_LAYERS = "liveshape.rotary_linear_q4gsw"
RESIDUAL_LAYER = "liveshape.residual_linear_q4gsw"
RESIDUAL_QUANTIZED_LAYER = "liveshape.residual_quantized_linear_q4gsw"
EMBEDDING_WITH_MINIMA = "liveshape.embedding_with_minima"
FAKE_QUANTIZE_ROWS = "liveshape.fake_quantize_rows"
QUANTIZE_ROWS = "liveshape.quantize_rows"
CHANNELS_LAST = "liveshape.channels_last"
PATCHES = "liveshape.patches"
CONVOLUTION_CHANNELS_LAST = "liveshape.channels_last_convolution"
GROUP_NORM_CHANNELS_LAST = "liveshape.channels_last_group_norm"
# From an operator to the one with the RMSNorm fused in, as `fused_from` declares it.
RMS_NORM_LAYERS = {
    entry.traits.fused_from[-1]: name
    for name, entry in OPS.items()
    if entry.traits.product is not None and entry.traits.product.normed
}


def spelled(*names: str) -> frozenset[str]:
    """Operators of aten by their names alone: every overload, and how an outer program calls it.

    >>> sorted(spelled("bmm"))
    ['aten.bmm.default', 'aten::bmm.out']
    """
    return frozenset(name for name in OPS if name.startswith("aten") and name.replace("::", ".").split(".")[1] in names)


# However they are spelled
LINEAR, CONVOLUTION, EMBEDDING = spelled("linear"), spelled("convolution"), spelled("embedding")
BATCH_NORM = spelled("_native_batch_norm_legit_no_training")
PERMUTES = spelled("permute_copy", "permute")
TRANSPOSES = spelled("transpose_copy", "transpose", "t_copy", "t")
EXPANDS = spelled("expand_copy")
SLICES = spelled("slice_copy")
SELECTS = spelled("select_copy")
CONCATENATIONS = spelled("cat")
SPLITS = spelled("split_copy", "split_with_sizes_copy", "unbind_copy", "chunk")
VIEWS = frozenset(name for name, entry in OPS.items() if entry.run is OPS[VIEW].run)
MATRIX_PRODUCTS = spelled("bmm", "mm", "matmul")
ADDMM = spelled("addmm")
# Whose result has the shape of the first argument, or that to which all of them broadcast
OF_ONE_SHAPE = spelled("_softmax", "_to_copy", "clone", "full_like")
LAYER_NORMS = spelled("native_layer_norm") | {"liveshape.layer_norm"}
REDUCTIONS = spelled("any", "all", "sum", "mean", "amax", "amin")
GROUP_NORMS = spelled("native_group_norm") | {"liveshape.group_norm"}
MAX_POOLS = spelled("max_pool2d", "max_pool2d_with_indices") | {"liveshape.channels_last_max_pool"}
AVERAGE_POOLS = spelled("avg_pool2d") | {"liveshape.channels_last_average_pool"}
NEAREST = {"aten.upsample_nearest2d.vec", "aten::upsample_nearest2d.vec_out", "liveshape.channels_last_nearest"}
WITH_CHANNELS_LAST = frozenset(entry.traits.channels_last for entry in OPS.values()) - {""}
MEANS = frozenset({"aten.mean.dim", "aten::mean.out"})
# Attention
SOFTMAXES = spelled("_softmax")
MULTIPLICATIONS = spelled("mul")
DIVISIONS = frozenset(name for name in spelled("div") if "mode" not in name)
ADDITIONS = spelled("add")
WHERES = spelled("where")
MASKED_FILLS = spelled("masked_fill")
COMPARISONS = spelled("eq")
AT_MOST = spelled("le")
CONJUNCTIONS = spelled("logical_and", "bitwise_and")
SUBTRACTIONS = frozenset(name for name in spelled("sub") if "Tensor" in name or name == "aten::sub.out")
NEGATIONS = spelled("logical_not")
ANY, ALL = spelled("any"), spelled("all")
FILLED = spelled("full_like", "zeros_like", "full", "zeros", "scalar_tensor")
ADDED_PRODUCTS = spelled("baddbmm")
SPELLED_ATTENTION = "liveshape.attention"
# Of live scalars
SCALAR_SUMS = frozenset({"add", "executorch_prim::add.Scalar"})
SCALAR_PRODUCTS = frozenset({"mul", "executorch_prim::mul.Scalar"})
SCALAR_QUOTIENTS = frozenset({"floordiv", "executorch_prim::floordiv.Scalar", "executorch_prim::floordiv.int"})

# Layout
PERMUTED_VIEW = "liveshape.permuted_view"
CLONE = "aten.clone.default"
