"""The quantization recipe: for each weight matrix keep the source's format, quantize to 4 or 8 bits, or keep floats."""

from __future__ import annotations

from liveshape.errors import UnsupportedError
from liveshape.export.model.checkpoint import Checkpoint
from liveshape.export.model.config import Quantization
from liveshape.export.model.layout import Layout
from liveshape.export.weights.quantize import group_of

TABLE = "model.embed_tokens.weight"
# The width of a 4-bit embedding must be a multiple of this.
_TABLE_BLOCK = 32
# Default group sizes by bits. At 8 bits, 128 is as accurate as 32 and has fewer scales.
_GROUPS = {4: 32, 8: 128}
# Layers that `auto` quantizes to 8 bits: most of the loss comes from these.
_WIDE = ("embed_tokens", "lm_head", "v_proj", "down_proj")
# Models below this many parameters lose more at 4 bits, and have more layers in 8.
_SMALL, _WIDE_IF_SMALL = 400_000_000, ("o_proj", "up_proj")


def layout_of(checkpoint: Checkpoint, name: str, quantization: Quantization) -> Layout | None:
    """The quantization layout of a weight matrix in the file; None is floats.

    Quantized sources are kept, except that `4w` and `8da4w` requantize 8 bits to 4, and `none` dequantizes all.

    Example: `layout_of(open_checkpoint("model.gguf"), "lm_head.weight", Quantization())`.
    """
    if quantization.mode == "none":
        return None
    stored = checkpoint.stored(name)
    if stored is None or (quantization.four_bit and stored.bits > 4):
        return rounded_layout(name, checkpoint.shapes[name][1], quantization, checkpoint.config.parameters)
    if quantization.group not in (None, stored.group):
        raise UnsupportedError(
            f"--group-size {quantization.group} cannot be kept: the source stores {name} with {stored.bits} bits in "
            f"groups of {stored.group}, and other groups would round it a second time; leave --group-size out"
        )
    return stored


def table_needs_floats(checkpoint: Checkpoint, quantization: Quantization, name: str = TABLE) -> bool:
    """Whether a 4-bit embedding falls back to floats: the delegate takes only widths that are multiples of 32.

    Example: `table_needs_floats(open_checkpoint("model.gguf"), Quantization("4w"))`.
    """
    found = layout_of(checkpoint, name, quantization) if quantization.embedding else None
    return found is not None and found.bits == 4 and checkpoint.shapes[name][1] % _TABLE_BLOCK != 0


def rounded_layout(name: str, width: int, quantization: Quantization, parameters: int) -> Layout:
    """The quantization layout of a float matrix with rows of this width, in a model of so many parameters.

    An explicit group size is kept or refused; the default is 32 at 4 bits and 128 at 8, or the largest below it that
    divides a row.

    >>> rounded_layout("model.layers.0.mlp.gate_proj.weight", 576, Quantization("auto"), 135_000_000)
    Layout(bits=4, group=32, minima=True)
    >>> rounded_layout("lm_head.weight", 576, Quantization("8w", group=64), 135_000_000)
    Layout(bits=8, group=64, minima=False)
    """
    layer = name.removesuffix(".weight").rpartition(".")[2]
    wide = layer in _WIDE or (parameters < _SMALL and layer in _WIDE_IF_SMALL)
    bits = 8 if quantization.mode == "8w" or (wide and not quantization.four_bit) else 4
    group = quantization.group or group_of(width, _GROUPS[bits])
    if group is None:
        raise UnsupportedError(
            f"{name}: rows of {width} weights cannot be split into groups of 4, 8, ... up to {_GROUPS[bits]}; "
            "export with --quant none"
        )
    if width % group:
        possible = [each for each in range(4, width + 1, 4) if width % each == 0]
        raise UnsupportedError(
            f"--group-size {group} cannot be kept: {name} has rows of {width} weights; "
            + (f"give one of {', '.join(map(str, possible))}, or leave it out" if possible else "leave it out")
        )
    return Layout(bits, group, minima=bits == 4 and not quantization.four_bit)


def rounded_again(checkpoint: Checkpoint, quantization: Quantization) -> list[str]:
    """The matrices that are quantized in their source and are requantized to fewer bits.

    Example: `rounded_again(open_checkpoint("model.gguf"), Quantization("4w"))`.
    """
    matrices = [name for name, shape in checkpoint.shapes.items() if len(shape) == 2]
    stored = [name for name in matrices if checkpoint.stored(name) is not None]
    return [name for name in stored if layout_of(checkpoint, name, quantization) not in (None, checkpoint.stored(name))]
