"""What a decoder looks like, and how its weights are to be stored.

A model is refused before any weight is read, with all reasons at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from liveshape.errors import FormatError, InputError, UnsupportedError
from liveshape.export.model.families import Activation, Norms

MOST, LARGEST = 1 << 31, 1e30  # sizes are below the one, other numbers are at most the other
_LONGEST_TURN = 4096

Mode = Literal["auto", "4w", "8da4w", "8w", "none"]


@dataclass(frozen=True)
class RopeScaling:
    """How a model stretches its rotary embedding beyond the context that it was trained on.

    Example: `RopeScaling("yarn", 4.0, high_frequency=32.0, original_context=32768, amplitude=1.14)`.
    """

    kind: Literal["linear", "dynamic", "llama3", "yarn", "longrope"]
    factor: float = 1.0  # of the frequencies
    # Turns within the original context: pairs with fewer are stretched, those with more are kept.
    low_frequency: float = 1.0
    high_frequency: float = 4.0
    original_context: int = 8192
    amplitude: float = 1.0  # of cosines and sines
    truncated: bool = True  # yarn blends between whole pairs
    # Divisors of the frequencies for contexts up to the original one, and for longer ones.
    short: tuple[float, ...] = ()
    long: tuple[float, ...] = ()


def yarn_amplitude(factor: float, weight: float = 1.0) -> float:
    """How much yarn sharpens attention in a context that is longer by a factor.

    >>> round(yarn_amplitude(4.0), 4), yarn_amplitude(0.5)
    (1.1386, 1.0)
    """
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


@dataclass(frozen=True)
class Experts:
    """Feed-forwards of which a token takes a few, those that a router likes best.

    Example: `Experts(count=8, used=2, feed_forward=14336)`.
    """

    count: int
    used: int
    feed_forward: int
    normalized: bool = True  # the shares of those that are used add up to 1
    every: int = 1  # layers have experts in turns of this length, the last of each
    plain: tuple[int, ...] = ()  # layers that have none nevertheless

    def __post_init__(self) -> None:
        if not 1 <= self.used <= self.count:
            raise FormatError(f"the model uses {self.used} of {self.count} experts")
        if self.every < 1 or self.feed_forward < 1:
            raise FormatError(f"experts of width {self.feed_forward} in every layer of {self.every}")


@dataclass(frozen=True)
class Quantization:
    """How weights are stored.

    `auto` keeps what is stored as whole numbers, and rounds floats to 4 bits, to 8 where 4 would cost; `4w` has 4 bits
    everywhere, `8da4w` the same on 8-bit activations; `8w` rounds floats to 8 bits; `none` is floats.

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
        """Whether every matrix is stored in 4 bits."""
        return self.mode in ("4w", "8da4w")


@dataclass(frozen=True)
class ModelConfig:
    """The numbers of a decoder.

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
    context: int  # what the model was trained for
    tied: bool
    norms: Norms = field(default_factory=Norms)
    layer_norm: bool = False  # rather than RMSNorm
    qk_norm: bool = False
    joint_qk_norm: bool = False  # over all heads of a token together
    parallel: bool = False  # both halves of a layer read the same norm
    gated: bool = True  # the feed-forward has a gate
    activation: Activation = "silu"
    # A gated feed-forward is computed below this, with a steeper gate, and adds one to what the gate lets through.
    clamp: float | None = None
    gate_gain: float = 1.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0  # of what a half of a layer adds
    logit_scale: float = 1.0
    logit_cap: float | None = None
    attention_scale: float | None = None  # of scores, where it is not one over the root of the head size
    attention_cap: float | None = None
    sinks: bool = False  # a score of each head that takes a share of attention and gives nothing
    experts: Experts | None = None
    rope_scaling: RopeScaling | None = None
    rope_factors: tuple[float, ...] | None = None  # divisors of the frequencies, as GGUF files store them
    window: int | None = None  # attention sees this many tokens, its own among them
    windowed: tuple[bool, ...] = (True,)  # which layers do; layers take turns
    local_theta: float | None = None  # the base of layers with a window, which are not stretched
    rotated: tuple[bool, ...] = (True,)  # which layers have a rotary embedding; layers take turns
    learned_positions: bool = False  # a table that is added to the embedding
    text_only: bool = False  # of a model that takes pictures as well
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
        """Weights of the model, a tied table counted once."""
        attention = self.hidden * self.head_size * (self.heads + self.kv_heads) * 2
        layer = attention + (2 + self.gated) * self.hidden * self.feed_forward + 2 * self.hidden
        whole = self.layers * layer + self.hidden * self.vocabulary * (1 if self.tied else 2) + self.hidden
        if self.experts is None:
            return whole
        plain = sum((layer + 1) % self.experts.every == 0 for layer in set(self.experts.plain) if layer < self.layers)
        sparse = self.layers // self.experts.every - plain
        return whole + sparse * 3 * self.hidden * (self.experts.count * self.experts.feed_forward - self.feed_forward)

    def has_window(self, layer: int) -> bool:
        """Whether a layer attends to the last `window` tokens alone."""
        return self.window is not None and self.windowed[layer % len(self.windowed)]

    def has_rotation(self, layer: int) -> bool:
        """Whether a layer knows positions."""
        return self.rotated[layer % len(self.rotated)]

    def has_experts(self, layer: int) -> bool:
        """Whether the feed-forward of a layer is a mixture."""
        return self.experts is not None and (layer + 1) % self.experts.every == 0 and layer not in self.experts.plain


def check_context(config: ModelConfig, max_seq: int, max_context: int) -> None:
    """Refuse bounds that the model or the graph cannot have.

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
    """True for all layers but the last of every turn.

    >>> turns(3)
    (True, True, False)
    """
    if not 1 <= length <= _LONGEST_TURN:
        raise FormatError(f"every {length}th layer differs from others; a number from 1 to {_LONGEST_TURN} is needed")
    return (*(True for _ in range(length - 1)), False)


def refuse(reasons: Sequence[str]) -> None:
    """An error with all reasons, if there are any.

    Example: `refuse(["architecture mamba: not supported"])`.
    """
    if reasons:
        listing = "\n  ".join(reasons)
        raise UnsupportedError(
            f"this model cannot be exported:\n  {listing}", tuple(("config", reason) for reason in reasons)
        )


def is_token(value: Any) -> bool:
    """Whether a value may be the number of a token.

    >>> is_token(7), is_token(True), is_token(-1)
    (True, False, False)
    """
    return type(value) is int and 0 <= value < MOST
