"""Opens what `liveshape export` takes: a Hugging Face folder, a GGUF file, a llama2.c checkpoint, `module:function`."""

from __future__ import annotations

import errno
import importlib
import os
import re
import sys
from pathlib import Path
from typing import Any

from liveshape.disk import open_file
from liveshape.errors import InputError
from liveshape.export.model.checkpoint import Checkpoint
from liveshape.export.sources.gguf_model import open_gguf
from liveshape.export.sources.hub import fetched, is_hub_name
from liveshape.export.sources.huggingface import open_folder
from liveshape.export.sources.llama2c import open_llama2c
from liveshape.shipped import shipped

_FUNCTION = re.compile(r"[\w.]+:[\w.]+")
_MAGIC = 8  # bytes of a file's magic number


def is_function(source: str) -> bool:
    """Whether a source is `module:function` rather than a path.

    >>> is_function("mymodel:build"), is_function("models/llama.gguf")
    (True, False)
    """
    return bool(_FUNCTION.fullmatch(source)) and not Path(source).exists()


def located(source: str) -> Path:
    """Resolve a source to a path: a local one, a model shipped with the package, or a download from the Hub.

    Example: `located("HuggingFaceTB/SmolLM2-135M-Instruct")`.
    """
    path = shipped(source) or Path(source)
    if path.exists():
        return path
    if is_hub_name(source):
        return fetched(source)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)


def runs_as_it_is(path: Path) -> bool:
    """Whether a path is a program (`.pte`) that runs without conversion, rather than a checkpoint.

    Example: `runs_as_it_is(Path("SmolLM2-135M-Instruct.Q4_1.gguf"))`.
    """
    if path.is_dir():
        return any(path.glob("*.pte")) or not ((path / "config.json").exists() or any(path.glob("*.gguf")))
    with open_file(path) as file:
        magic = file.read(_MAGIC)
    is_program = path.suffix == ".pte" or magic[4:6] == b"ET"
    return is_program or not (magic[:4] == b"GGUF" or path.suffix in (".safetensors", ".bin"))


def open_checkpoint(source: str | Path) -> Checkpoint:
    """Open a checkpoint, its format detected by folder contents, magic number or suffix.

    Example: `open_checkpoint("SmolLM2-135M-Instruct.Q4_1.gguf")`.
    """
    path = located(str(source))
    if path.is_dir():
        if (path / "config.json").exists():
            return open_folder(path)
        files = sorted(path.glob("*.gguf"))
        if len(files) == 1:
            return open_gguf(files[0])
        if files:
            raise InputError(f"{path} has {len(files)} GGUF files: name one of them, such as {files[0]}")
        raise InputError(f"{path} has no config.json: it is not a Hugging Face folder")
    with open_file(path) as file:
        magic = file.read(_MAGIC)
    if magic[:4] == b"GGUF":
        return open_gguf(path)
    if path.suffix == ".bin":
        return open_llama2c(path)
    if path.suffix == ".safetensors":
        return open_folder(path.parent)
    made = "; it is a program already: liveshape inspect shows it" if magic[4:6] == b"ET" else ""
    raise InputError(
        f"{path} is not of a kind that can be exported: a folder with config.json and safetensors, a .gguf file, "
        f"a llama2.c .bin, or module:function{made}"
    )


def call_function(source: str) -> tuple[Any, tuple[Any, ...], Any]:
    """Call `module:function`: returns a torch module, its example arguments at the upper bound, and dynamic_shapes.

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
