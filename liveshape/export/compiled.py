"""`liveshape.compile`: a torch module as a callable on a GPU. Its first call imports torch, the package does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from liveshape.option_names import checks_options
from liveshape.packages import need

if TYPE_CHECKING:
    from liveshape.device.protocol import Device
    from liveshape.export.module.compiled_module import CompiledModule
    from liveshape.progress import Progress


@checks_options()
def compile(
    module: Any,
    example_inputs: Sequence[Any] = (),
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    device: Device | str | int | None = None,
    backend: str | None = None,
    activations: str = "float32",
    strict: bool = False,
    progress: Progress | None = None,
) -> CompiledModule:
    """Compile a torch module in evaluation mode for a GPU: the result is called as the module is, with torch tensors.

    One graph serves every size. `dynamic_shapes` says which dimensions vary, as `torch.export.export` takes it, and the
    example is at their upper bounds. Without, sizes are those of the example until a call has others: then what varied
    becomes dynamic, up to a power of two that is logged, and the graph is made once more.
    `device`, `backend`, `activations` and `strict` are those of `liveshape.load`; `progress(done, total)` is called
    with bytes of weights uploaded.

    Example: `fast = liveshape.compile(module, (x,)); y = fast(x)`.
    """
    need("torch", "flatbuffers", extra="torch", what="liveshape.compile")
    from liveshape.export.module.compiled_module import CompiledModule
    from liveshape.program.compile_target import CompileTarget

    target = CompileTarget(device, backend=backend, strict=strict, activations=activations)
    return CompiledModule(module, tuple(example_inputs), dict(example_kwargs or {}), dynamic_shapes, target, progress)
