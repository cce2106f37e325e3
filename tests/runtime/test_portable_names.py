"""Every operator of ExecuTorch's portable registry whose functional form has a kernel has one under its own name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import executorch
import torch
import torch.ao.quantization.fx._decomposed

from liveshape.ops import OPS, callable_by_files

KERNELS = Path(next(iter(executorch.__path__))) / "kernels"
FILES = ("portable/functions.yaml", "portable/custom_ops.yaml", "portable/et_copy_ops.yaml", "quantized/quantized.yaml")


def registered() -> set[str]:
    """The names that the portable library has kernels for, as a program spells them."""
    names = set()
    for file in FILES:
        for name in re.findall(r"^- (?:op|func): ([\w:.]+)", (KERNELS / file).read_text(), re.MULTILINE):
            names.add(name if "::" in name else f"aten::{name}")
    return names


def functional(name: str) -> set[str]:
    """What an out variant may be the out variant of: overloads of the same name and inputs that write nothing."""
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    packet: Any = getattr(getattr(torch.ops, namespace), base, None)
    if packet is None or (overload or "default") not in packet.overloads():
        return set()
    inputs = taken(getattr(packet, overload or "default"))
    return {
        f"{namespace}.{base}.{other}"
        for other in packet.overloads()
        if not any(argument.is_out for argument in getattr(packet, other)._schema.arguments)
        and taken(getattr(packet, other))[: len(inputs)] == inputs
    }


def taken(overload: Any) -> list[tuple[str, str]]:
    return [(argument.name, str(argument.type)) for argument in overload._schema.arguments if not argument.is_out]


def test_out_variants_take_the_kernel_of_their_functional_form() -> None:
    names = registered()
    without = sorted(name for name in names if callable_by_files(name) is None and functional(name) & OPS.keys())
    assert not without, f"these go to the host though their functional form has a kernel: {without}"
    assert len(names) > 200
    # Guards the test itself: the forms of the others are found.
    assert len([name for name in names if functional(name) & OPS.keys()]) > 150


def test_what_has_no_kernel_under_any_name_is_known() -> None:
    assert {name for name in registered() if callable_by_files(name) is None} == {
        "aten::allclose.Tensor",
        "aten::allclose.out",
        "aten::convolution_backward.out",
        "quantized_decomposed::add.out",
        "quantized_decomposed::mixed_linear.out",
        "quantized_decomposed::mixed_mm.out",
    }
