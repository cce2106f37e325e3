"""An encoder for many requests: their texts run one at a time, in turn, on a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from liveshape.errors import LiveshapeError, QueueFull, counted
from liveshape.llm.embedding.text_encoder import TextEncoder
from liveshape.llm.embedding.vector_pooling import Vector
from liveshape.llm.serving.async_engine import MAX_WAITING


class Embedder:
    """Embeds for at most `max_waiting` requests; `load` opens the encoder, now and again after a device loss.

    Example: `Embedder("minilm", lambda: TextEncoder.load("minilm"))`.
    """

    def __init__(self, name: str, load: Callable[[], TextEncoder], max_waiting: int = MAX_WAITING) -> None:
        self.name, self._load, self._max_waiting = name, load, max_waiting
        self.encoder = load()
        self._requests = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="liveshape embedder")

    async def vectors(self, texts: Sequence[list[int]]) -> list[Vector]:
        """The vectors of texts, given as token ids. Each text takes its turn behind those of other requests; cancelling
        drops those that have not begun."""
        if self._requests >= self._max_waiting:
            waiting = counted(self._max_waiting, "request")
            raise QueueFull(f"{waiting} for embeddings may wait, and so many do: ask again later")
        self._requests += 1
        loop = asyncio.get_running_loop()
        try:
            return [await loop.run_in_executor(self._thread, self._vector, ids) for ids in texts]
        finally:
            self._requests -= 1

    def _vector(self, ids: list[int]) -> Vector:
        if self.encoder.lost:
            with suppress(LiveshapeError):
                self.encoder.close()
            self.encoder = self._load()
        return self.encoder.vector(ids)

    def close(self) -> None:
        """End the thread and free the encoder."""
        self._thread.shutdown(cancel_futures=True)
        with suppress(LiveshapeError):
            self.encoder.close()
