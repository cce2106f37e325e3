"""Where a model comes from: all bytes that were loaded, and how it runs. Saved caches carry a checksum and that."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping

from liveshape.errors import InputError
from liveshape.formats.source import Source
from liveshape.graph.constants import pieces

_PIECE = 4 << 20  # bytes of a file that are hashed at a time


class Origin:
    """Where a model comes from: the name of its file, the bytes that were loaded, until it is closed, and how it runs.

    `rotation` is given where positions turn otherwise than in the file's own context: caches of both do not mix.

    Example: `Origin("model.pte", Source("model.pte")).checksum`.
    """

    def __init__(
        self,
        name: str,
        source: Source | None = None,
        data: Mapping[str, memoryview] | None = None,
        activations: str = "float32",
        rotation: bytes = b"",
    ) -> None:
        self.name, self.activations = name, activations
        self._rotation = rotation
        self._source, self._data = source, data or {}

    @functools.cached_property
    def checksum(self) -> str:
        """Of all bytes of the program that was loaded, and of the data that came beside it."""
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
        """Let go of the bytes."""
        self._data = {}
        if self._source is not None:
            self._source.close()
