"""ModelConfig from a Hugging Face config.json, or every reason why it is not supported."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
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
from liveshape.export.model.families import FAMILIES, Activation, Family

_ROPE_KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")
_ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
_MOST_LAYERS = 4096
_FULL, _NEAR = "full_attention", "sliding_attention"
# Vision-language models whose language model is supported by itself.
_WITH_PICTURES = {"Gemma3ForConditionalGeneration": "Gemma3ForCausalLM"}
# Config keys that change what a layer computes, with the values that mean "off"; any other value must be supported.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "attention_multiplier": (None,),
    "attn_logit_softcapping": (None,),
    "embedding_multiplier": (None, 1.0),
    "final_logit_softcapping": (None,),
    "logit_scale": (None, 1.0),
    "logits_scaling": (None, 1.0),
    "no_rope_layers": (None, []),
    "num_experts": (None, 0, 1),
    "num_local_experts": (None, 0, 1),
    "quantization_config": (None,),
    "residual_multiplier": (None, 1.0),
    "scale_attn_by_inverse_layer_idx": (None, False),
    "use_bidirectional_attention": (None, False),
}


def from_hugging_face(config: Mapping[str, Any], generation: Mapping[str, Any] | None = None) -> ModelConfig:
    """ModelConfig from a config.json (BOS and EOS ids from generation_config.json), or an error with all reasons.

    Example: `from_hugging_face({"architectures": ["LlamaForCausalLM"], ...})`.
    """
    names, config, text_only = _text_model(config)
    known = {family.architecture: name for name, family in FAMILIES.items()}
    name = next((known[name] for name in names if name in known), None)
    reasons: list[str] = []
    if name is None:
        found = ", ".join(map(str, names)) or config.get("model_type") or "none"
        reasons.append(f"architecture {found}: those that can be exported are {', '.join(known)}")
    family = FAMILIES[name or "llama"]
    # An explicit null means off; only an absent key means the default.
    config = {**family.defaults, **config}
    config |= {ours: config[theirs] for ours, theirs in family.keys.items() if theirs in config}
    reasons += _unsupported(config, family)
    rope, local = _ropes(config)
    kind = rope.get("rope_type", rope.get("type", "default"))
    kind = "longrope" if name == "phi3" and kind in ("su", "yarn") else kind  # its former names
    partial = _number(rope, "partial_rotary_factor", _number(config, "partial_rotary_factor", 1.0))
    reasons += _unsupported_ropes(kind, partial, local, family)
    # For other families transformers ignores partial_rotary_factor.
    partial = partial if family.partial_rotary else 1.0
    rotated = _rotated(config, family)
    windowed = _windowed(config, family, rotated, reasons)
    refuse(reasons)
    hidden, heads = _size(config, "hidden_size"), _size(config, "num_attention_heads", least=1)
    head_size = _size(config, "head_dim", hidden // heads)
    ends = _ids(generation or {}, "eos_token_id", "generation_config.json") or _ids(config, "eos_token_id")
    begins = _ids(generation or {}, "bos_token_id", "generation_config.json") or _ids(config, "bos_token_id")
    local_theta = None
    if "rope_local_base_freq" in family.defaults:
        local_theta = _number(local, "rope_theta", _number(config, "rope_local_base_freq"))
    return ModelConfig(
        family=str(name),
        hidden=hidden,
        layers=_size(config, "num_hidden_layers"),
        heads=heads,
        kv_heads=_size(config, "num_key_value_heads", heads),
        head_size=head_size,
        feed_forward=_size(config, "intermediate_size", 4 * hidden if "n_inner" in family.keys.values() else None),
        vocabulary=_size(config, "vocab_size"),
        norm_eps=_number(config, "rms_norm_eps", 1e-6, least=0),
        rope_theta=_number(rope, "rope_theta", _number(config, "rope_theta", 10000.0)),
        rotary_size=int(head_size * partial),
        context=_size(config, "max_position_embeddings", 2048),
        tied=bool(config.get("tie_word_embeddings", False)),
        norms=family.norms,
        layer_norm=family.layer_norm,
        qk_norm=family.qk_norm is not None,
        joint_qk_norm=family.qk_norm == "rows",
        parallel=family.parallel,
        gated=family.gated,
        activation=_ACTIVATIONS[config.get("hidden_act", "silu")],
        clamp=_followed(config, family, "swiglu_limit"),
        gate_gain=_followed(config, family, "swiglu_alpha") or 1.0,
        embedding_scale=_followed(config, family, "embedding_multiplier") or family.embedding_scale(hidden),
        residual_scale=_followed(config, family, "residual_multiplier") or 1.0,
        logit_scale=(_followed(config, family, "logit_scale") or 1.0)
        / (_followed(config, family, "logits_scaling") or 1.0),
        logit_cap=_followed(config, family, "final_logit_softcapping"),
        attention_scale=_attention_scale(config, family),
        attention_cap=_followed(config, family, "attn_logit_softcapping"),
        sinks=family.sinks,
        experts=_experts(config, family),
        rope_scaling=_rope_scaling(str(kind), rope, config),
        window=_size(config, "sliding_window") if any(windowed) else None,
        windowed=windowed,
        local_theta=local_theta,
        rotated=windowed if family.rotates_windows_alone else rotated,
        learned_positions=family.learned_positions,
        text_only=text_only,
        begin=next(iter(begins), None),
        ends=ends,
    )


def _text_model(config: Mapping[str, Any]) -> tuple[list[str], Mapping[str, Any], bool]:
    """Architectures, the config with its text_config merged in, and whether it is a vision-language model."""
    names = config.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise FormatError(f"config.json has architectures = {names!r:.60}; a list of names is needed")
    sees = next((name for name in names if name in _WITH_PICTURES), None)
    if sees is not None and isinstance(config.get("text_config"), Mapping):
        return [_WITH_PICTURES[sees]], {**config, **config["text_config"]}, True
    return names, config, sees is not None


def _unsupported(config: Mapping[str, Any], family: Family) -> Iterator[str]:
    """Why a config is not supported: keys without support for this family."""
    for key, neutral in _NEUTRAL.items():
        followed = key in family.settings | family.ignored or (isinstance(config.get(key), list) and all(config[key]))
        if config.get(key) not in neutral and not followed:
            yield f"{key} = {_short(config[key])}: not supported"
    stored = config.get("quantization_config")
    if stored is not None and family.quantized is not None and _short(stored) != family.quantized:
        yield f"quantization_config = {_short(stored)}: only {family.quantized}"
    if not config.get("is_causal", True):
        yield (
            f"is_causal = {_short(config['is_causal'])}: every token sees those behind it, as in an encoder; "
            "only causal attention has a cache"
        )
    act = config.get("hidden_act", "silu")
    if not isinstance(act, str) or act not in _ACTIVATIONS:
        yield f"hidden_act = {_short(act)}: only {', '.join(_ACTIVATIONS)}"


def _unsupported_ropes(kind: Any, partial: float, local: Mapping[str, Any], family: Family) -> Iterator[str]:
    """Why the RoPE settings are not supported: the rope_type, or its combination with others."""
    if kind not in _ROPE_KINDS:
        yield f"rope scaling {_short(kind)}: only {', '.join(_ROPE_KINDS)}"
    if not family.partial_rotary and partial != 1 and kind != "default":
        yield f"partial_rotary_factor = {partial:g} with rope scaling {_short(kind)}: not supported"
    near = local.get("rope_type", "default")
    if near != "default":
        yield f"rope scaling {_short(near)} of layers with a sliding window: only default"


def _followed(config: Mapping[str, Any], family: Family, key: str) -> float | None:
    """The value of a key if this family uses it, else None."""
    return None if key not in family.settings or config.get(key) is None else _number(config, key)


def _attention_scale(config: Mapping[str, Any], family: Family) -> float | None:
    if "attention_multiplier" in family.settings:
        return _number(config, "attention_multiplier", 1.0)
    if "scale_attn_weights" in family.settings and not config.get("scale_attn_weights", True):
        return 1.0
    scalar = _followed(config, family, "query_pre_attn_scalar")
    return None if scalar is None else scalar**-0.5


def _ropes(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """RoPE parameters of full-attention and of sliding-window layers."""
    # transformers 5 writes rope_parameters, which include the base; transformers 4 wrote rope_scaling, which wins.
    rope: Any = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(rope, Mapping):
        raise FormatError(f"config.json has rope_scaling = {rope!r:.60}; a table is needed")
    both: tuple[Any, Any] = (rope[_FULL], rope.get(_NEAR) or {}) if _FULL in rope else (rope, {})
    if not all(isinstance(each, Mapping) for each in both):
        raise FormatError(f"config.json has rope_parameters = {rope!r:.60}; tables are needed")
    return both


def _rope_scaling(kind: str, rope: Mapping[str, Any], config: Mapping[str, Any]) -> RopeScaling | None:
    context = _size(config, "max_position_embeddings", 2048)
    if kind == "linear":
        return RopeScaling("linear", _number(rope, "factor"))
    if kind == "dynamic":
        return RopeScaling("dynamic", _number(rope, "factor"), original_context=context)
    beside = "original_max_position_embeddings"
    original = _size(config, beside, _size(rope, beside, context))
    if kind == "llama3":
        low, high = _number(rope, "low_freq_factor"), _number(rope, "high_freq_factor")
        return RopeScaling("llama3", _number(rope, "factor"), low, high, original)
    if kind == "yarn":
        factor = _number(rope, "factor", context / original)
        slow, fast = _number(rope, "beta_slow", 0.0, 0.0) or 1.0, _number(rope, "beta_fast", 0.0, 0.0) or 32.0
        amplitude = _number(rope, "attention_factor", _yarn_amplitude(rope, factor))
        return RopeScaling("yarn", factor, slow, fast, original, amplitude, bool(rope.get("truncate", True)))
    if kind == "longrope":
        stretch = _number(rope, "factor", context / original)
        usual = math.sqrt(1 + math.log(stretch) / math.log(max(original, 2))) if stretch > 1 else 1.0
        amplitude = _number(rope, "attention_factor", usual)
        short, long = _numbers(rope, "short_factor"), _numbers(rope, "long_factor")
        return RopeScaling("longrope", original_context=original, amplitude=amplitude, short=short, long=long)
    return None


def _yarn_amplitude(rope: Mapping[str, Any], factor: float) -> float:
    """YaRN's default attention factor, from mscale and mscale_all_dim if given."""
    of_scores, of_all = (_number(rope, key, 0.0, least=0.0) for key in ("mscale", "mscale_all_dim"))
    if of_scores and of_all:
        return yarn_amplitude(factor, of_scores) / yarn_amplitude(factor, of_all)
    return yarn_amplitude(factor)


