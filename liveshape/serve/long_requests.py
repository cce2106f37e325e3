"""Requests are read in threads, beside the event loop. Long ones have few threads of their own, so that short ones
never wait for them, and their texts are encoded in a process that ends when the client goes away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from starlette.requests import Request

from liveshape.llm.serving.tokenizer_process import TokenizerProcess
from liveshape.llm.text.long_texts import VERY_LONG_TEXT
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.serve.request_limits import RequestLimits
from liveshape.serve.streaming import until_gone

Result = TypeVar("Result")

_THREADS = 4
_COUNTED = 8  # characters for each token of the context, at least, that are counted


class LongRequests:
    """Reads requests with a tokenizer that refuses what cannot fit `context`, or, without one, more than is counted.

    Example: `ids = await long.read(request, lambda tokenizer: tokenizer.encode(text), tokenizer, 8192, limits)`.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, "liveshape long requests")
        self._processes: dict[str, TokenizerProcess] = {}  # by the holder of their tokenizer

    async def read(
        self,
        request: Request,
        work: Callable[[Tokenizer], Result],
        tokenizer: Tokenizer,
        limits: RequestLimits,
        *,
        holder: str,
        context: int | None = None,
        counted: int = 0,
    ) -> Result:
        """What `work` makes of a request; ClientGone if the client leaves before that."""
        left = threading.Event()
        process = self._process(holder, tokenizer)
        characters = max(limits.counted_characters, _COUNTED * counted) if context is None else None
        limited = tokenizer.limited(context, holder, partial(process.encode, left=left), characters=characters)
        told = request.headers.get("content-length", "")
        pool = None if told.isdigit() and int(told) <= VERY_LONG_TEXT else self._pool
        loop = asyncio.get_running_loop()

        async def reading() -> Result:
            try:
                return await loop.run_in_executor(pool, work, limited)
            finally:
                left.set()

        return await until_gone(request.receive, reading())

    def _process(self, holder: str, tokenizer: Tokenizer) -> TokenizerProcess:
        found = self._processes.get(holder)
        if found is None or found.tokenizer is not tokenizer:  # another engine, after the one that there was
            if found is not None:
                found.close()
            found = self._processes[holder] = TokenizerProcess(tokenizer)
        return found

    def close(self) -> None:
        """End the processes, and with them what waits for one."""
        for process in self._processes.values():
            process.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
