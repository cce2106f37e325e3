"""Identity of a loaded model, which saved KV caches carry: checksum of its bytes, activations, RoPE scaling."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from typing import Any

from liveshape.errors import InputError
from liveshape.formats.source import Source
from liveshape.graph.constants import pieces

_PIECE = 4 << 20  # bytes hashed at a time


class Origin:
    """The identity of a model: the name of its file, its bytes until it is closed, and how it runs.

    `rotation` is set where RoPE scaling depends on the context and differs from the file's: the KV caches are
    incompatible. `options` are those that the program was loaded with.

    Example: `Origin("model.pte", Source("model.pte")).checksum`.
    """

    def __init__(
        self,
        name: str,
        source: Source | None = None,
        data: Mapping[str, memoryview] | None = None,
        activations: str = "float32",
        rotation: bytes = b"",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.name, self.activations = name, activations
        self.options = options or {}
        self._rotation = rotation
        self._source, self._data = source, data or {}

    @property
    def view(self) -> memoryview | None:
        """The bytes of the program, if it has a file."""
        return None if self._source is None else self._source.view

    @functools.cached_property
    def checksum(self) -> str:
        """Checksum of the program that was loaded and its external data."""
        if self._source is None:
            raise InputError(f"{self.name} has no file, and so no checksum that a saved cache could name")
        digest = hashlib.blake2b(digest_size=16)
        parts = [(b"program", self._source.view), *((key.encode(), self._data[key]) for key in sorted(self._data))]
        for name, view in parts:
            digest.update(b"%d %d " % (len(name), len(view)) + name)
            for piece in pieces(view, _PIECE):
                digest.update(piece)
        digest.update(self._rotation)
        return digest.hexdigest()

    def close(self) -> None:
        """Release the memory-mapped bytes."""
        self._data = {}
        if self._source is not None:
            self._source.close()
