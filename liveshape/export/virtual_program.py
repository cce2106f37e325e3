"""A `.pte` that is never written: its head, and how each constant is made of the source's own bytes.

A page reads it through web/src/virtual_program.js: nobody converts first, and weights do not pass through Python.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from liveshape.errors import UnsupportedError
from liveshape.export.file.program_file import file_layout
from liveshape.export.folder import Settings, checkpoint_program
from liveshape.export.model.checkpoint import Checkpoint
from liveshape.export.weights.contents import Computed, MatrixPart, Repeated, TensorFloats
from liveshape.export.weights.lazy_constants import Constant, as_stored
from liveshape.export.weights.storage import RoundedStorage


@dataclass(frozen=True)
class VirtualProgram:
    """`stored` are the bytes of the head and of small constants, one behind the other; `description` is JSON.

    The description has the `size` of the file, its `tensors` (see `TensorPlace`) by name, and its `parts` in the order
    of the file: the offset and the number of bytes of each, and what it holds.
    """

    stored: bytes
    description: str


def virtual_program(checkpoint: Checkpoint, settings: Settings) -> VirtualProgram:
    """Describe the `model.pte` that `export_folder` would write; no weight is read.

    Example: `virtual_program(open_gguf(Path("model.gguf")), Settings()).description`.
    """
    program = checkpoint_program(checkpoint, settings)
    storage = RoundedStorage(checkpoint, settings.quantization)
    layout = file_layout(program)
    stored = [layout.head]
    parts: list[dict[str, Any]] = [{"offset": 0, "bytes": len(layout.head), "kind": "stored", "at": 0}]
    at, tensors = len(layout.head), dict[str, Any]()
    for constant in program.constants:
        content = constant.content
        part: dict[str, Any] = {"offset": layout.starts[constant.key], "bytes": constant.nbytes}
        if isinstance(content, Computed):
            stored.append(as_stored(content.make(), constant.dtype).tobytes())
            part |= {"kind": "stored", "at": at}
            at += constant.nbytes
        elif isinstance(content, Repeated):
            part |= {"kind": "repeated", "dtype": constant.dtype, "value": content.value}
        elif isinstance(content, (TensorFloats, MatrixPart)):
            tensors[content.tensor] = _place(checkpoint, constant, content.tensor)
            part |= {"kind": "floats", "dtype": constant.dtype, "tensor": content.tensor}
            if isinstance(content, MatrixPart):
                kept = storage.keeps(content.tensor, content.layout)
                part |= {"kind": content.part, "shape": constant.shape, "layout": asdict(content.layout), "kept": kept}
                part["uses"] = program.delegate.uses[constant.key]
        parts.append(part)
    description = {"size": layout.size, "tensors": tensors, "parts": parts}
    return VirtualProgram(b"".join(stored), json.dumps(description))


def _place(checkpoint: Checkpoint, constant: Constant, tensor: str) -> dict[str, Any]:
    found = checkpoint.place(tensor)
    if found is None or constant.dtype == "float16":
        raise UnsupportedError(
            f"{tensor} is stored in a form that is not read in place ({checkpoint.config.family}): convert the model "
            "with `liveshape export`, and load the folder that it writes"
        )
    return asdict(found)
