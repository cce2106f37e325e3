"""A decoder of the Llama family as operators, in the form that fuses.

Activations keep the layout (1, S, heads, head size), so there are no transposes, and the caches live in the graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from liveshape.export.config import ModelConfig
from liveshape.export.delegate import Delegate, LiveInt, Shape, Tensor
from liveshape.export.matrices import Tensors
from liveshape.export.program_file import Program, Result
from liveshape.export.projections import Projections
from liveshape.export.rope import rotary_tables
from liveshape.export.storage import Storage


@dataclass(frozen=True)
class Bounds:
    """The longest piece of a prompt that one call takes, and the tokens that the caches hold."""

    piece: int
    context: int


def decoder_program(
    config: ModelConfig, storage: Storage, bounds: Bounds, half: bool, full_logits: bool, rounds_rows: bool
) -> Program:
    """The program of a decoder: tokens (1, S) at a position (1,) to the logits of the last one, or of all.

    Example: `write_program(decoder_program(config, storage, Bounds(512, 2048), False, False, False), path)`.
    """
    graph = Delegate(half)
    tensors = Tensors(storage, graph.floats)
    tokens, position = graph.input((1, bounds.piece), "int32"), graph.input((1,), "int32", activation=False)
    decoder = Decoder(config, graph, tensors, bounds, rounds_rows)
    logits = decoder.logits(tokens, position, full_logits)
    graph.output(logits)
    interface = [((1, decoder.length), "int64"), ((1,), "int64"), (logits.shape, "float32")]
    return Program(graph, tensors.batches(), interface, runner_methods(config, bounds))


def runner_methods(config: ModelConfig, bounds: Bounds) -> dict[str, Result]:
    """What runners ask a program before they run it."""
    methods: dict[str, Result] = {
        "get_max_seq_len": bounds.piece,
        "get_max_context_len": bounds.context,
        "get_n_layers": config.layers,
        "get_vocab_size": config.vocabulary,
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": True,
        "enable_dynamic_shape": True,
    }
    # Runners ask the tokenizer for what is not here.
    if config.begin is not None:
        methods["get_bos_id"] = config.begin
    if config.ends:
        methods["get_eos_ids"] = list(config.ends)
    return methods


class Decoder:
    """The operators of one decoder; every method adds a part of it to the graph."""

    length: LiveInt  # of the piece that a call brings
    position: LiveInt  # of its first token

    def __init__(
        self, config: ModelConfig, graph: Delegate, tensors: Tensors, bounds: Bounds, rounds_rows: bool
    ) -> None:
        self.config, self.graph, self.tensors, self.bounds = config, graph, tensors, bounds
        self.projections = Projections(graph, tensors, rounds_rows)

    def logits(self, tokens: Tensor, position: Tensor, full: bool) -> Tensor:
        """(1, vocabulary) of the last token, or (1, S, vocabulary) of all."""
        bounds = self.bounds
        table = bounds.context, self.config.rotary_size
        cos = self.graph.prepacked(self.tensors.computed("rope.cos", table, lambda: self._turns()[0]))
        sin = self.graph.prepacked(self.tensors.computed("rope.sin", table, lambda: self._turns()[1]))
        self.length = self.graph.live("sym_size.int", tokens, 1, bound=bounds.piece)
        # Of the one number, element 0 along dim 0.
        self.position = self.graph.live("et_vk.select_as_symint.default", position, 0, 0, bound=bounds.context - 1)
        ids = Tensor(tokens.id, (1, self.length), tokens.dtype)
        x = self.projections.embedding(ids, "model.embed_tokens")  # (1, S, hidden)
        for index in range(self.config.layers):
            x = self._layer(x, f"model.layers.{index}", cos, sin)
        if not full:
            x = self.graph.call("aten.select_copy.int", x, 1, -1, shape=(1, self.config.hidden))
        x = self._norm(x, "model.norm.weight")
        return self.projections.linear(x, "model.embed_tokens" if self.config.tied else "lm_head")

    def _turns(self) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.float32]], ...]:
        return rotary_tables(self.config, self.bounds.context)

    def _layer(self, x: Tensor, name: str, cos: Tensor, sin: Tensor) -> Tensor:
        """Attention and feed-forward, each behind a norm and beside a residual."""
        x = self._add(
            x, self._attention(self._norm(x, f"{name}.input_layernorm.weight"), f"{name}.self_attn", cos, sin)
        )
        return self._add(x, self._feed_forward(self._norm(x, f"{name}.post_attention_layernorm.weight"), f"{name}.mlp"))

    def _attention(self, x: Tensor, name: str, cos: Tensor, sin: Tensor) -> Tensor:
        """Grouped-query attention against the caches of this layer."""
        config = self.config
        query = self._heads(x, f"{name}.q_proj", config.heads)
        key = self._heads(x, f"{name}.k_proj", config.kv_heads)
        value = self._heads(x, f"{name}.v_proj", config.kv_heads)
        if config.qk_norm:
            query, key = self._norm(query, f"{name}.q_norm.weight"), self._norm(key, f"{name}.k_norm.weight")
        query, key = self.graph.call_two(
            "et_vk.apply_rotary_emb_hf.default",
            *(query, key, cos, sin, self.position),
            first=(query.shape, None),
            second=(key.shape, None),
        )
        caches = self._cache(), self._cache()
        # The live length, no mask, no dropout, causal, the usual scale.
        rest = self.position, self.length, None, 0.0, True, None
        mixed = self.graph.call("sdpa_with_kv_cache.default", query, key, value, *caches, *rest, shape=query.shape)
        joined = self._view(mixed, (1, self.length, config.heads * config.head_size))
        return self.projections.linear(joined, f"{name}.o_proj")

    def _heads(self, x: Tensor, name: str, heads: int) -> Tensor:
        return self.projections.linear(x, name, apart=(heads, self.config.head_size))  # (1, S, heads, size)

    def _cache(self) -> Tensor:
        shape = 1, self.bounds.context, self.config.kv_heads, self.config.head_size
        empty = self.tensors.computed(f"cache.{shape[1]}", shape, lambda: np.zeros(shape, np.float32))
        return self.graph.state(empty)

    def _feed_forward(self, x: Tensor, name: str) -> Tensor:
        """SwiGLU."""
        gate = self.projections.linear(x, f"{name}.gate_proj")
        gate = self._mul(gate, self.graph.call("aten.sigmoid.default", gate, shape=gate.shape))
        return self.projections.linear(
            self._mul(gate, self.projections.linear(x, f"{name}.up_proj")), f"{name}.down_proj"
        )

    def _norm(self, x: Tensor, name: str) -> Tensor:
        """The scaled inverse root mean square."""
        # As the number that the kernels compute with.
        eps = float(np.float32(self.config.norm_eps))
        return self.graph.call(
            "et_vk.rms_norm.default", x, self.graph.constant(self.tensors.plain(name)), eps, shape=x.shape
        )

    def _add(self, one: Tensor, other: Tensor) -> Tensor:
        return self.graph.call("aten.add.Tensor", one, other, 1, shape=one.shape)

    def _mul(self, one: Tensor, other: Tensor) -> Tensor:
        return self.graph.call("aten.mul.Tensor", one, other, shape=one.shape)

    def _view(self, x: Tensor, shape: Shape) -> Tensor:
        return self.graph.call("aten.view_copy.default", x, shape, shape=shape)
