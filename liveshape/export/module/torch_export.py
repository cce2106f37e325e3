"""Lowers a torch module to a `.pte` with a single delegate, or reports the nodes that were not delegated."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
from executorch.backends.vulkan.patterns import fusable_patterns
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.backend.utils import get_delegates, get_non_lowered_nodes
from executorch.exir.passes.sym_shape_eval_pass import ConstraintBasedSymShapeEvalPass
from torch.export.dynamic_shapes import AdditionalInputs, ShapesCollection, _combine_args
from torch.utils import _pytree as pytree

from liveshape.errors import UnsupportedError
from liveshape.export.module.log import exporter_log
from liveshape.export.module.symbolic_shapes import signature_of
from liveshape.formats.signature import SIGNATURE, signature_text
from liveshape.formats.whole_file import whole_file

_SKIPPED = "[Vulkan Partitioner] Due to ["
_SHOWN = 20  # refusals in one message

Step = Callable[[str], None]


@dataclass(frozen=True)
class ModuleSource:
    """A torch module with example arguments at their upper bound, and dynamic_shapes.

    Example: `ModuleSource(module, (torch.randn(43, 8),), {"x": {0: torch.export.Dim("s", max=43)}})`.
    """

    module: torch.nn.Module
    args: tuple[Any, ...]
    dynamic_shapes: Any = None
    constants: Mapping[str, Any] = field(default_factory=dict)  # constant methods


def lower(
    source: ModuleSource, path: Path, half: bool = False, one_delegate: bool = True, step: Step = lambda text: None
) -> int:
    """Lower a module to a `.pte` and return its size. `half`: weights, caches and activations are float16.

    Example: `lower(ModuleSource(torch.nn.ReLU(), (torch.randn(4),)), Path("relu.pte"))`.
    """
    _remember_patterns()
    with torch.no_grad(), exporter_log() as log:
        step("tracing")
        program = _traced(source)
        _own_storage(program)
        step("lowering to one delegate" if one_delegate else "lowering")
        edge = _delegated(program, {**source.constants, SIGNATURE: _signature(source, program)}, half)
        del program
        if one_delegate:
            _refuse_leftovers(edge.exported_program().graph_module.graph, log)
        step("writing")
        # Data-dependent sizes have no hint; the declared range bounds them.
        config = ExecutorchBackendConfig(sym_shape_eval_pass=ConstraintBasedSymShapeEvalPass())
        made = edge.to_executorch(config)
    path.parent.mkdir(parents=True, exist_ok=True)  # only once lowering succeeded
    with whole_file(path, "a program") as file:
        made.write_to_file(file)
    return path.stat().st_size


def _signature(source: ModuleSource, program: Any) -> str:
    """Serialize the signature: input names and their legal sizes."""
    arguments = _combine_args(source.module, source.args, None)
    leaves, _ = pytree.tree_flatten_with_path(arguments)
    shapes = source.dynamic_shapes
    if isinstance(shapes, (ShapesCollection, AdditionalInputs)):
        shapes = shapes.dynamic_shapes(source.module, source.args)
    if isinstance(shapes, (list, tuple)):
        shapes = dict(zip(arguments, shapes, strict=True))
    declared = _declared(arguments, shapes)
    paths = [f"L{pytree.keystr(path)}" for path, _ in leaves]
    return signature_text({"forward": signature_of(program, declared, paths)})


def _declared(value: Any, shapes: Any) -> list[Any]:
    """The dynamic_shapes entry of each input, in pytree order."""
    parts = [value[key] for key in value] if isinstance(value, Mapping) else value
    if shapes is None or not isinstance(parts, (list, tuple)):
        leaves = pytree.tree_leaves(value)
        return [shapes] if len(leaves) == 1 else [None] * len(leaves)
    wanted = [shapes.get(key) for key in value] if isinstance(value, Mapping) else list(shapes)
    return [leaf for part, each in zip(parts, wanted, strict=True) for leaf in _declared(part, each)]


def _traced(source: ModuleSource) -> Any:
    try:
        return torch.export.export(source.module.eval(), source.args, dynamic_shapes=source.dynamic_shapes)
    except Exception as error:
        kind = type(error).__name__
        raise UnsupportedError(f"torch.export cannot trace the module ({kind}): {error}") from error


def _own_storage(program: Any) -> None:
    """Copy weights that are views into a larger storage: the exporter writes the whole storage, from its start."""
    for tensors in (program.state_dict, program.constants):
        for name, tensor in tensors.items():
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().nbytes() != tensor.nbytes:
                own = tensor.detach().clone(memory_format=torch.contiguous_format)
                is_parameter = isinstance(tensor, torch.nn.Parameter)
                tensors[name] = torch.nn.Parameter(own, requires_grad=False) if is_parameter else own


def _delegated(program: Any, constants: Mapping[str, Any], half: bool) -> Any:
    try:
        return to_edge_transform_and_lower(
            program,
            partitioner=[VulkanPartitioner({"force_fp16": True} if half else {})],
            constant_methods=dict(constants) or None,
        )
    except Exception as error:
        kind = type(error).__name__
        raise UnsupportedError(f"the exporter failed to lower the module ({kind}): {error}") from error


def _refuse_leftovers(graph: Any, log: list[str]) -> None:
    """Raise with the nodes that were not delegated, and the partitioner's reasons."""
    delegates, nodes = get_delegates(graph), get_non_lowered_nodes(graph)
    if len(delegates) == 1 and not nodes:
        return
    names = list(dict.fromkeys(str(getattr(node.target, "__name__", node.target)) for node in nodes))
    reasons = list(dict.fromkeys(_reason(line) for line in log if line.startswith(_SKIPPED)))
    details = [*(f"left out: {name}" for name in names), *reasons]
    listing = "\n  ".join(details[:_SHOWN])
    more = f"\n  and {len(details) - _SHOWN} more" if len(details) > _SHOWN else ""
    raise UnsupportedError(
        f"the module does not fit into one delegate: the exporter made {len(delegates)} and left "
        f"{len(nodes)} nodes out\n  {listing}{more}\n"
        "write these in other operators, or pass --allow-split to let them run one by one",
        tuple(("node", detail) for detail in details),
    )


def _reason(line: str) -> str:
    reason, _, node = line.removeprefix(_SKIPPED).partition("], skipping ")
    return f"{node}: {reason}"


@functools.cache
def _remember_patterns() -> None:
    """Cache fusion patterns per process: the exporter's own cache misses, and it rebuilds them for every delegate."""
    for entry in fusable_patterns.values():
        if entry.get_graphs_fn is not None:
            entry.get_graphs_fn = functools.cache(entry.get_graphs_fn)
