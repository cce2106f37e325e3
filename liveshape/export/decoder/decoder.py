"""The graph of a decoder-only transformer, in operator patterns that lowering fuses; families differ by config alone.

Activations keep the layout (1, S, heads, head size), so there are no transposes; the KV cache is state of the graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from liveshape.export.decoder.arithmetic import Arithmetic
from liveshape.export.decoder.attention_layer import Attention
from liveshape.export.decoder.context_parameters import METHOD, ContextParameters
from liveshape.export.decoder.experts import mixture
from liveshape.export.decoder.projections import Projections
from liveshape.export.decoder.rope import rotary_tables
from liveshape.export.file.delegate_blob import BlobTensor, DelegateBuilder, LiveInt
from liveshape.export.file.program_file import ProgramSpec, Result
from liveshape.export.model.config import ModelConfig
from liveshape.export.weights.matrices import Tensors
from liveshape.export.weights.storage import WeightStorage
from liveshape.formats.signature import SIGNATURE, InputSignature, Signature, Size, signature_text

_POSITION = InputSignature("input_pos", (Size(1, 1),))


@dataclass(frozen=True)
class Bounds:
    """Upper bounds of the graph: `piece`, the longest prefill chunk; `context`, the KV cache's length in tokens.

    `reach` is the largest context that the file may be loaded with: sliding windows that are shorter get masks.
    """

    piece: int
    context: int
    reach: int = 0

    @property
    def masked(self) -> int:
        """Sliding windows below this have masks."""
        return max(self.context, self.reach)


def decoder_program(
    config: ModelConfig, storage: WeightStorage, bounds: Bounds, half: bool, full_logits: bool, rounds_rows: bool
) -> ProgramSpec:
    """The program of a decoder: token ids (1, S) at input_pos (1,) to the logits of the last token, or of all.

    Example: `write_program(decoder_program(config, storage, Bounds(512, 2048), False, False, False), path)`.
    """
    graph = DelegateBuilder(half)
    tensors = Tensors(storage, graph.floats)
    tokens, position = graph.input((1, bounds.piece), "int32"), graph.input((1,), "int32", activation=False)
    decoder = Decoder(config, graph, tensors, bounds, rounds_rows)
    logits = decoder.logits(tokens, position, full_logits)
    graph.output(logits)
    inputs = [((1, decoder.length), "int64"), ((1,), "int64")]
    taken = Signature((InputSignature("tokens", (Size(1, 1), Size(1, bounds.piece, "length"))), _POSITION))
    methods = {**runner_methods(config, bounds), SIGNATURE: signature_text({"forward": taken})}
    return ProgramSpec(graph, tensors.batches(), inputs, [(logits.shape, "float32")], methods)


def runner_methods(config: ModelConfig, bounds: Bounds) -> dict[str, Result]:
    """Constant methods with the metadata that ExecuTorch's LLM runners query before running."""
    methods: dict[str, Result] = {
        "get_max_seq_len": bounds.piece,
        "get_max_context_len": bounds.context,
        "get_n_layers": config.layers,
        "get_vocab_size": config.vocabulary,
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": True,
        "enable_dynamic_shape": True,
        METHOD: ContextParameters.of(config, bounds.masked).text(),
    }
    # Without these, runners take the BOS and EOS ids from the tokenizer.
    if config.begin is not None:
        methods["get_bos_id"] = config.begin
    if config.ends:
        methods["get_eos_ids"] = list(config.ends)
    return methods


