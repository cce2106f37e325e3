"""liveshape: PyTorch programs on any GPU, right at every live shape.

    import liveshape, numpy as np

    model = liveshape.load("model.pte")          # weights go to the GPU, kernels are compiled: once
    print(model.inputs)                          # name, dtype, bounds, and what each dimension may be
    x = np.random.rand(1, 7, 64).astype("float32")
    y = model(x)                                 # any shape that it was exported for, with no recompilation
    y = model(x[:, :1])

`liveshape.runtime` has the calls of executorch.runtime; `python -m liveshape --help` has the commands.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from liveshape.device.page_opening import open_page
    from liveshape.errors import (
        DeviceError,
        FormatError,
        InputError,
        LiveshapeError,
        NoAdapterError,
        PlanError,
        ShapeError,
        StorageError,
        UnsupportedError,
    )
    from liveshape.export.compiled import compile
    from liveshape.metadata import Dim, MethodNotFoundError, TensorInfo
    from liveshape.model import Model, load
    from liveshape.program.memory_use import Memory
    from liveshape.run.results import DeviceTensor
    from liveshape.runtime import Runtime

__version__ = "0.1.0"

if os.environ.get("LIVESHAPE_DEBUG", "0") not in ("", "0"):
    import_module("liveshape.debug_log").show(os.environ["LIVESHAPE_DEBUG"])

__all__ = [
    "DeviceError",
    "DeviceTensor",
    "Dim",
    "FormatError",
    "InputError",
    "LiveshapeError",
    "Memory",
    "MethodNotFoundError",
    "Model",
    "NoAdapterError",
    "PlanError",
    "Runtime",
    "ShapeError",
    "StorageError",
    "TensorInfo",
    "UnsupportedError",
    "__version__",
    "compile",
    "load",
    "open_page",
]

# Lazy imports: each name imports its module at first use.
_HOMES = {
    "DeviceTensor": "run.results",
    "Dim": "metadata",
    "Memory": "program.memory_use",
    "MethodNotFoundError": "metadata",
    "Model": "model",
    "Runtime": "runtime",
    "compile": "export.compiled",
    "TensorInfo": "metadata",
    "load": "model",
    "open_page": "device.page_opening",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'liveshape' has no attribute {name!r}")
    value = getattr(import_module(f"liveshape.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
