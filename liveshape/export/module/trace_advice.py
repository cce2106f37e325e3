"""What to write instead, for modules that torch.export or ExecuTorch is known to refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from liveshape.errors import UnsupportedError

# Operators of transformers' experts that have no static shapes, or no kernel outside of CUDA.
_EXPERTS = ("aten.histc", "aten._grouped_mm")


def refuse_scripted(module: nn.Module) -> None:
    """Raise UnsupportedError for a module of torch.jit, or one that holds such a module.

    Example: `refuse_scripted(torch.nn.ReLU())` does nothing.
    """
    for name, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            which = f"{name}, a part of the module, is" if name else "the module is"
            raise UnsupportedError(
                f"{which} a {type(part).__name__} of torch.jit (TorchScript), which torch.export cannot trace: build "
                "it from its Python class, load_state_dict(scripted.state_dict()), and export that"
            )


def refuse_experts(module: nn.Module, program: Any) -> None:
    """Raise UnsupportedError for experts of transformers that count their tokens, before the program is lowered.

    Example: `refuse_experts(module, torch.export.export(module, args))`.
    """
    if not any(type(part).__module__.startswith("transformers.") for part in module.modules()):
        return
    targets = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    operators = sorted(target for target in targets if target.startswith(_EXPERTS))
    if operators:
        raise UnsupportedError(
            f"the experts of this model of transformers are computed by {' and '.join(operators)}, one group of tokens "
            'after the other: load it with from_pretrained(..., experts_implementation="batched_mm"), and export that'
        )


def tracing_advice(module: nn.Module) -> str:
    """What to write instead of those layers of a module that cannot have a dynamic dimension where it was asked for.

    >>> tracing_advice(nn.ReLU())
    ''
    """
    return "".join(f"\n{line}" for line in _advice(module))


def _advice(module: nn.Module) -> Iterator[str]:
    for name, part in module.named_modules():
        label = f"{name} ({type(part).__name__})" if name else type(part).__name__
        if isinstance(part, nn.RNNBase):
            yield (
                f"{label} is unrolled over time, so its time axis cannot be dynamic (the batch can): write one step "
                f"with nn.{type(part).__name__}Cell, take its state as inputs and return it, and call it for each step"
            )
        elif isinstance(part, (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)) and part.ceil_mode:
            yield (
                f"{label} has ceil_mode=True, where the result's size depends on whether a size is even: pad the right "
                "and lower edges by stride - 1 with torch.finfo(x.dtype).min (F.pad) and take ceil_mode=False, which "
                "is the same where kernel_size >= stride + padding; or declare multiples, as 2 * Dim"
            )
