"""RoPE cos and sin tables, with linear, dynamic NTK, Llama 3, YaRN and LongRoPE scaling."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from liveshape.export.model.config import ModelConfig, RopeScaling

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Rotation:
    """The RoPE parameters of a model, by the names of `ModelConfig`.

    Example: `rotary_tables(Rotation.of(config), 2048)`.
    """

    rotary_size: int
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    rope_factors: tuple[float, ...] | None = None
    local_theta: float | None = None

    @classmethod
    def of(cls, config: ModelConfig) -> Rotation:
        """The RoPE parameters of a config."""
        return cls(**{each.name: getattr(config, each.name) for each in fields(cls)})


def rotary_tables(
    config: Rotation | ModelConfig, length: int, local: bool = False, rows: int | None = None
) -> tuple[Array, Array]:
    """RoPE cos and sin, each (length, rotary size), in Hugging Face's layout: both halves of a row are the same.

    `local`: the tables of sliding-window layers. `rows` is the number of positions, if other than the length.

    Example: `cos, sin = rotary_tables(config, 2048)`.
    """
    config = _local(config) if local else config
    scaling = config.rope_scaling
    frequencies = inverse_frequencies(config, length)
    # In float32 like the model's training code: the same rounding, the same logits.
    angles = np.outer(np.arange(rows or length, dtype=np.float32), frequencies).astype(np.float32)
    both = np.concatenate([angles, angles], axis=1)
    amplitude = np.float32(1.0 if scaling is None else scaling.amplitude)
    return np.cos(both) * amplitude, np.sin(both) * amplitude


def _local(config: Rotation | ModelConfig) -> Rotation | ModelConfig:
    """The RoPE of sliding-window layers: the local base, if the model has one, and no scaling."""
    if config.local_theta is None:
        return config
    return replace(config, rope_theta=config.local_theta, rope_scaling=None, rope_factors=None)


def inverse_frequencies(config: Rotation | ModelConfig, length: int = 0) -> Array:
    """Inverse frequencies (rotary size / 2), after RoPE scaling for a context of this length.

    Example: `inverse_frequencies(config)[0] == 1.0` for a model without scaling.
    """
    scaling = config.rope_scaling
    theta = config.rope_theta
    if scaling is not None and scaling.kind == "dynamic":
        theta = _dynamic_theta(theta, config.rotary_size, scaling, length)
    exponents = np.arange(0, config.rotary_size, 2, dtype=np.float32) / np.float32(config.rotary_size)
    with np.errstate(over="ignore"):  # a base beyond float32 is infinite: all frequencies but the first are 0
        frequencies: Array = (1.0 / np.float32(theta) ** exponents).astype(np.float32)
    if config.rope_factors is not None:
        return (frequencies / np.asarray(config.rope_factors, dtype=np.float32)).astype(np.float32)
    if scaling is None or scaling.kind == "dynamic":
        return frequencies
    if scaling.kind == "linear":
        return (frequencies / np.float32(scaling.factor)).astype(np.float32)
    if scaling.kind == "yarn":
        return _yarn(frequencies, config, scaling)
    if scaling.kind == "longrope":
        factors = scaling.short if length <= scaling.original_context else scaling.long
        return (frequencies / np.asarray(factors, dtype=np.float32)).astype(np.float32)
    return _llama3(frequencies, scaling)


def _dynamic_theta(theta: float, size: int, scaling: RopeScaling, length: int) -> float:
    """The dynamic NTK base for a context of this length; up to the original one it is the model's own."""
    if length <= scaling.original_context:
        return theta
    stretch = scaling.factor * length / scaling.original_context - (scaling.factor - 1)
    return float(theta * stretch ** (size / (size - 2)))


def _yarn(frequencies: Array, config: Rotation | ModelConfig, scaling: RopeScaling) -> Array:
    """YaRN: high frequencies are kept, low ones interpolated by the factor, with a linear ramp over pairs between."""
    size = config.rotary_size

    def pair_that_turns(times: float) -> float:
        """The (fractional) pair that makes this many rotations within the original context."""
        return size * math.log(scaling.original_context / (times * 2 * math.pi)) / (2 * math.log(config.rope_theta))

    first, last = pair_that_turns(scaling.high_frequency), pair_that_turns(scaling.low_frequency)
    if scaling.truncated:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, size - 1)
    # A ramp of no width is a step.
    slope = last - first or 0.001
    stretched = np.clip((np.arange(size // 2, dtype=np.float32) - np.float32(first)) / np.float32(slope), 0, 1)
    return (frequencies / np.float32(scaling.factor) * stretched + frequencies * (1 - stretched)).astype(np.float32)


def _llama3(frequencies: Array, scaling: RopeScaling) -> Array:
    """Llama 3: low frequencies are interpolated by the factor, high ones kept, those in between blended."""
    wavelengths = 2 * math.pi / frequencies
    turns = scaling.original_context / wavelengths
    blend = (turns - scaling.low_frequency) / (scaling.high_frequency - scaling.low_frequency)
    kept = np.clip(blend, 0.0, 1.0)
    return ((1 - kept) * frequencies / scaling.factor + kept * frequencies).astype(np.float32)
