"""What `liveshape export` takes: a Hugging Face folder, a GGUF file, a llama2.c checkpoint, or `module:function`."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

from liveshape.errors import InputError
from liveshape.export.checkpoint import Checkpoint
from liveshape.export.gguf_model import open_gguf
from liveshape.export.huggingface import open_folder
from liveshape.export.llama2c import open_llama2c

_FUNCTION = re.compile(r"[\w.]+:[\w.]+")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def is_function(source: str) -> bool:
    """Whether a source names a Python function instead of files.

    >>> is_function("mymodel:build"), is_function("models/llama.gguf")
    (True, False)
    """
    return bool(_FUNCTION.fullmatch(source)) and not Path(source).exists()


def open_checkpoint(source: str) -> Checkpoint:
    """The checkpoint at a path, by what is there.

    Example: `open_checkpoint("SmolLM2-135M-Instruct.Q4_1.gguf")`.
    """
    path = Path(source)
    if path.is_dir():
        if (path / "config.json").exists():
            return open_folder(path)
        files = sorted(path.glob("*.gguf"))
        if len(files) == 1:
            return open_gguf(files[0])
        raise InputError(f"{path} has no config.json: it is not a Hugging Face folder")
    if not path.exists():
        hint = ""
        if _REPOSITORY.fullmatch(source):
            hint = f"; for a model of the Hub: hf download {source} --local-dir {path.name}"
        raise InputError(f"{source}: there is no such folder or file{hint}")
    with open(path, "rb") as file:
        magic = file.read(4)
    if magic == b"GGUF":
        return open_gguf(path)
    if path.suffix == ".bin":
        return open_llama2c(path)
    if path.suffix == ".safetensors":
        return open_folder(path.parent)
    raise InputError(
        f"{path} is not of a kind that can be exported: a folder with config.json and safetensors, a .gguf file, "
        "a llama2.c .bin, or module:function"
    )


def call_function(source: str) -> tuple[Any, tuple[Any, ...], Any]:
    """What `module:function` returns: a module, its arguments at the upper bound, and the dynamic dims of these.

    Example: `module, args, dynamic_shapes = call_function("mymodel:build")`.
    """
    name, _, attribute = source.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does
    try:
        function: Any = importlib.import_module(name)
        for part in attribute.split("."):
            function = getattr(function, part)
    except (ImportError, AttributeError) as error:
        raise InputError(f"{source}: {error}") from error
    made = function()
    if not isinstance(made, tuple) or len(made) not in (2, 3) or not isinstance(made[1], tuple):
        raise InputError(f"{source} must return (module, example arguments as a tuple, dynamic_shapes)")
    return made[0], made[1], made[2] if len(made) == 3 else None
