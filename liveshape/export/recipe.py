"""What becomes of each weight matrix: kept as its source stores it, rounded to 4 or 8 bits, or left in floats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from liveshape.errors import InputError, UnsupportedError
from liveshape.export.checkpoint import Checkpoint
from liveshape.export.rounding import rounded_rows
from liveshape.export.weights import Array, Grouped

Mode = Literal["auto", "4w", "8da4w", "8w", "none"]
# Of 8 bits, groups of 128 and of 32 are equally good, and scales take place.
_GROUPS = {4: 32, 8: 128}
# What a 4-bit recipe gives 8 bits, by the last name of the layer: most of the loss comes from these.
_WIDE = ("embed_tokens", "lm_head", "v_proj", "down_proj")
# A model below this many parameters loses more in 4 bits, and has more of its layers in 8.
_SMALL, _WIDE_IF_SMALL = 400_000_000, ("o_proj", "up_proj")


@dataclass(frozen=True)
class Form:
    """How a float matrix is rounded."""

    bits: int
    group: int
    minima: bool


@dataclass(frozen=True)
class Recipe:
    """See the module. `auto` keeps what is stored as whole numbers and makes 4 bits of floats.

    `4w` and `8da4w` also make 4 bits of what is stored in 8, `8w` makes 8 bits of floats, `none` makes floats of all.
    Nothing that is stored as whole numbers gets more bits than it has. What rounding to 4 bits hurts most has 8.
    A group size is kept everywhere or refused; without one, groups are of 32 weights of 4 bits or 128 of 8, or the most
    below that divides a row.

    Example: `Recipe("4w").form("model.layers.0.self_attn.q_proj.weight", 576, config.parameters)`.
    """

    mode: Mode = "auto"
    group: int | None = None

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise InputError(f"--quant {self.mode!r}: {', '.join(get_args(Mode))} are possible")
        if self.group is not None and (self.group < 4 or self.group % 4):
            raise InputError(f"--group-size {self.group}: groups are of 4, 8, 12, ... weights")

    def form(self, name: str, width: int, parameters: int) -> Form | None:
        """How the float matrix of this name, with rows of this width, is rounded; None if it stays as it is.

        `parameters` are those of the whole model.

        >>> Recipe("4w").form("model.layers.0.mlp.gate_proj.weight", 576, parameters=135_000_000)
        Form(bits=4, group=32, minima=True)
        >>> Recipe("8w", group=64).form("lm_head.weight", 576, parameters=135_000_000)
        Form(bits=8, group=64, minima=False)
        """
        if self.mode == "none":
            return None
        layer = name.removesuffix(".weight").rpartition(".")[2]
        wide = self.mode == "8w" or layer in _WIDE or (parameters < _SMALL and layer in _WIDE_IF_SMALL)
        bits = 8 if wide else 4
        group = group_of(width, _GROUPS[bits]) if self.group is None else self.group
        if group is None or width % group:
            possible = [each for each in range(4, width + 1, 4) if width % each == 0]
            given = f"groups of {group}" if group else "groups of 4, 8, ... weights"
            advice = f"leave --group-size out, or give one of {', '.join(map(str, possible))}"
            raise UnsupportedError(
                f"{name}: rows of {width} weights cannot be split into {given}; "
                f"{advice if possible else 'export with --quant none'}"
            )
        return Form(bits, group, minima=bits == 4)

    def keeps(self, name: str, stored: Grouped, parameters: int) -> bool:
        """Whether a matrix stays the whole numbers that its source has.

        Example: `Recipe("4w").keeps("lm_head.weight", checkpoint.grouped("lm_head.weight"), config.parameters)`.
        """
        form = self.form(name, stored.codes.shape[1], parameters)
        if form is None or (self.mode in ("4w", "8da4w") and form.bits < stored.bits):
            return False
        if self.group not in (None, stored.group):
            raise UnsupportedError(
                f"{name}: the source stores {stored.bits} bits in groups of {stored.group}, and groups of {self.group} "
                "would round them a second time; leave --group-size out"
            )
        return True


def prepared(checkpoint: Checkpoint, name: str, recipe: Recipe) -> Grouped | Array:
    """The matrix of this name as it goes into the file: whole numbers in groups, or float32.

    Example: `prepared(open_checkpoint("model.gguf"), "lm_head.weight", Recipe())`.
    """
    stored, parameters = checkpoint.grouped(name), checkpoint.config.parameters
    if stored is not None and recipe.keeps(name, stored, parameters):
        return stored
    shape = checkpoint.shapes[name]
    form = recipe.form(name, shape[1], parameters)
    if form is None:
        return checkpoint.read(name)
    return rounded_rows(lambda rows: checkpoint.rows(name, rows), shape, form.bits, form.group, form.minima)


def group_of(width: int, asked: int) -> int | None:
    """The largest group size up to the asked one that divides a row, preferably in whole 8s; None if there is none.

    >>> group_of(576, 32), group_of(100, 32), group_of(6, 32)
    (32, 20, None)
    """
    for multiple in (8, 4):
        for group in range(asked - asked % multiple, 0, -multiple):
            if width % group == 0:
                return group
    return None