def _windowed(
    config: Mapping[str, Any], family: Family, rotated: tuple[bool, ...], reasons: list[str]
) -> tuple[bool, ...]:
    """Which layers have sliding-window attention; the pattern repeats."""
    kinds, layers = config.get("layer_types"), config.get("num_hidden_layers")
    if config.get("sliding_window") is None or not any(family.windows):
        return (False,)
    if family.optional_window and not config.get("use_sliding_window"):
        return (False,)
    if family.layer_types and isinstance(kinds, list) and kinds:
        for kind in kinds:
            if kind not in (_FULL, _NEAR):
                reasons.append(f"layer type {_short(kind)}: only {_FULL} and {_NEAR}")
        if len(kinds) != layers:
            raise FormatError(f"config.json has {len(kinds)} layer_types for {layers!r:.60} layers")
        return tuple(kind == _NEAR for kind in kinds)
    if "max_window_layers" in family.defaults:
        layers = _size(config, "num_hidden_layers")
        without = min(_size(config, "max_window_layers"), layers)
        if layers > _MOST_LAYERS:
            raise FormatError(f"config.json has num_hidden_layers = {layers}; at most {_MOST_LAYERS} are possible")
        return (*(False for _ in range(without)), *(True for _ in range(layers - without)))
    if not all(rotated):  # NoPE layers have the window
        return tuple(not each for each in rotated)
    if "sliding_window_pattern" in config and len(family.windows) > 1:
        return turns(_size(config, "sliding_window_pattern", least=1))
    return family.windows


