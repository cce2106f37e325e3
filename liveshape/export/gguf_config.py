"""What a decoder looks like, read from the metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from liveshape.errors import FormatError
from liveshape.export.config import Experts, ModelConfig, RopeScaling, is_token, refuse, turns
from liveshape.export.families import FAMILIES, Family

_KNOWN = {name: family for name, family in FAMILIES.items() if family.gguf}
# Settings that change what a layer computes, by the families that follow them; 0 means that there is nothing to do.
_FOLLOWED: Mapping[str, tuple[str, ...]] = {
    "attn_logit_softcapping": ("gemma2", "gemma3"),
    "final_logit_softcapping": ("gemma2", "gemma3"),
    "attention.scale": ("granite",),
    "embedding_scale": ("granite",),
    "residual_scale": ("granite",),
    "logit_scale": ("granite",),
    "expert_count": ("llama", "qwen3moe"),
    "attention.sliding_window": ("llama", "phi3", "gemma2", "gemma3"),
    "attention.clamp_kqv": (),
    "attention.logit_softcapping": (),
    "expert_shared_count": (),
}
_LAYERS_OF_27B = {"gemma2": 46, "gemma3": 62}
_SOFTMAX = 1  # of the ways that a router may weigh its experts
_NO_ROPE = 4  # every such layer of SmolLM3 does without


def from_gguf(
    metadata: Mapping[str, Any], vocabulary: int, tied: bool, factors: tuple[list[float], list[float]] | None = None
) -> ModelConfig:
    """The numbers of GGUF metadata, or all reasons against it. What tensors decide is given beside it.

    `factors` are the short and the long ones of a longrope.

    Example: `from_gguf(file.metadata, vocabulary=49152, tied=True)`.
    """
    name = str(metadata.get("general.architecture"))

    def get(key: str, default: Any = None) -> Any:
        return metadata.get(f"{name}.{key}", default)

    reasons = []
    if name not in _KNOWN:
        reasons.append(f"architecture {name}: those that can be exported are {', '.join(_KNOWN)}")
    scaling = get("rope.scaling.type", "none")
    if scaling not in ("none", "linear", "longrope") or (scaling == "longrope" and factors is None):
        reasons.append(f"rope scaling {scaling}: only linear, or factors in a tensor")
    reasons += [
        f"{key} = {get(key)}: not supported for {name}"
        for key, families in _FOLLOWED.items()
        if name not in families and get(key)
    ]
    if get("expert_gating_func") not in (None, 0, _SOFTMAX) or get("expert_weights_scale") not in (None, 0, 1):
        reasons.append("experts that are not weighed by a softmax: not supported")
    refuse(reasons)
    family = _KNOWN[name]
    try:
        heads, hidden, layers = (
            int(get("attention.head_count")),
            int(get("embedding_length")),
            int(get("block_count")),
        )
        head_size = int(get("attention.key_length", hidden // heads))
        window = int(get("attention.sliding_window") or 0)
        attention_scale = get("attention.scale")
        if layers == _LAYERS_OF_27B.get(name):
            attention_scale = (hidden / heads) ** -0.5
        begin, ends = gguf_tokens(metadata)
        return ModelConfig(
            family=name,
            hidden=hidden,
            layers=layers,
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
            norms=family.norms,
            qk_norm=family.qk_norm is not None,
            joint_qk_norm=family.qk_norm == "rows",
            activation="gelu_tanh" if family.scales_embedding else "silu",
            embedding_scale=float(get("embedding_scale") or family.embedding_scale(hidden)),
            residual_scale=float(get("residual_scale") or 1.0),
            logit_scale=1 / float(get("logit_scale") or 1.0),
            logit_cap=_positive(get("final_logit_softcapping")),
            attention_scale=_positive(attention_scale),
            attention_cap=_positive(get("attn_logit_softcapping")),
            experts=_experts(get("expert_count"), get("expert_used_count"), _width_of_experts(get)),
            rope_scaling=_scaling(get, scaling, factors),
            window=window or None,
            windowed=_windowed(family, get("attention.sliding_window_pattern")),
            local_theta=float(get("rope.freq_base_swa", 10000.0)) if name == "gemma3" else None,
            rotated=turns(_NO_ROPE) if name == "smollm3" else (True,),
            begin=begin,
            ends=ends,
        )
    except FormatError:
        raise
    except (TypeError, ValueError, ArithmeticError) as error:
        raise FormatError(f"the metadata of the {name} model is not complete: {error}") from error


def _positive(value: Any) -> float | None:
    return float(value) if value else None


def _width_of_experts(get: Any) -> Any:
    return get("expert_feed_forward_length") or get("feed_forward_length")


def _experts(count: Any, used: Any, feed_forward: Any) -> Experts | None:
    return Experts(int(count), int(used), int(feed_forward)) if count else None


def _scaling(get: Any, kind: str, factors: tuple[list[float], list[float]] | None) -> RopeScaling | None:
    if factors is not None:
        original = int(get("rope.scaling.original_context_length", get("context_length", 2048)))
        short, long = map(tuple, factors)
        factor = float(get("rope.scaling.attn_factor") or 1.0)
        return RopeScaling("longrope", factor, original_context=original, short=short, long=long)
    return RopeScaling("linear", float(get("rope.scaling.factor"))) if kind == "linear" else None


def _windowed(family: Family, pattern: Any) -> tuple[bool, ...]:
    """Which layers have a window, if there is one: a list of them, one in so many that does not, or what is usual."""
    if isinstance(pattern, list) and pattern:
        return tuple(map(bool, pattern))
    if pattern:
        return turns(int(pattern))
    return family.windows if any(family.windows) else (True,)


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
    if found is not None and not is_token(found):
        raise FormatError(f"the metadata has tokenizer.ggml.{name} = {found!r:.60}; the number of a token is needed")
    return None if found is None else int(found)
