"""Lowers a torch module to a `.pte` that takes every size asked for: torch.export, then ExecuTorch's Vulkan backend."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.dialects.edge._ops import EdgeOpOverload
from executorch.exir.passes import to_out_var_skiplist
from executorch.exir.passes.sym_shape_eval_pass import ConstraintBasedSymShapeEvalPass
from torch.export.dynamic_shapes import AdditionalInputs, ShapesCollection, _combine_args
from torch.utils import _pytree as pytree

from liveshape.errors import LiveshapeError, UnsupportedError
from liveshape.export.module.dynamic_dimensions import legal_sizes
from liveshape.export.module.executorch_overrides import overrides
from liveshape.export.module.log import exporter_log
from liveshape.export.module.size_decisions import shape_env_of, sizes_stay_dynamic, without_onednn
from liveshape.export.module.symbolic_shapes import signature_of
from liveshape.export.module.tensor_partitions import Review, TensorPartitioner
from liveshape.export.module.trace_advice import refuse_experts, refuse_scripted, tracing_advice
from liveshape.formats.signature import SIGNATURE, Signature, signature_text
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
    source: ModuleSource, path: Path, half: bool = False, one_delegate: bool = False, step: Step = lambda text: None
) -> int:
    """Lower a module to a `.pte` and return its size. `half`: weights, caches and activations are float16.

    With `one_delegate` a module of which ExecuTorch leaves operators outside is refused, before anything is compiled.

    Example: `lower(ModuleSource(torch.nn.ReLU(), (torch.randn(4),)), Path("relu.pte"))`.
    """
    refuse_scripted(source.module)
    with torch.no_grad(), without_onednn(), exporter_log() as log:
        step("tracing")
        program = _traced(source)
        refuse_experts(source.module, program)
        _own_storage(program)
        signature = _signature(source, program)
        sizes = legal_sizes(program, signature)
        step("lowering to one delegate" if one_delegate else "lowering")
        review = functools.partial(_refuse_leftovers, log) if one_delegate else _refuse_unwritable
        methods = {**source.constants, SIGNATURE: signature_text({"forward": signature})}
        with sizes_stay_dynamic(shape_env_of(program)):
            edge = _delegated(program, methods, half, review)
            sizes.refuse_lost(edge.exported_program())
            del program
            step("writing")
            made = _written(edge)
            sizes.refuse_lost(edge.exported_program())
    path.parent.mkdir(parents=True, exist_ok=True)  # only once lowering succeeded
    with whole_file(path, "a program") as file:
        made.write_to_file(file)
    return path.stat().st_size


def _signature(source: ModuleSource, program: Any) -> Signature:
    """The signature: input names and their legal sizes."""
    arguments = _combine_args(source.module, source.args, None)
    leaves, _ = pytree.tree_flatten_with_path(arguments)
    shapes = source.dynamic_shapes
    if isinstance(shapes, (ShapesCollection, AdditionalInputs)):
        shapes = shapes.dynamic_shapes(source.module, source.args)
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


def _traced(source: ModuleSource) -> Any:
    try:
        return torch.export.export(source.module.eval(), source.args, dynamic_shapes=source.dynamic_shapes)
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


def _delegated(program: Any, constants: Mapping[str, Any], half: bool, review: Review) -> Any:
    partitioner = TensorPartitioner({"force_fp16": True} if half else {}, review)
    # ExecuTorch's own check of operators fixes dynamic dimensions, and refuses operators that have a kernel here.
    config = EdgeCompileConfig(_check_ir_validity=False)
    try:
        with overrides(program):
            return to_edge_transform_and_lower(
                program, partitioner=[partitioner], constant_methods=dict(constants), compile_config=config
            )
    except LiveshapeError:
        raise
    except Exception as error:
        kind = type(error).__name__
        raise UnsupportedError(f"the exporter failed to lower the module ({kind}): {error}") from error


def _written(edge: Any) -> Any:
    # Data-dependent sizes have no hint; the declared range bounds them.
    config = ExecutorchBackendConfig(sym_shape_eval_pass=ConstraintBasedSymShapeEvalPass())
    try:
        return edge.to_executorch(config)
    except Exception as error:
        kind = type(error).__name__
        raise UnsupportedError(f"the exporter cannot write the program ({kind}): {error}") from error


def _refuse_unwritable(outside: list[Any], delegates: int) -> None:
    """Raise with the operators outside of delegates that a file has no way to call."""
    missing = []
    for target in dict.fromkeys(node.target for node in outside if isinstance(node.target, EdgeOpOverload)):
        try:
            if target not in to_out_var_skiplist and not target._schema.is_mutable:
                target.to_out_variant()
        except RuntimeError:
            missing.append(target.__name__)
    if missing:
        raise UnsupportedError(
            f"a file calls the `out` variants of operators, and torch has none of {', '.join(missing)}: write that "
            "part of the module in other operators, or register an `out` variant (torch.library)",
            tuple(("node", name) for name in missing),
        )


def _refuse_leftovers(log: list[str], outside: list[Any], delegates: int) -> None:
    """Raise with the operators that were not delegated, and the partitioner's reasons."""
    if delegates == 1 and not outside:
        return
    names = list(dict.fromkeys(str(getattr(node.target, "__name__", node.target)) for node in outside))
    reasons = list(dict.fromkeys(_reason(line) for line in log if line.startswith(_SKIPPED)))
    details = [*(f"left out: {name}" for name in names), *reasons]
    listing = "\n  ".join(details[:_SHOWN])
    more = f"\n  and {len(details) - _SHOWN} more" if len(details) > _SHOWN else ""
    raise UnsupportedError(
        f"the module does not fit into one delegate: the exporter made {delegates} and left "
        f"{len(outside)} nodes out\n  {listing}{more}\n"
        "without --one-delegate they run in the same graph, one by one; else write them in other operators",
        tuple(("node", detail) for detail in details),
    )


def _reason(line: str) -> str:
    reason, _, node = line.removeprefix(_SKIPPED).partition("], skipping ")
    return f"{node}: {reason}"
