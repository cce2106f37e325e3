"""Models shipped with the package, by short name: `demo`, a transformer block, and `story`, a language model."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from liveshape.errors import InputError

SHIPPED = {"demo": "block.pte", "story": "story"}


def shipped(name: str) -> Path | None:
    """The path of a shipped model by short name, unless the current folder has something of that name.

    >>> shipped("demo").name, shipped("model.pte")
    ('block.pte', None)
    """
    if name not in SHIPPED or Path(name).exists():
        return None
    return _place(name)


def shipped_model() -> Path:
    """The folder of the shipped small language model.

    Example: `LanguageModel.load(shipped_model())`.
    """
    folder = _place("story")
    if not folder.is_dir():
        raise InputError("this installation carries no model of its own: name a folder, a .pte or a .gguf file")
    return folder


def _place(name: str) -> Path:
    return Path(str(resources.files("liveshape.demo").joinpath(SHIPPED[name])))
