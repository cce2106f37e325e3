"""A small Llama of random weights in the formats of other engines: GGUF, and ONNX as transformers.js reads it."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench import onnx_proto as onnx
from tests.export.gguf_files import write_gguf


@dataclass(frozen=True)
class RandomLlama:
    """Weights in float32 by GGUF's names, and a vocabulary of bytes and numbers."""

    layers: int = 2
    hidden: int = 256
    ffn: int = 768
    heads: int = 8
    kv_heads: int = 4
    words: int = 2048
    context: int = 256
    epsilon: float = 1e-5
    theta: float = 10000.0

    @property
    def head(self) -> int:
        """Numbers of a head."""
        return self.hidden // self.heads

    @functools.cached_property
    def weights(self) -> dict[str, Any]:
        """Every weight; a matrix has a row for each output."""
        narrow = self.head * self.kv_heads
        shapes: dict[str, tuple[int, ...]] = {"token_embd": (self.words, self.hidden), "output_norm": (self.hidden,)}
        shapes["output"] = (self.words, self.hidden)
        for layer in range(self.layers):
            rows = {"attn_norm": (self.hidden,), "attn_q": (self.hidden, self.hidden), "attn_k": (narrow, self.hidden)}
            rows |= {"attn_v": (narrow, self.hidden), "attn_output": (self.hidden, self.hidden)}
            rows |= {"ffn_norm": (self.hidden,), "ffn_gate": (self.ffn, self.hidden), "ffn_up": (self.ffn, self.hidden)}
            rows |= {"ffn_down": (self.hidden, self.ffn)}
            shapes |= {f"blk.{layer}.{name}": shape for name, shape in rows.items()}
        random = np.random.default_rng(0)
        found = {}
        for name, shape in shapes.items():
            noise = random.standard_normal(shape).astype(np.float32)
            found[name] = 1 + noise / 10 if len(shape) == 1 else noise / np.float32(shape[1] ** 0.5)
        return found

    def write_gguf(self, path: Path) -> None:
        tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
        tokens += [f"\u2581{number}" for number in range(self.words - len(tokens))]
        metadata = {
            "general.architecture": "llama",
            "general.name": "random",
            "llama.block_count": self.layers,
            "llama.context_length": self.context,
            "llama.embedding_length": self.hidden,
            "llama.feed_forward_length": self.ffn,
            "llama.attention.head_count": self.heads,
            "llama.attention.head_count_kv": self.kv_heads,
            "llama.attention.layer_norm_rms_epsilon": self.epsilon,
            "llama.rope.dimension_count": self.head,
            "llama.rope.freq_base": self.theta,
            "llama.vocab_size": self.words,
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": [-float(place) for place in range(self.words)],
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.unknown_token_id": 0,
        }
        tensors = {f"{name}.weight": (0, array.shape, array.tobytes()) for name, array in self.weights.items()}
        write_gguf(path, metadata, tensors)

    def write_onnx(self, folder: Path) -> None:
        """The folder that transformers.js takes for a model: its configuration, and onnx/model.onnx."""
        config = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.hidden,
            "intermediate_size": self.ffn,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head,
            "vocab_size": self.words,
            "max_position_embeddings": self.context,
            "rms_norm_eps": self.epsilon,
            "rope_theta": self.theta,
            "bos_token_id": 1,
            "eos_token_id": 2,
        }
        (folder / "onnx").mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        (folder / "onnx" / "model.onnx").write_bytes(self._onnx())

    def _onnx(self) -> bytes:
        """The decoder with ONNX Runtime's attention, which keeps keys and values and rotates pairs of neighbours."""
        turns = self.theta ** (-np.arange(0, self.head, 2) / self.head) * np.arange(self.context)[:, None]
        products = {name: array.T for name, array in self.weights.items() if name != "token_embd"}
        constants = [onnx.constant(name, array) for name, array in (self.weights | products).items()]
        constants += [
            onnx.constant("cos", np.cos(turns).astype(np.float32)),
            onnx.constant("sin", np.sin(turns).astype(np.float32)),
            onnx.constant("one", np.ones(1, np.int64)),
            onnx.constant("second", np.array(1, np.int64)),
        ]
        to_int32 = onnx.integer("to", onnx.INT32)
        nodes = [
            onnx.node("Gather", ["token_embd", "input_ids"], ["hidden 0"]),
            onnx.node("ReduceSum", ["attention_mask", "one"], ["counts"], onnx.integer("keepdims", 0)),
            onnx.node("Sub", ["counts", "one"], ["last places"]),
            onnx.node("Cast", ["last places"], ["lengths"], to_int32),
            onnx.node("Shape", ["attention_mask"], ["mask shape"]),
            onnx.node("Gather", ["mask shape", "second"], ["places"]),
            onnx.node("Cast", ["places"], ["total"], to_int32),
        ]
        inputs = [
            onnx.value("input_ids", ["batch_size", "tokens"], onnx.INT64),
            onnx.value("attention_mask", ["batch_size", "all tokens"], onnx.INT64),
        ]
        outputs = [onnx.value("logits", ["batch_size", "tokens", self.words])]
        for layer in range(self.layers):
            nodes += self._layer(layer)
            for name in ("key", "value"):
                shape = ["batch_size", self.kv_heads, "past tokens", self.head]
                inputs.append(onnx.value(f"past_key_values.{layer}.{name}", shape))
                outputs.append(onnx.value(f"present.{layer}.{name}", [*shape[:2], "all tokens", self.head]))
        nodes.append(self._norm(f"hidden {self.layers}", "output_norm", "normed"))
        nodes.append(onnx.node("MatMul", ["normed", "output"], ["logits"]))
        return onnx.model("llama", nodes, constants, inputs, outputs)

    def _norm(self, taken: str, weight: str, made: str) -> bytes:
        attributes = onnx.integer("axis", -1) + onnx.real("epsilon", self.epsilon)
        return onnx.node("SimplifiedLayerNormalization", [taken, weight], [made], attributes)

    def _layer(self, layer: int) -> list[bytes]:
        block, taken = f"blk.{layer}.", f"hidden {layer}"
        attributes = onnx.integer("num_heads", self.heads) + onnx.integer("kv_num_heads", self.kv_heads)
        attributes += onnx.integer("do_rotary", 1) + onnx.integer("rotary_interleaved", 1)
        past, present = (
            [f"{side}.{layer}.{name}" for name in ("key", "value")] for side in ("past_key_values", "present")
        )

        def product(rows: str, weight: str, made: str) -> bytes:
            return onnx.node("MatMul", [rows, block + weight], [block + made])

        def pair(kind: str, first: str, second: str, made: str) -> bytes:
            return onnx.node(kind, [first, second], [made])

        attention = [*(block + name for name in "qkv"), *past, "lengths", "total", "cos", "sin"]
        return [
            self._norm(taken, f"{block}attn_norm", f"{block}attention's"),
            *(product(f"{block}attention's", f"attn_{name}", name) for name in "qkv"),
            onnx.contrib("GroupQueryAttention", attention, [f"{block}mixed", *present], attributes),
            product(f"{block}mixed", "attn_output", "attended"),
            pair("Add", taken, f"{block}attended", f"{block}middle"),
            self._norm(f"{block}middle", f"{block}ffn_norm", f"{block}network's"),
            product(f"{block}network's", "ffn_gate", "gate"),
            product(f"{block}network's", "ffn_up", "up"),
            onnx.node("Sigmoid", [f"{block}gate"], [f"{block}sigmoid"]),
            pair("Mul", f"{block}gate", f"{block}sigmoid", f"{block}silu"),
            pair("Mul", f"{block}silu", f"{block}up", f"{block}gated"),
            product(f"{block}gated", "ffn_down", "fed"),
            pair("Add", f"{block}middle", f"{block}fed", f"hidden {layer + 1}"),
        ]
