"""The models that the package ships, by short names: `demo`, a transformer block, and `story`, a language model."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

SHIPPED = {"demo": "block.pte", "story": "story"}


def shipped(name: str) -> Path | None:
    """Where the model of a short name lies, unless something of that name is in this folder.

    >>> shipped("demo").name, shipped("model.pte")
    ('block.pte', None)
    """
    if name not in SHIPPED or Path(name).exists():
        return None
    return Path(str(resources.files("liveshape.demo").joinpath(SHIPPED[name])))
