"""A logits processor that stops an answer after some tokens until a test lets it go on, whatever the machine's load."""

from __future__ import annotations

import asyncio
import threading

from liveshape.llm.generation.options import Logits, Tokens


class Pausing:
    """Let `tokens` pass, then wait.

    Example: `pause = Pausing(1); answer = engine.generate("Once", logits_processors=[pause]); pause.go_on()`.
    """

    def __init__(self, tokens: int) -> None:
        self._left = tokens
        self._gate = threading.Event()
        self._reached = threading.Event()

    def __call__(self, tokens: Tokens, logits: Logits) -> Logits:
        if not self._left:
            self._reached.set()
            assert self._gate.wait(1800), "the test never let the answer go on"
        self._left = max(0, self._left - 1)
        return logits

    async def reached(self) -> None:
        """Wait until the answer stands still: nothing of it is on the device then."""
        assert await asyncio.to_thread(self._reached.wait, 1800), "the answer never came so far"

    def go_on(self) -> None:
        self._gate.set()
