"""Drop-in replacement of executorch.runtime: change the import line and a program runs here, without torch.

Numpy inputs give numpy outputs, torch tensors give torch tensors.

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
from liveshape.program.files import program_source
from liveshape.program.memory_use import Memory
from liveshape.program.method import Method
from liveshape.program.program import Program, load_program

if TYPE_CHECKING:
    from liveshape.device.protocol import Device
    from liveshape.progress import Progress

_LOG = logging.getLogger("liveshape")


class Verification(enum.Enum):
    """Verification level. For compatibility only: liveshape always checks every offset and length."""

    Minimal = 0
    InternalConsistency = 1


class BackendRegistry:
    """Supported delegate backends: VulkanBackend, where an adapter exists."""

    @property
    def registered_backend_names(self) -> list[str]:
        """The supported delegate ids.

        Example: `Runtime.get().backend_registry.registered_backend_names == ["VulkanBackend"]`.
        """
        from liveshape.lower.lowering import BACKEND

        return [BACKEND]

    def is_available(self, backend_name: str) -> bool:
        """Whether delegates of this backend can run on this machine.

        Example: `Runtime.get().backend_registry.is_available("VulkanBackend")`.
        """
        from liveshape.device.backends import list_adapters

        return backend_name in self.registered_backend_names and bool(list_adapters())


class OperatorRegistry:
    """Supported operators."""

    @property
    def operator_names(self) -> set[str]:
        """Exported operator names, of delegates (`aten.add.Tensor`) and of portable programs (`aten::add.out`).

        Example: `"aten::add.out" in Runtime.get().operator_registry.operator_names`.
        """
        from liveshape.ops import OPS, callable_by_files

        return {name for name in OPS if callable_by_files(name)}


class Runtime(CompileTarget):
    """Loads programs onto a device, which is opened lazily, when the first method that computes is loaded.

    Operators without a kernel fall back to the host, slowly and with a warning; `strict` refuses them.
    `activations="int8"` quantizes activations of 4- and 8-bit layers in groups of 32: faster on a GPU, and less exact.
    `"float16"` permits that inputs of products are rounded to float16 for the matrix units of a device, and `"auto"` is
    that where it has some.

    Example: `Runtime(device="nvidia").load_program("model.pte")`.
    """

    def __init__(
        self,
        device: Device | str | int | None = None,
        *,
        backend: str | None = None,
        strict: bool = False,
        activations: str = "float32",
    ) -> None:
        super().__init__(device, backend=backend, strict=strict, activations=activations)
        self.backend_registry = BackendRegistry()
        self.operator_registry = OperatorRegistry()

    @staticmethod
    @functools.lru_cache(maxsize=1)
    def get() -> Runtime:
        """The singleton runtime of this process, on the default device."""
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

        A path may be the folder of a `.pte`, or the short name of a shipped model. Where no device was chosen, each
        program takes the backend that is faster for it. `progress(done, total)` is called with bytes of weights
        uploaded while a method loads.

        Example: `runtime.load_program("model.pte", data_path="weights.ptd").method_names`.
        """
        if enable_etdump:
            _LOG.warning("liveshape writes no ETDump: enable_etdump is ignored")
        source = program_source(data)
        return load_program(self.of_one_program(), source, data_path=data_path, progress=progress)


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
