"""The end of an engine, with and without an event loop: `with`, `async with`, `close_sync`."""

from __future__ import annotations

import asyncio
import threading
from typing import Self


class EngineLifetime:
    """What engines share: the ways to close them.

    Example: `with open_engine("SmolLM2-135M-Instruct") as engine: print(generate(engine, engine.tokenizer, "Hi"))`.
    """

    async def close(self, grace: float = 0) -> None:
        """Take no more requests, let those that are there end within `grace` seconds, and end the others."""
        raise NotImplementedError

    def close_sync(self, grace: float = 0) -> None:
        """`close` without an event loop; where the thread has one, that stands until the engine is closed.

        Example: `engine.close_sync()`.
        """
        failures: list[BaseException] = []

        def run() -> None:
            try:
                asyncio.run(self.close(grace))
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run, name="liveshape closing")
        thread.start()
        thread.join()
        for error in failures:
            raise error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_sync()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
