"""Lowers a torch module to a `.pte` that takes every size asked for: by torch alone, or by ExecuTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from liveshape.errors import InputError
from liveshape.export.file.program_file import ProgramSpec, write_program
from liveshape.export.module.fx_lowering import decomposed, program_of
from liveshape.export.module.log import exporter_log, quiet_tracing
from liveshape.export.module.size_decisions import without_onednn
from liveshape.export.module.trace_advice import refuse_scripted
from liveshape.export.module.traced_module import ModuleSource as ModuleSource
from liveshape.export.module.traced_module import trace
from liveshape.formats.whole_file import whole_file

Road = Literal["torch", "executorch"]
Step = Callable[[str], None]


def lower(
    source: ModuleSource,
    path: Path,
    half: bool = False,
    one_delegate: bool = False,
    step: Step = lambda text: None,
    via: Road = "torch",
) -> int:
    """Lower a torch module to a `.pte` and return its size. `half`: weights, caches and activations are float16.

    `via` torch takes torch alone and makes one delegate; via executorch `one_delegate` refuses what would be more.

    Example: `lower(ModuleSource(torch.nn.ReLU(), (torch.randn(4),)), Path("relu.pte"))`.
    """
    if via not in get_args(Road):
        raise InputError(f"via {via!r}: {' and '.join(get_args(Road))} are possible")
    refuse_scripted(source.module)
    if via == "torch":
        _, spec = lowered(source, step, half)
        step("writing")
        path.parent.mkdir(parents=True, exist_ok=True)  # only once lowering succeeded
        return write_program(spec, path)
    with torch.no_grad(), without_onednn(), exporter_log() as log:
        step("tracing")
        traced = trace(source)
        from liveshape.export.module.executorch_road import by_executorch  # takes seconds

        made = by_executorch(traced, half, one_delegate, step, log)
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path, "a program") as file:
            made.write_to_file(file)
    return path.stat().st_size


def lowered(source: ModuleSource, step: Step = lambda text: None, half: bool = False) -> tuple[Any, ProgramSpec]:
    """The traced program of a module, and what is written of it by torch alone.

    Example: `program, spec = lowered(ModuleSource(torch.nn.ReLU(), (torch.randn(4),)))`.
    """
    refuse_scripted(source.module)
    with torch.no_grad(), without_onednn(), quiet_tracing():
        step("tracing")
        traced = trace(source)
        step("lowering")
        program = decomposed(traced.program)
        traced.sizes.refuse_lost(program)
        return program, program_of(program, traced.methods, half)