def _rotated(config: Mapping[str, Any], family: Family) -> tuple[bool, ...]:
    """Which layers have RoPE: no_rope_layers has, despite its name, a 1 for those that do."""
    if family.learned_positions or "no_rope_layers" not in family.settings:
        return (not family.learned_positions,)
    listed = config.get("no_rope_layers")
    if listed is None or listed == []:
        return turns(_size(config, "no_rope_layer_interval", least=1))
    if not isinstance(listed, list) or any(each not in (0, 1) for each in listed):
        raise FormatError(f"config.json has no_rope_layers = {listed!r:.60}; a list of 0 and 1 is needed")
    if len(listed) != config.get("num_hidden_layers"):
        raise FormatError(f"config.json has {len(listed)} no_rope_layers, one for each layer is needed")
    return tuple(map(bool, listed))


def _experts(config: Mapping[str, Any], family: Family) -> Experts | None:
    if "num_local_experts" not in family.settings:
        return None
    count = _size(config, "num_experts", _size(config, "num_local_experts", 0))
    used = _size(config, "num_experts_per_tok")
    if "num_experts" not in family.settings:  # Mixtral has no moe_intermediate_size
        return Experts(count, used, _size(config, "intermediate_size"))
    return Experts(
        count,
        used,
        _size(config, "moe_intermediate_size"),
        normalized=bool(config.get("norm_topk_prob", False)),
        every=_size(config, "decoder_sparse_step", 1),
        plain=_ids(config, "mlp_only_layers"),
    )


def _size(config: Mapping[str, Any], key: str, default: int | None = None, least: int = 0) -> int:
    value = config.get(key)
    if default is not None and (value is None or (type(value) is int and value == 0)):
        return default
    if type(value) is not int or not least <= value < MOST:
        raise FormatError(f"config.json has {key} = {value!r:.60}; a whole number of {least} or above is needed")
    return value


def _number(config: Mapping[str, Any], key: str, default: float | None = None, least: float = 1e-30) -> float:
    value: Any = config.get(key)
    if value is None and default is not None:
        return default
    if type(value) not in (int, float) or not least <= value <= LARGEST:
        raise FormatError(f"config.json has {key} = {value!r:.60}; a number from {least:g} to {LARGEST:g} is needed")
    return float(value)


def _numbers(config: Mapping[str, Any], key: str) -> tuple[float, ...]:
    values = config.get(key)
    if not isinstance(values, list):
        raise FormatError(f"config.json has {key} = {values!r:.60}; a list of numbers is needed")
    return tuple(_number({key: value}, key) for value in values)


def _ids(config: Mapping[str, Any], key: str, file: str = "config.json") -> tuple[int, ...]:
    value = config.get(key)
    found = value if isinstance(value, list) else () if value is None else (value,)
    if not all(map(is_token, found)):
        raise FormatError(f"{file} has {key} = {value!r:.60}; numbers of tokens are needed")
    return tuple(found)


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("quant_method", "{...}"))
    return str(value)[:60]
