"""A torch module traced by torch.export: its program, the signature of its inputs, and the sizes that are legal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export.dynamic_shapes import AdditionalInputs, ShapesCollection, _combine_args
from torch.utils import _pytree as pytree

from liveshape.errors import UnsupportedError
from liveshape.export.module.dynamic_dimensions import LegalSizes, legal_sizes
from liveshape.export.module.symbolic_shapes import signature_of
from liveshape.export.module.trace_advice import refuse_experts, tracing_advice
from liveshape.formats.signature import SIGNATURE, Signature, signature_text


@dataclass(frozen=True)
class ModuleSource:
    """A torch module with example arguments at their upper bound, and dynamic_shapes.

    Example: `ModuleSource(module, (torch.randn(43, 8),), {"x": {0: torch.export.Dim("s", max=43)}})`.
    """

    module: torch.nn.Module
    args: tuple[Any, ...]
    dynamic_shapes: Any = None
    constants: Mapping[str, Any] = field(default_factory=dict)  # constant methods
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TracedModule:
    """What `trace` found; `methods` are the constant methods of its file, the signature among them."""

    program: Any  # torch.export.ExportedProgram
    sizes: LegalSizes
    methods: Mapping[str, Any]


def trace(source: ModuleSource) -> TracedModule:
    """Trace a module for every size asked for.

    Example: `trace(ModuleSource(torch.nn.ReLU(), (torch.randn(4),))).program.graph`.
    """
    program = exported(source)
    refuse_experts(source.module, program)
    _own_storage(program)
    signature = signature_of_inputs(source, program)
    methods = {**source.constants, SIGNATURE: signature_text({"forward": signature})}
    return TracedModule(program, legal_sizes(program, signature), methods)


def signature_of_inputs(source: ModuleSource, program: Any) -> Signature:
    """The signature: input names and their legal sizes.

    Example: `signature_of_inputs(source, exported(source)).inputs`.
    """
    arguments = _combine_args(source.module, source.args, dict(source.kwargs))
    leaves, _ = pytree.tree_flatten_with_path(arguments)
    shapes = source.dynamic_shapes
    if isinstance(shapes, (ShapesCollection, AdditionalInputs)):
        shapes = shapes.dynamic_shapes(source.module, source.args, dict(source.kwargs))
    if isinstance(shapes, (list, tuple)):
        shapes = dict(zip(arguments, shapes, strict=True))
    declared = _declared(arguments, shapes)
    paths = [f"L{pytree.keystr(path)}" for path, _ in leaves]
    return signature_of(program, declared, paths)


def _declared(value: Any, shapes: Any) -> list[Any]:
    """The dynamic_shapes entry of each input, in pytree order."""
    parts = [value[key] for key in value] if isinstance(value, Mapping) else value
    if shapes is None or not isinstance(parts, (list, tuple)):
        leaves = pytree.tree_leaves(value)
        return [shapes] if len(leaves) == 1 else [None] * len(leaves)
    wanted = [shapes.get(key) for key in value] if isinstance(value, Mapping) else list(shapes)
    return [leaf for part, each in zip(parts, wanted, strict=True) for leaf in _declared(part, each)]


def exported(source: ModuleSource) -> Any:
    """The program of torch.export, or an UnsupportedError with advice.

    Example: `exported(source).graph_signature`.
    """
    try:
        return torch.export.export(
            source.module.eval(), source.args, dict(source.kwargs), dynamic_shapes=source.dynamic_shapes
        )
    except Exception as error:
        kind = type(error).__name__
        advice = tracing_advice(source.module)
        raise UnsupportedError(f"torch.export cannot trace the module ({kind}): {error}{advice}") from error


def _own_storage(program: Any) -> None:
    """Copy weights that are views into a larger storage: the exporter writes the whole storage, from its start."""
    for tensors in (program.state_dict, program.constants):
        for name, tensor in tensors.items():
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().nbytes() != tensor.nbytes:
                own = tensor.detach().clone(memory_format=torch.contiguous_format)
                is_parameter = isinstance(tensor, torch.nn.Parameter)
                tensors[name] = torch.nn.Parameter(own, requires_grad=False) if is_parameter else own
