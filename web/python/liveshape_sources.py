"""GGUF files and Hugging Face folders in a page: read here without their weights, which JavaScript reads."""

from __future__ import annotations

from pathlib import Path

from liveshape_js import mountProgram
from pyodide.ffi import to_js

from liveshape.errors import InputError
from liveshape.export.folder import Settings
from liveshape.export.model.checkpoint import Checkpoint
from liveshape.export.model.config import Quantization


def converted(folder: str, quant: str | None = None) -> None:
    """Give a folder that has no program the virtual one of its checkpoint, and the files of its tokenizer."""
    home = Path(folder)
    if any(home.glob("*.pte")):
        if quant is not None:
            raise InputError(f"the model is a program already, and quant {quant!r} cannot change it")
        return
    from liveshape.export.virtual_program import virtual_program

    checkpoint = _checkpoint(home)
    made = virtual_program(checkpoint, Settings(Quantization() if quant is None else Quantization(quant)))
    for name, content in checkpoint.files.items():
        if not (home / name).exists():  # files of the caller cannot be written
            (home / name).write_bytes(content)
    mountProgram(folder, to_js(made.stored), made.description)


def _checkpoint(home: Path) -> Checkpoint:
    from liveshape.export.sources.gguf_model import open_gguf
    from liveshape.export.sources.huggingface import open_folder

    if (home / "config.json").exists():
        return open_folder(home)
    files = sorted(home.glob("*.gguf"))
    if len(files) != 1:
        raise InputError(
            f"{len(files)} GGUF files, no program and no config.json: give a model.pte, one .gguf file, or the "
            "config.json, tokenizer.json and safetensors of a Hugging Face folder"
        )
    return open_gguf(files[0])
