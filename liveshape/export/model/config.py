"""The config of a decoder-only transformer, and the quantization of its weights.

Unsupported models are refused before any weight is read, with all reasons at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from liveshape.errors import FormatError, InputError, UnsupportedError
from liveshape.export.model.families import Activation, Norms

MOST, LARGEST = 1 << 31, 1e30  # exclusive bound of sizes; inclusive bound of other numbers
_LONGEST_TURN = 4096

Mode = Literal["auto", "4w", "8da4w", "8w", "none"]


@dataclass(frozen=True)
class RopeScaling:
    """RoPE scaling: how positions beyond the original training context are interpolated.

    Example: `RopeScaling("yarn", 4.0, high_frequency=32.0, original_context=32768, amplitude=1.14)`.
    """

    kind: Literal["linear", "dynamic", "llama3", "yarn", "longrope"]
    factor: float = 1.0
    # Rotations within the original context: pairs with fewer are interpolated, those with more are kept.
    low_frequency: float = 1.0
    high_frequency: float = 4.0
    original_context: int = 8192
    amplitude: float = 1.0  # attention_factor: multiplies cos and sin
    truncated: bool = True  # YaRN's ramp begins and ends at whole pairs
    # LongRoPE's short_factor (contexts up to the original one) and long_factor: divisors of the frequencies.
    short: tuple[float, ...] = ()
    long: tuple[float, ...] = ()


def yarn_amplitude(factor: float, weight: float = 1.0) -> float:
    """YaRN's attention factor (mscale) for a context that is longer by a factor.

    >>> round(yarn_amplitude(4.0), 4), yarn_amplitude(0.5)
    (1.1386, 1.0)
    """
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


@dataclass(frozen=True)
class Experts:
    """Mixture of experts (MoE): `count` experts, of which the router picks the top `used` per token.

    Example: `Experts(count=8, used=2, feed_forward=14336)`.
    """

    count: int
    used: int
    feed_forward: int
    normalized: bool = True  # norm_topk_prob: the top-k routing weights add up to 1
    every: int = 1  # decoder_sparse_step: every n-th layer has experts
    plain: tuple[int, ...] = ()  # mlp_only_layers: dense layers nevertheless

    def __post_init__(self) -> None:
        if not 1 <= self.used <= self.count:
            raise FormatError(f"the model uses {self.used} of {self.count} experts")
        if self.every < 1 or self.feed_forward < 1:
            raise FormatError(f"experts of width {self.feed_forward} in every layer of {self.every}")


@dataclass(frozen=True)
class Quantization:
    """The weight quantization recipe: mode, group size, and whether the embedding is quantized too.

    `auto` keeps quantized sources as they are, and quantizes floats to 4 bits, sensitive layers to 8; `4w` is 4 bits
    everywhere; `8da4w` the same with dynamic 8-bit activations; `8w` quantizes floats to 8 bits; `none` is floats.

    Example: `Quantization("4w", group=64)`.
    """

    mode: Mode = "auto"
    group: int | None = None
    embedding: bool = True

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise InputError(f"--quant {self.mode!r}: {', '.join(get_args(Mode))} are possible")
        if self.group is not None and (self.group < 4 or self.group % 4):
            raise InputError(f"--group-size {self.group}: groups are of 4, 8, 12, ... weights")

    @property
    def four_bit(self) -> bool:
        """Whether every matrix is quantized to 4 bits."""
        return self.mode in ("4w", "8da4w")


@dataclass(frozen=True)
class ModelConfig:
    """The hyperparameters of a decoder-only transformer.

    Example: `from_hugging_face(json.loads(Path("config.json").read_text())).hidden`.
    """

    family: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    feed_forward: int
    vocabulary: int
    norm_eps: float
    rope_theta: float
    rotary_size: int
    context: int  # the trained context length
    tied: bool  # weight tying: the LM head is the embedding
    norms: Norms = field(default_factory=Norms)
    layer_norm: bool = False  # rather than RMSNorm
    qk_norm: bool = False
    joint_qk_norm: bool = False  # over all heads of a token together
    parallel: bool = False  # parallel attention and MLP, from the same norm
    gated: bool = True  # gated MLP (SwiGLU, GeGLU)
    activation: Activation = "silu"
    # Clamped SwiGLU of gpt-oss: swiglu_limit and swiglu_alpha.
    clamp: float | None = None
    gate_gain: float = 1.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0  # of a residual branch
    logit_scale: float = 1.0
    logit_cap: float | None = None  # final logit softcapping
    attention_scale: float | None = None  # softmax scale, if other than 1 / sqrt(head size)
    attention_cap: float | None = None  # attention logit softcapping
    sinks: bool = False  # attention sinks: a learned logit per head in the softmax's denominator
    experts: Experts | None = None
    rope_scaling: RopeScaling | None = None
    rope_factors: tuple[float, ...] | None = None  # divisors of the frequencies (rope_freqs of GGUF files)
    window: int | None = None  # sliding window in tokens, the query's own among them
    windowed: tuple[bool, ...] = (True,)  # which layers have the window; the pattern repeats
    local_theta: float | None = None  # the RoPE base of sliding-window layers, which have no RoPE scaling
    rotated: tuple[bool, ...] = (True,)  # which layers have RoPE; the pattern repeats
    learned_positions: bool = False  # learned absolute position embeddings
    text_only: bool = False  # the language model of a vision-language model
    begin: int | None = None
    ends: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        sizes = ("hidden", "layers", "heads", "kv_heads", "head_size", "feed_forward", "vocabulary", "context")
        for name in sizes:
            if not 1 <= getattr(self, name) < MOST:
                raise FormatError(f"the model has {name} = {getattr(self, name)}; it must be from 1 to {MOST - 1}")
        if not 0 <= self.norm_eps <= LARGEST:
            raise FormatError(f"the model has norm_eps = {self.norm_eps}; it must be a number of 0 or above")
        if self.heads % self.kv_heads:
            raise FormatError(f"{self.heads} query heads cannot share {self.kv_heads} key heads evenly")
        if self.rotary_size % 2 or not 0 < self.rotary_size <= self.head_size:
            raise FormatError(f"a rotary size of {self.rotary_size} does not fit heads of {self.head_size}")
        if self.window is not None and not 1 <= self.window < MOST:
            raise FormatError(f"the model has a sliding window of {self.window} tokens")
        for name in (
            "rope_theta",
            "local_theta",
            "embedding_scale",
            "residual_scale",
            "logit_scale",
            "logit_cap",
            "attention_scale",
            "attention_cap",
            "clamp",
            "gate_gain",
        ):
            value = getattr(self, name)
            if value is not None and not 0 < value <= LARGEST:
                raise FormatError(f"the model has {name} = {value}; a number above 0 is needed")
        scaling = self.rope_scaling
        for name in ("factor", "low_frequency", "high_frequency", "amplitude", "original_context"):
            if scaling is not None and not 0 < getattr(scaling, name) <= LARGEST:
                raise FormatError(
                    f"the model has rope scaling with {name} = {getattr(scaling, name)}; a number above 0 is needed"
                )
        if scaling is not None and scaling.low_frequency >= scaling.high_frequency:
            raise FormatError(
                f"the model has rope frequencies to blend from {scaling.low_frequency} to {scaling.high_frequency}"
            )
        if scaling is not None and scaling.kind == "yarn" and self.rope_theta <= 1:
            raise FormatError(f"the model has rope_theta = {self.rope_theta}; yarn needs a base above 1")
        if scaling is not None and scaling.kind == "dynamic" and self.rotary_size < 4:
            raise FormatError(f"a rotary size of {self.rotary_size} cannot be scaled dynamically; 4 or more can")
        if scaling is not None and scaling.kind == "longrope":
            for factors in (scaling.short, scaling.long):
                if len(factors) != self.rotary_size // 2 or not all(0 < each <= LARGEST for each in factors):
                    raise FormatError(
                        f"longrope has {len(factors)} factors; {self.rotary_size // 2} above 0 are needed, "
                        "one for each pair of a head"
                    )

    @property
    def parameters(self) -> int:
        """Parameter count, a tied embedding counted once."""
        attention = self.hidden * self.head_size * (self.heads + self.kv_heads) * 2
        layer = attention + (2 + self.gated) * self.hidden * self.feed_forward + 2 * self.hidden
        whole = self.layers * layer + self.hidden * self.vocabulary * (1 if self.tied else 2) + self.hidden
        if self.experts is None:
            return whole
        plain = sum((layer + 1) % self.experts.every == 0 for layer in set(self.experts.plain) if layer < self.layers)
        sparse = self.layers // self.experts.every - plain
        return whole + sparse * 3 * self.hidden * (self.experts.count * self.experts.feed_forward - self.feed_forward)

    def has_window(self, layer: int) -> bool:
        """Whether a layer has sliding-window attention."""
        return self.window is not None and self.windowed[layer % len(self.windowed)]

    def has_rotation(self, layer: int) -> bool:
        """Whether a layer has RoPE."""
        return self.rotated[layer % len(self.rotated)]

    def has_experts(self, layer: int) -> bool:
        """Whether the feed-forward of a layer is a mixture of experts."""
        return self.experts is not None and (layer + 1) % self.experts.every == 0 and layer not in self.experts.plain


def check_context(config: ModelConfig, max_seq: int, max_context: int) -> None:
    """Validate the prefill chunk and the context length against the model.

    Example: `check_context(config, 512, 2048)`.
    """
    if not 1 < max_seq <= max_context:
        raise UnsupportedError(
            f"--max-seq-len {max_seq} must be at least 2 and no more than --max-context {max_context}: "
            "it is the longest piece of a prompt that one call takes"
        )
    if config.learned_positions and max_context > config.context:
        raise UnsupportedError(
            f"--max-context {max_context}: the model has learned {config.context} positions and knows no others"
        )


def turns(length: int) -> tuple[bool, ...]:
    """A layer pattern of this period: True for all layers but the last of each.

    >>> turns(3)
    (True, True, False)
    """
    if not 1 <= length <= _LONGEST_TURN:
        raise FormatError(f"every {length}th layer differs from others; a number from 1 to {_LONGEST_TURN} is needed")
    return (*(True for _ in range(length - 1)), False)


def refuse(reasons: Sequence[str]) -> None:
    """Raise UnsupportedError with all reasons, if there are any.

    Example: `refuse(["architecture mamba: not supported"])`.
    """
    if reasons:
        listing = "\n  ".join(reasons)
        raise UnsupportedError(
            f"this model cannot be exported:\n  {listing}", tuple(("config", reason) for reason in reasons)
        )


def is_token(value: Any) -> bool:
    """Whether a value may be a token id.

    >>> is_token(7), is_token(True), is_token(-1)
    (True, False, False)
    """
    return type(value) is int and 0 <= value < MOST
