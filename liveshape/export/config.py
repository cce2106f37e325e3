"""What a decoder looks like, read from a config.json or from GGUF metadata, and everything about it that we lack.

A model is refused before any weight is read, with all reasons at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from liveshape.errors import FormatError, InputError, UnsupportedError

FAMILIES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
GGUF_FAMILIES = ("llama", "qwen2", "qwen3")
_ROPE_KINDS = ("default", "linear", "llama3")
# Settings of other models of these families that change what a layer computes, and the values that mean "no change".
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "attention_multiplier": (None,),
    "attn_logit_softcapping": (None,),
    "embedding_multiplier": (None, 1.0),
    "final_logit_softcapping": (None,),
    "logits_scaling": (None, 1.0),
    "no_rope_layers": (None, []),
    "num_experts": (None, 0, 1),
    "num_local_experts": (None, 0, 1),
    "quantization_config": (None,),
    "residual_multiplier": (None, 1.0),
}
_MOST, _LARGEST = 1 << 31, 1e30  # sizes are below the one, other numbers are at most the other

Mode = Literal["auto", "4w", "8da4w", "8w", "none"]


@dataclass(frozen=True)
class RopeScaling:
    """How a model stretches its rotary embedding beyond the context that it was trained on."""

    kind: Literal["linear", "llama3"]
    factor: float
    low_frequency: float = 1.0
    high_frequency: float = 4.0
    original_context: int = 8192


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

    Example: `from_hugging_face(json.loads(Path("config.json").read_text()))`.
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
    qk_norm: bool = False
    rope_scaling: RopeScaling | None = None
    rope_factors: tuple[float, ...] | None = None  # divisors of the frequencies, as GGUF files store them
    window: int | None = None  # attention reaches back no further than this
    begin: int | None = None
    ends: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        sizes = ("hidden", "layers", "heads", "kv_heads", "head_size", "feed_forward", "vocabulary", "context")
        for name in sizes:
            if not 1 <= getattr(self, name) < _MOST:
                raise FormatError(f"the model has {name} = {getattr(self, name)}; it must be from 1 to {_MOST - 1}")
        for name in ("norm_eps", "rope_theta"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise FormatError(f"the model has {name} = {getattr(self, name)}; it must be a number of 0 or above")
        if self.heads % self.kv_heads:
            raise FormatError(f"{self.heads} query heads cannot share {self.kv_heads} key heads evenly")
        if self.rotary_size % 2 or not 0 < self.rotary_size <= self.head_size:
            raise FormatError(f"a rotary size of {self.rotary_size} does not fit heads of {self.head_size}")

    @property
    def parameters(self) -> int:
        """Weights of the model, a tied table counted once."""
        attention = self.hidden * self.head_size * (self.heads + self.kv_heads) * 2
        layer = attention + 3 * self.hidden * self.feed_forward + 2 * self.hidden
        return self.layers * layer + self.hidden * self.vocabulary * (1 if self.tied else 2) + self.hidden


def check_context(config: ModelConfig, max_seq: int, max_context: int) -> None:
    """Refuse bounds that the model or the graph cannot have.

    Example: `check_context(config, 512, 2048)`.
    """
    if not 1 < max_seq <= max_context:
        raise UnsupportedError(
            f"--max-seq-len {max_seq} must be at least 2 and no more than --max-context {max_context}: "
            "it is the longest piece of a prompt that one call takes"
        )
    if config.window is not None and max_context > config.window:
        raise UnsupportedError(
            f"the model attends over a sliding window of {config.window} tokens, which the delegate's attention lacks; "
            f"within the window it is the same: export with --max-context {config.window} or less"
        )


def from_hugging_face(config: Mapping[str, Any], generation: Mapping[str, Any] | None = None) -> ModelConfig:
    """The numbers of a config.json (and the end tokens of a generation_config.json), or all reasons against it.

    Example: `from_hugging_face({"architectures": ["LlamaForCausalLM"], ...})`.
    """
    names = config.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise FormatError(f"config.json has architectures = {names!r:.60}; a list of names is needed")
    family = next((FAMILIES[name] for name in names if name in FAMILIES), None)
    reasons: list[str] = []
    if family is None:
        found = ", ".join(map(str, names)) or config.get("model_type") or "none"
        reasons.append(f"architecture {found}: those that can be exported are {', '.join(FAMILIES)}")
    for key, neutral in _NEUTRAL.items():
        if config.get(key) not in neutral and not (isinstance(config.get(key), list) and all(config[key])):
            reasons.append(f"{key} = {_short(config[key])}: not supported")
    if config.get("hidden_act", "silu") not in ("silu", "swish"):
        reasons.append(f"hidden_act = {config['hidden_act']}: only silu")
    # transformers 5 writes rope_parameters with the base inside of it, 4 wrote rope_scaling beside it.
    rope: Mapping[str, Any] = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(rope, Mapping):
        raise FormatError(f"config.json has rope_scaling = {rope!r:.60}; a table is needed")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in _ROPE_KINDS:
        reasons.append(f"rope scaling {kind}: only {', '.join(_ROPE_KINDS)}")
    _refuse(reasons)
    heads = _size(config, "num_attention_heads", least=1)
    head_size = _size(config, "head_dim", _size(config, "hidden_size") // heads)
    partial = _number(config, "partial_rotary_factor", _number(rope, "partial_rotary_factor", 1.0))
    ends = _ids(generation or {}, "eos_token_id", "generation_config.json") or _ids(config, "eos_token_id")
    begins = _ids(generation or {}, "bos_token_id", "generation_config.json") or _ids(config, "bos_token_id")
    return ModelConfig(
        family=str(family),
        hidden=_size(config, "hidden_size"),
        layers=_size(config, "num_hidden_layers"),
        heads=heads,
        kv_heads=_size(config, "num_key_value_heads", heads),
        head_size=head_size,
        feed_forward=_size(config, "intermediate_size"),
        vocabulary=_size(config, "vocab_size"),
        norm_eps=_number(config, "rms_norm_eps", 1e-6, least=0),
        rope_theta=_number(config, "rope_theta", _number(rope, "rope_theta", 10000.0)),
        rotary_size=int(head_size * partial),
        context=_size(config, "max_position_embeddings", 2048),
        tied=bool(config.get("tie_word_embeddings", False)),
        qk_norm=family == "qwen3",
        rope_scaling=_rope_scaling(str(kind), rope),
        window=_window(config),
        begin=next(iter(begins), None),
        ends=ends,
    )


def _rope_scaling(kind: str, rope: Mapping[str, Any]) -> RopeScaling | None:
    if kind == "linear":
        return RopeScaling("linear", _number(rope, "factor"))
    if kind == "llama3":
        return RopeScaling(
            "llama3",
            _number(rope, "factor"),
            _number(rope, "low_freq_factor"),
            _number(rope, "high_freq_factor"),
            _size(rope, "original_max_position_embeddings"),
        )
    return None


def _window(config: Mapping[str, Any]) -> int | None:
    """The sliding window, if any layer uses one."""
    size = config.get("sliding_window")
    kinds = config.get("layer_types")
    if size is None or config.get("use_sliding_window") is False:
        return None
    if isinstance(kinds, list) and "sliding_attention" not in kinds:
        return None
    return _size(config, "sliding_window")


def from_gguf(metadata: Mapping[str, Any], vocabulary: int, tied: bool) -> ModelConfig:
    """The numbers of GGUF metadata, or all reasons against it. What tensors decide is given beside it.

    Example: `from_gguf(file.metadata, vocabulary=49152, tied=True)`.
    """
    family = str(metadata.get("general.architecture"))

    def get(key: str, default: Any = None) -> Any:
        return metadata.get(f"{family}.{key}", default)

    reasons = []
    if family not in GGUF_FAMILIES:
        reasons.append(f"architecture {family}: those that can be exported are {', '.join(GGUF_FAMILIES)}")
    if get("expert_count", 0):
        reasons.append(f"{get('expert_count')} experts: mixtures of experts are not supported")
    scaling = get("rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        reasons.append(f"rope scaling {scaling}: only linear, or factors in a rope_freqs tensor")
    for key in ("logit_scale", "attention.clamp_kqv", "attention.logit_softcapping", "residual_scale"):
        if get(key):
            reasons.append(f"{key} = {get(key)}: not supported")
    _refuse(reasons)
    try:
        heads, hidden = int(get("attention.head_count")), int(get("embedding_length"))
        head_size = int(get("attention.key_length", hidden // heads))
        begin, ends = gguf_tokens(metadata)
        window = get("attention.sliding_window")
        return ModelConfig(
            family=family,
            hidden=hidden,
            layers=int(get("block_count")),
            heads=heads,
            kv_heads=int(get("attention.head_count_kv", heads)),
            head_size=head_size,
            feed_forward=int(get("feed_forward_length")),
            vocabulary=vocabulary,
            norm_eps=float(get("attention.layer_norm_rms_epsilon")),
            rope_theta=float(get("rope.freq_base", 10000.0)),
            rotary_size=int(get("rope.dimension_count", head_size)),
            context=int(get("context_length", 2048)),
            tied=tied,
            qk_norm=family == "qwen3",
            rope_scaling=RopeScaling("linear", float(get("rope.scaling.factor"))) if scaling == "linear" else None,
            window=None if window is None else int(window),
            begin=begin,
            ends=ends,
        )
    except FormatError:
        raise
    except (TypeError, ValueError, ArithmeticError) as error:
        raise FormatError(f"the metadata of the {family} model is not complete: {error}") from error


def gguf_tokens(metadata: Mapping[str, Any]) -> tuple[int | None, tuple[int, ...]]:
    """The begin token and all end tokens: of a text, of a turn, of a message."""
    names = ("eos_token_id", "eot_token_id", "eom_token_id")
    ends = [token_of(metadata, name) for name in names]
    return token_of(metadata, "bos_token_id"), tuple(dict.fromkeys(end for end in ends if end is not None))


def token_of(metadata: Mapping[str, Any], name: str) -> int | None:
    """The id of a token that GGUF metadata names, if it does.

    >>> token_of({"tokenizer.ggml.bos_token_id": 1}, "bos_token_id")
    1
    """
    found = metadata.get(f"tokenizer.ggml.{name}")
    if found is not None and not (type(found) is int and 0 <= found < _MOST):
        raise FormatError(f"the metadata has tokenizer.ggml.{name} = {found!r:.60}; the number of a token is needed")
    return found


def _refuse(reasons: Sequence[str]) -> None:
    if reasons:
        listing = "\n  ".join(reasons)
        raise UnsupportedError(
            f"this model cannot be exported:\n  {listing}", tuple(("config", reason) for reason in reasons)
        )


def _size(config: Mapping[str, Any], key: str, default: int | None = None, least: int = 0) -> int:
    value = config.get(key)
    if default is not None and (value is None or (type(value) is int and value == 0)):
        return default
    if type(value) is not int or not least <= value < _MOST:
        raise FormatError(f"config.json has {key} = {value!r:.60}; a whole number of {least} or above is needed")
    return value


def _number(config: Mapping[str, Any], key: str, default: float | None = None, least: float = 1e-30) -> float:
    value: Any = config.get(key)
    if value is None and default is not None:
        return default
    if type(value) not in (int, float) or not least <= value <= _LARGEST:
        raise FormatError(f"config.json has {key} = {value!r:.60}; a number from {least:g} to {_LARGEST:g} is needed")
    return float(value)


def _ids(config: Mapping[str, Any], key: str, file: str = "config.json") -> tuple[int, ...]:
    value = config.get(key)
    found = value if isinstance(value, list) else () if value is None else (value,)
    if any(type(each) is not int or not 0 <= each < _MOST for each in found):
        raise FormatError(f"{file} has {key} = {value!r:.60}; numbers of tokens are needed")
    return tuple(found)


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("quant_method", "{...}"))
    return str(value)[:60]
