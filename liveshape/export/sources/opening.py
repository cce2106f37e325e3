"""Opens what `liveshape export` takes: a Hugging Face folder, a GGUF file, a llama2.c checkpoint."""

from __future__ import annotations

import errno
import os
from difflib import get_close_matches
from pathlib import Path

from liveshape.disk import open_file
from liveshape.errors import FormatError, InputError
from liveshape.export.model.checkpoint import Checkpoint
from liveshape.export.sources.gguf_model import open_gguf
from liveshape.export.sources.hub import fetched, is_hub_name
from liveshape.export.sources.huggingface import open_folder
from liveshape.export.sources.llama2c import open_llama2c
from liveshape.formats.file_kinds import HEAD, foreign_kind, foreign_name
from liveshape.shipped import SHIPPED, shipped

_CLOSE = 0.7  # how alike a name must be to have been meant
_NEEDED = (
    "A model is a folder of `liveshape export` or of Hugging Face (config.json, safetensors, tokenizer.json), a .pte, "
    "or a .gguf file"
)


def located(source: str) -> Path:
    """Resolve a source to a path: a local one, a model shipped with the package, or a download from the Hub.

    Example: `located("HuggingFaceTB/SmolLM2-135M-Instruct")`.
    """
    path = shipped(source) or Path(source)
    if path.exists():
        return path
    if is_hub_name(source):
        return fetched(source)
    raise FileNotFoundError(errno.ENOENT, f"No such file or directory{_near(path)}", source)


def _near(path: Path) -> str:
    """What a path that is not there may have been meant to be."""
    beside = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
    near = get_close_matches(path.name, [*beside, *(SHIPPED if path.parent == Path() else ())], 1, _CLOSE)
    if near:
        return f"; did you mean {path.with_name(near[0])}?"
    return "" if os.sep in str(path) or path.suffix else "; a model of the Hub is named owner/name"


def runs_as_it_is(path: Path) -> bool:
    """Whether a path is a program (`.pte`) that runs without conversion, rather than a checkpoint; FormatError if it is
    neither.

    Example: `runs_as_it_is(Path("SmolLM2-135M-Instruct.Q4_1.gguf"))`.
    """
    if path.is_dir():
        if any(path.glob("*.pte")):
            return True
        if (path / "config.json").exists() or any(path.glob("*.gguf")):
            return False
        raise FormatError(f"{path} has no model: {_contents(path)}. {_NEEDED}")
    with open_file(path) as file:
        head = file.read(HEAD)
    kind = foreign_name(path.name)
    if kind is None and head[:4] == b"GGUF":
        return False
    if kind is None and (path.suffix == ".pte" or head[4:6] == b"ET"):
        return True
    kind = kind or foreign_kind(head)
    if path.suffix in (".safetensors", ".bin") and (kind is None or head[8:9] == b"{"):
        return False
    raise FormatError(f"{path} {_unlike(kind, head)}")


def _unlike(kind: str | None, head: bytes) -> str:
    """The end of a message: what a file is, and what to do."""
    if kind is None or kind == "a text":
        return f"is no model, but {kind or f'begins with {head[:4]!r}'}. {_NEEDED}"
    return f"is no model, but {kind}"


def _contents(folder: Path) -> str:
    """What a folder without a model has, and what is missing."""
    files = sorted(folder.iterdir())
    for path in files:
        if kind := foreign_name(path.name):
            return f"{path.name} is {kind}"
    if any(path.suffix in (".safetensors", ".bin") for path in files):
        return "there are weights, and config.json is missing: copy it there, with tokenizer.json"
    named = ", ".join(path.name for path in files[:3])
    return f"it has {named}{' and others' if len(files) > 3 else ''}" if named else "it is empty"


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
        raise InputError(f"{path} has no config.json: it is not a Hugging Face folder; {_contents(path)}")
    with open_file(path) as file:
        magic = file.read(HEAD)
    if magic[:4] == b"GGUF":
        return open_gguf(path)
    if path.suffix == ".bin":
        return open_llama2c(path)
    if path.suffix == ".safetensors":
        if not (path.parent / "config.json").exists():
            raise InputError(f"{path}: weights alone are no model: config.json and tokenizer.json must be beside them")
        return open_folder(path.parent)
    kind = foreign_name(path.name) or foreign_kind(magic)
    if kind is not None and kind != "a text":
        raise InputError(f"{path} is no model, but {kind}")
    made = "; it is a program already: liveshape inspect shows it" if magic[4:6] == b"ET" else ""
    raise InputError(
        f"{path} is not of a kind that can be exported: a folder with config.json and safetensors, a .gguf file, "
        f"a llama2.c .bin, or module:function{made}"
    )
