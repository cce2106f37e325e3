"""Every kernel of the package, with the values that its file gives to constants."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import liveshape.kernels.wgsl
import liveshape.ops
from liveshape.graph.expression import Applied, Expression
from liveshape.kernels import Kernel, Variant
from liveshape.kernels.composition import gated
from liveshape.kernels.kernel import CONCRETE
from liveshape.kernels.preprocessor import texts

assert liveshape.ops.OPS  # importing the operators loads their kernels
FILES = Path(str(liveshape.kernels.wgsl.__file__)).parent
OTHERS = [Kernel.load(f"measure/{path.stem}") for path in FILES.glob("measure/*.wgsl")]  # loaded when they are run
KERNELS = {
    each.name: each
    for each in gc.get_objects()
    if type(each) is Kernel and (FILES / f"{each.file}.wgsl").is_file()  # tests have kernels of their own
}
# What kernels of pairs store, whose files leave it to a composition.
SWIGLU = Expression(("float32", "float32"), (), (Applied("silu", (0,), "float32"), Applied("mul", (2, 1), "float32")))


def default_variants(kernel: Kernel, subgroup: int) -> Iterator[Variant]:
    """Each binding split in turn, without and with shuffles if it has them; then results rounded to bfloat16."""
    types = {
        binding.element: kernel.allowed.get(binding.element, ("f32",))[0]
        for binding in kernel.bindings
        if binding.element not in CONCRETE
    }
    constants: dict[str, Any] = {
        word: f"{value}u" if kind == "u32" and isinstance(value, int) else value
        for word, (kind, value) in kernel.constants.items()
    }
    if kernel.vectored:
        constants["VEC"] = 4 if "quantized" in kernel.others else 1  # rows are quantized by vec4s
    if any("gate_of(" in text for text in texts(kernel.text)):
        kernel = gated(kernel, SWIGLU)
    chosen = (tuple(types.items()), tuple(constants.items()))
    for split, size in product(range(len(kernel.bindings)), (0, subgroup) if kernel.has_subgroup_text else (0,)):
        segments = tuple(2 if place == split else 1 for place in range(len(kernel.bindings)))
        yield Variant(kernel, *chosen, segments, 1 << 20, kernel.group_size, subgroup=size)
    rounds = tuple(
        binding.writes and types.get(binding.element, binding.element) == "f32" for binding in kernel.bindings
    )
    for count in (1, 2) if any(rounds) else ():
        segments = tuple(count if each else 1 for each in rounds)
        yield Variant(kernel, *chosen, segments, 1 << 20, kernel.group_size, rounds=rounds)
