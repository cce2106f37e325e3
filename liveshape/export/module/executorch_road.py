"""A traced program as a `.pte` by ExecuTorch's Vulkan backend: `--via executorch`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.dialects.edge._ops import EdgeOpOverload
from executorch.exir.passes import to_out_var_skiplist
from executorch.exir.passes.sym_shape_eval_pass import ConstraintBasedSymShapeEvalPass

from liveshape.errors import LiveshapeError, UnsupportedError
from liveshape.export.module.executorch_overrides import overrides
from liveshape.export.module.size_decisions import shape_env_of, sizes_stay_dynamic
from liveshape.export.module.tensor_partitions import Review, TensorPartitioner
from liveshape.export.module.traced_module import TracedModule

_SKIPPED = "[Vulkan Partitioner] Due to ["
_SHOWN = 20  # refusals in one message


def by_executorch(
    traced: TracedModule, half: bool, one_delegate: bool, step: Callable[[str], None], log: list[str]
) -> Any:
    """The program that ExecuTorch writes of a traced module; `log` is what it has said so far, and will say.

    With `one_delegate` a module of which it leaves operators outside is refused, before anything is compiled.

    Example: `by_executorch(trace(source), False, False, print, []).write_to_file(file)`.
    """
    step("lowering to one delegate" if one_delegate else "lowering")
    review = functools.partial(_refuse_leftovers, log) if one_delegate else _refuse_unwritable
    with sizes_stay_dynamic(shape_env_of(traced.program)):
        edge = _delegated(traced.program, traced.methods, half, review)
        traced.sizes.refuse_lost(edge.exported_program())
        step("writing")
        made = _written(edge)
        traced.sizes.refuse_lost(edge.exported_program())
    return made


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
