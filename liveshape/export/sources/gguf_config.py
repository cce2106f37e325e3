"""ModelConfig from the metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from liveshape.errors import FormatError
from liveshape.export.model.config import (
    LARGEST,
    MOST,
    Experts,
    ModelConfig,
    RopeScaling,
    is_token,
    refuse,
    turns,
    yarn_amplitude,
)
from liveshape.export.model.families import FAMILIES, Family

_KNOWN = {name: family for name, family in FAMILIES.items() if family.gguf}
# Metadata keys that change what a layer computes, with the architectures for which they are supported; 0 is off.
_FOLLOWED: Mapping[str, tuple[str, ...]] = {
    "attn_logit_softcapping": ("gemma2", "gemma3"),
    "final_logit_softcapping": ("gemma2", "gemma3"),
    "attention.scale": ("granite",),
    "embedding_scale": ("granite",),
    "residual_scale": ("granite",),
    "logit_scale": ("granite", "cohere2"),
    "expert_count": ("llama", "qwen3moe", "gpt-oss"),
    "attention.sliding_window": ("llama", "phi3", "gemma2", "gemma3", "starcoder2", "cohere2", "gpt-oss"),
    "rope.dimension_sections": (),
    "rope.scaling.yarn_log_multiplier": (),
    "attention.clamp_kqv": (),
    "attention.logit_softcapping": (),
    "expert_shared_count": (),
}
_LAYERS_OF_27B = {"gemma2": 46, "gemma3": 62}
# expert_gating_func: softmax before or after the top-k. With normalized routing weights both are the same.
_SOFTMAX, _SOFTMAX_OF_USED = 1, 3
_NO_ROPE = 4  # every fourth layer of SmolLM3 has no RoPE


def from_gguf(
    metadata: Mapping[str, Any], vocabulary: int, tied: bool, factors: tuple[list[float], list[float]] | None = None
) -> ModelConfig:
    """ModelConfig from GGUF metadata, or an error with all reasons; the other arguments come from the tensors.

    `factors` are the short and long factors of LongRoPE.

    Example: `from_gguf(file.metadata, vocabulary=49152, tied=True)`.
    """
    name = str(metadata.get("general.architecture"))

    def get(key: str, default: Any = None) -> Any:
        return metadata.get(f"{name}.{key}", default)

    scaling = get("rope.scaling.type", "none")
    refuse(list(_unsupported(name, get, scaling, factors is not None)))
    family = _KNOWN[name]

    def size(key: str, default: int | None = None, least: int = 0) -> int:
        return _size(metadata, f"{name}.{key}", default, least)

    def number(key: str, default: float | None = None) -> float:
        return _number(metadata, f"{name}.{key}", default)

    def positive(key: str) -> float | None:
        return number(key, 0) or None

    heads, hidden, layers = size("attention.head_count", least=1), size("embedding_length"), size("block_count")
    head_size = size("attention.key_length", hidden // heads)
    attention_scale = positive("attention.scale")
    if layers == _LAYERS_OF_27B.get(name):
        attention_scale = (hidden / heads) ** -0.5
    experts = None
    if count := size("expert_count", 0):
        width = size("expert_feed_forward_length", 0) or size("feed_forward_length")
        experts = Experts(count, size("expert_used_count"), width)
    begin, ends = gguf_tokens(metadata)
    windowed = _windowed(family, layers, get("attention.sliding_window_pattern"))
    rotated = turns(_NO_ROPE) if name == "smollm3" else (not family.learned_positions,)
    logit_scale = number("logit_scale", 0) or 1.0
    return ModelConfig(
        family=name,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=size("attention.head_count_kv", heads),
        head_size=head_size,
        feed_forward=size("feed_forward_length"),
        vocabulary=vocabulary,
        norm_eps=number("attention.layer_norm_epsilon" if family.layer_norm else "attention.layer_norm_rms_epsilon"),
        rope_theta=number("rope.freq_base", 10000.0),
        rotary_size=size("rope.dimension_count", head_size),
        context=size("context_length", 2048),
        tied=tied,
        norms=family.norms,
        layer_norm=family.layer_norm,
        parallel=family.parallel,
        gated=family.gated,
        qk_norm=family.qk_norm is not None,
        joint_qk_norm=family.qk_norm == "rows",
        activation="gelu_tanh" if family.scales_embedding or not family.gated else "silu",
        clamp=family.defaults.get("swiglu_limit"),
        gate_gain=family.defaults.get("swiglu_alpha", 1.0),
        embedding_scale=positive("embedding_scale") or family.embedding_scale(hidden),
        residual_scale=number("residual_scale", 0) or 1.0,
        # Cohere multiplies logits by it, Granite divides.
        logit_scale=logit_scale if "logit_scale" in family.settings else 1 / logit_scale,
        logit_cap=positive("final_logit_softcapping"),
        attention_scale=attention_scale,
        attention_cap=positive("attn_logit_softcapping"),
        sinks=family.sinks,
        experts=experts,
        # YaRN's truncate, which is false for gpt-oss, is not in the metadata.
        rope_scaling=_scaling(size, number, scaling, factors, truncated=name != "gpt-oss"),
        window=size("attention.sliding_window", 0) or None,
        windowed=windowed,
        local_theta=number("rope.freq_base_swa", 10000.0) if name == "gemma3" else None,
        rotated=windowed if family.rotates_windows_alone else rotated,
        learned_positions=family.learned_positions,
        begin=begin,
        ends=ends,
    )


def _unsupported(name: str, get: Callable[[str], Any], scaling: Any, has_factors: bool) -> Iterator[str]:
    """Why a file is not supported: an unknown architecture, or metadata keys without support."""
    if name not in _KNOWN:
        yield f"architecture {name}: those that can be exported are {', '.join(_KNOWN)}"
    if scaling not in ("none", "linear", "yarn", "longrope") or (scaling == "longrope" and not has_factors):
        yield f"rope scaling {scaling}: only linear, yarn, or factors in a tensor"
    for key, families in _FOLLOWED.items():
        if name not in families and get(key):
            yield f"{key} = {get(key)}: not supported for {name}"
    gating = (None, 0, _SOFTMAX, _SOFTMAX_OF_USED) if name == "gpt-oss" else (None, 0, _SOFTMAX)
    if get("expert_gating_func") not in gating or get("expert_weights_scale") not in (None, 0, 1):
        yield "experts that are not weighed by a softmax: not supported"


def _size(metadata: Mapping[str, Any], key: str, default: int | None, least: int) -> int:
    value = metadata.get(key, default)
    if value is None:
        raise FormatError(f"the metadata has no {key}, which the model needs")
    if type(value) is not int or not least <= value < MOST:
        raise FormatError(
            f"the metadata has {key} = {value!r:.60}; a whole number from {least} to {MOST - 1} is needed"
        )
    return value


def _number(metadata: Mapping[str, Any], key: str, default: float | None) -> float:
    value = metadata.get(key, default)
    if value is None:
        raise FormatError(f"the metadata has no {key}, which the model needs")
    if type(value) not in (int, float) or not -LARGEST <= value <= LARGEST:
        raise FormatError(f"the metadata has {key} = {value!r:.60}; a number up to {LARGEST:g} is needed")
    return float(value)


def _scaling(
    size: Callable[..., int],
    number: Callable[..., float],
    kind: str,
    factors: tuple[list[float], list[float]] | None,
    truncated: bool,
) -> RopeScaling | None:
    original = size("rope.scaling.original_context_length", size("context_length", 2048))
    if kind == "yarn":
        factor = number("rope.scaling.factor")
        slow, fast = (number(f"rope.scaling.yarn_beta_{each}", 0) for each in ("slow", "fast"))
        amplitude = yarn_amplitude(factor) * (number("rope.scaling.attn_factor", 0) or 1.0)
        return RopeScaling("yarn", factor, slow or 1.0, fast or 32.0, original, amplitude, truncated)
    if factors is not None:
        short, long = map(tuple, factors)
        amplitude = number("rope.scaling.attn_factor", 0) or 1.0
        return RopeScaling("longrope", original_context=original, amplitude=amplitude, short=short, long=long)
    return RopeScaling("linear", number("rope.scaling.factor")) if kind == "linear" else None


def _windowed(family: Family, layers: int, pattern: Any) -> tuple[bool, ...]:
    """The sliding-window pattern: a flag per layer, a period whose last layer has none, or the family's default."""
    if isinstance(pattern, list) and pattern:
        if len(pattern) != layers:
            raise FormatError(f"the metadata has a sliding_window_pattern of {len(pattern)} for {layers} layers")
        return tuple(map(bool, pattern))
    if pattern:
        return turns(_size({"sliding_window_pattern": pattern}, "sliding_window_pattern", None, 1))
    return family.windows if any(family.windows) else (True,)


def gguf_tokens(metadata: Mapping[str, Any]) -> tuple[int | None, tuple[int, ...]]:
    """The BOS id and all end-of-generation ids: EOS, EOT, EOM."""
    names = ("eos_token_id", "eot_token_id", "eom_token_id")
    ends = [token_of(metadata, name) for name in names]
    return token_of(metadata, "bos_token_id"), tuple(dict.fromkeys(end for end in ends if end is not None))


def token_of(metadata: Mapping[str, Any], name: str) -> int | None:
    """A special token id of the GGUF metadata, or None.

    >>> token_of({"tokenizer.ggml.bos_token_id": 1}, "bos_token_id")
    1
    """
    found = metadata.get(f"tokenizer.ggml.{name}")
    if found is not None and not is_token(found):
        raise FormatError(f"the metadata has tokenizer.ggml.{name} = {found!r:.60}; the number of a token is needed")
    return None if found is None else int(found)