class Decoder:
    """Builds the graph of one decoder: embedding, transformer layers, final norm, LM head."""

    length: LiveInt  # S, the tokens of a call
    position: LiveInt  # of the first of them
    attention: Attention

    def __init__(
        self, config: ModelConfig, graph: DelegateBuilder, tensors: Tensors, bounds: Bounds, rounds_rows: bool
    ) -> None:
        self.config, self.graph, self.tensors, self.bounds = config, graph, tensors, bounds
        self.projections = Projections(graph, tensors, rounds_rows)
        self.arithmetic = Arithmetic(graph, tensors)

    def logits(self, tokens: BlobTensor, position: BlobTensor, full: bool) -> BlobTensor:
        """Logits (1, vocabulary) of the last token, or (1, S, vocabulary) of all."""
        config, bounds = self.config, self.bounds
        tables = self._tables("rope", local=False) if any(config.rotated) else None
        near_tables = tables if config.local_theta is None else self._tables("rope.local", local=True)
        self.length = self.graph.live("sym_size.int", tokens, 1, bound=bounds.piece)
        self.position = self.graph.live("et_vk.select_as_symint.default", position, 0, 0, bound=bounds.context - 1)
        self.attention = Attention(config, self.arithmetic, bounds.context, self.length, self.position, bounds.masked)
        ids = BlobTensor(tokens.id, (1, self.length), tokens.dtype)
        x = self.projections.embedding(ids, "model.embed_tokens")  # (1, S, hidden)
        x = self.arithmetic.scaled(x, config.embedding_scale)
        if config.learned_positions:
            positions = self.attention.counted(self.position, self.length)
            x = self.arithmetic.add(x, self.projections.exact_rows(positions, "model.embed_positions"))
        for index in range(config.layers):
            x = self._layer(x, index, near_tables if config.has_window(index) else tables)
        if not full:
            x = self.graph.call("aten.select_copy.int", x, 1, -1, shape=(1, config.hidden))
        x = self._norm(x, "model.norm")
        x = self.projections.linear(x, "model.embed_tokens" if config.tied else "lm_head")
        x = self.arithmetic.scaled(x, config.logit_scale)
        return x if config.logit_cap is None else self.arithmetic.capped(x, config.logit_cap)

    def _tables(self, name: str, local: bool) -> tuple[BlobTensor, BlobTensor]:
        """RoPE cos and sin tables, (context, rotary size)."""
        shape = self.bounds.context, self.config.rotary_size

        def made(which: int) -> BlobTensor:
            key = f"{name}.{('cos', 'sin')[which]}"
            turns = self.tensors.computed(
                key, shape, lambda: rotary_tables(self.config, self.bounds.context, local)[which]
            )
            return self.graph.prepacked(turns)

        return made(0), made(1)

    def _layer(self, x: BlobTensor, index: int, tables: tuple[BlobTensor, BlobTensor] | None) -> BlobTensor:
        """A transformer layer: attention and feed-forward (or MoE), each with norms and a residual connection."""
        name, norms = f"model.layers.{index}", self.config.norms
        normed = self._normed(x, name, norms.into_attention)
        inner = self._attention(normed, index, tables)
        x = self._beside(x, self._normed(inner, name, norms.out_of_attention))
        inner = normed if self.config.parallel else self._normed(x, name, norms.into_feed_forward)
        experts = self.config.experts
        if experts is not None and self.config.has_experts(index):
            inner = mixture(inner, f"{name}.mlp", experts, self.projections, self.arithmetic, self._feed_forward)
        else:
            inner = self._feed_forward(inner, f"{name}.mlp")
        return self._beside(x, self._normed(inner, name, norms.out_of_feed_forward))

    def _beside(self, x: BlobTensor, inner: BlobTensor) -> BlobTensor:
        return self.arithmetic.add(x, self.arithmetic.scaled(inner, self.config.residual_scale))

    def _attention(self, x: BlobTensor, index: int, tables: tuple[BlobTensor, BlobTensor] | None) -> BlobTensor:
        """Grouped-query attention with QK norm and RoPE, against the KV cache of this layer."""
        config, name = self.config, f"model.layers.{index}.self_attn"
        query = self._heads(x, f"{name}.q_proj", config.heads, whole=config.joint_qk_norm)
        key = self._heads(x, f"{name}.k_proj", config.kv_heads, whole=config.joint_qk_norm)
        value = self._heads(x, f"{name}.v_proj", config.kv_heads)
        # After all three projections: adjacent ones are fused into one.
        if config.qk_norm:
            query, key = self._norm(query, f"{name}.q_norm"), self._norm(key, f"{name}.k_norm")
        if config.joint_qk_norm:
            query, key = self._apart(query, config.heads), self._apart(key, config.kv_heads)
        if tables is not None and config.has_rotation(index):
            query, key = self.graph.call_two(
                "et_vk.apply_rotary_emb_hf.default",
                *(query, key, *tables, self.position),
                first=(query.shape, None),
                second=(key.shape, None),
            )
        sinks = self.graph.prepacked(self.tensors.plain(f"{name}.sinks.weight")) if config.sinks else None
        mixed = self.attention.mixed(query, key, value, near=config.has_window(index), sinks=sinks)
        joined = self.arithmetic.view(mixed, (1, self.length, config.heads * config.head_size))
        return self.projections.linear(joined, f"{name}.o_proj")

    def _heads(self, x: BlobTensor, name: str, heads: int, whole: bool = False) -> BlobTensor:
        """A Q, K or V projection (1, S, heads, head size), or (1, S, heads * head size) if `whole`."""
        return self.projections.linear(x, name, apart=None if whole else (heads, self.config.head_size))

    def _apart(self, x: BlobTensor, heads: int) -> BlobTensor:
        return self.arithmetic.view(x, (*x.shape[:-1], heads, self.config.head_size))

    def _feed_forward(self, x: BlobTensor, name: str) -> BlobTensor:
        """Gated MLP (SwiGLU, GeGLU), or a plain two-layer MLP."""
        config, arithmetic = self.config, self.arithmetic
        if config.clamp is not None:
            gate, up = (self.projections.linear(x, f"{name}.{each}_proj") for each in ("gate", "up"))
            inner = arithmetic.clamped_gate(gate, up, config.clamp, config.gate_gain)
        elif config.gated:
            gate = arithmetic.activated(self.projections.linear(x, f"{name}.gate_proj"), config.activation)
            inner = arithmetic.mul(gate, self.projections.linear(x, f"{name}.up_proj"))
        else:
            inner = arithmetic.activated(self.projections.linear(x, f"{name}.up_proj"), config.activation)
        return self.projections.linear(inner, f"{name}.down_proj")

    def _normed(self, x: BlobTensor, layer: str, norm: str | None) -> BlobTensor:
        """A norm of a layer, where the family has one."""
        return x if norm is None else self._norm(x, f"{layer}.{norm}")

    def _norm(self, x: BlobTensor, name: str) -> BlobTensor:
        """RMSNorm, or LayerNorm if the config says so."""
        # Rounded to float32, as the kernels compute with it.
        eps = float(np.float32(self.config.norm_eps))
        weight = self.graph.constant(self.tensors.plain(f"{name}.weight"))
        if not self.config.layer_norm:
            return self.graph.call("et_vk.rms_norm.default", x, weight, eps, shape=x.shape)
        one = (*x.shape[:-1], 1)
        arguments = x, (x.width,), weight, self._norm_bias(name, x.width), eps
        return self.graph.call_many(
            "aten.native_layer_norm.default", *arguments, results=((x.shape, None), (one, None), (one, None))
        )[0]

    def _norm_bias(self, name: str, width: int) -> BlobTensor:
        """The checkpoint's LayerNorm bias, or zeros: not every runtime takes None."""
        if self.tensors.has(f"{name}.bias"):
            return self.graph.constant(self.tensors.plain(f"{name}.bias"))
        return self.graph.constant(self.tensors.repeated(f"zeros.{width}", (width,), 0.0))
