"""The calls of executorch.runtime: change the import line and a program runs here, without torch.

Numpy arrays give numpy arrays; who gives torch tensors gets torch tensors back.

from liveshape.runtime import Runtime

program = Runtime.get().load_program("model.pte")
outputs = program.load_method("forward").execute([x])
"""

from __future__ import annotations

import enum
import functools
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from liveshape.disk import Path
from liveshape.formats.source import FileSource
from liveshape.metadata import MethodMeta, TensorMeta
from liveshape.program.compile_target import CompileTarget
from liveshape.program.memory_use import Memory
from liveshape.program.method import Method
from liveshape.program.program import Program, load_program

if TYPE_CHECKING:
    from liveshape.device.protocol import Device
    from liveshape.run.weights import Progress

_LOG = logging.getLogger("liveshape")


class Verification(enum.Enum):
    """How much of a file to check. Taken for compatibility: liveshape always checks every offset and length."""

    Minimal = 0
    InternalConsistency = 1


class BackendRegistry:
    """Which delegates can run: those of VulkanPartitioner, where an adapter exists."""

    @property
    def registered_backend_names(self) -> list[str]:
        """The delegate ids that liveshape runs.

        Example: `Runtime.get().backend_registry.registered_backend_names == ["VulkanBackend"]`.
        """
        from liveshape.lower.lowering import BACKEND

        return [BACKEND]

    def is_available(self, backend_name: str) -> bool:
        """Whether delegates of this id can run on this machine.

        Example: `Runtime.get().backend_registry.is_available("VulkanBackend")`.
        """
        from liveshape.device.backends import list_adapters

        return backend_name in self.registered_backend_names and bool(list_adapters())


class OperatorRegistry:
    """Which operators can run."""

    @property
    def operator_names(self) -> set[str]:
        """The exported names, of delegates (`aten.add.Tensor`) and of portable programs (`aten::add.out`).

        Example: `"aten::add.out" in Runtime.get().operator_registry.operator_names`.
        """
        from liveshape.ops import OPS, callable_by_files

        return {name for name in OPS if callable_by_files(name)}


class Runtime(CompileTarget):
    """Loads programs onto one device, which is opened when the first method that computes is loaded.

    An operator without a kernel runs on the host, slowly and with a warning; where `strict`, it is refused.
    `activations="int8"` rounds the rows of 4-bit linear layers to integers: faster on a GPU, and less exact.

    Example: `Runtime(device="nvidia").load_program("model.pte")`.
    """

    def __init__(
        self, device: Device | str | int | None = None, *, strict: bool = False, activations: str = "float32"
    ) -> None:
        super().__init__(device, strict=strict, activations=activations)
        self.backend_registry = BackendRegistry()
        self.operator_registry = OperatorRegistry()

    @staticmethod
    @functools.lru_cache(maxsize=1)
    def get() -> Runtime:
        """The runtime of this process, on the default device."""
        return Runtime()

    def load_program(
        self,
        data: FileSource,
        *,
        verification: Any = Verification.InternalConsistency,
        enable_etdump: bool = False,
        debug_buffer_size: int = 0,
        data_path: Path | Sequence[Path] | None = None,
        progress: Progress | None = None,
    ) -> Program:
        """Open a `.pte` from a path, bytes or a binary file; `data_path` is one `.ptd` or several.

        `progress(done, total)` is told the bytes of weights uploaded while a method loads.

        Example: `runtime.load_program("model.pte", data_path="weights.ptd").method_names`.
        """
        if enable_etdump:
            _LOG.warning("liveshape writes no ETDump: enable_etdump is ignored")
        return load_program(self, data, data_path=data_path, progress=progress)


__all__ = [
    "BackendRegistry",
    "Memory",
    "Method",
    "MethodMeta",
    "OperatorRegistry",
    "Program",
    "Runtime",
    "TensorMeta",
    "Verification",
]
