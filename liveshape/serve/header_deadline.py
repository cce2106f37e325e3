"""Connections that never send a whole header are closed: each would keep a socket for ever."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEADER_SECONDS = 20.0


class HeaderDeadline(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # which of two is known when it runs
    """uvicorn's protocol; from the first instant, and from the first byte behind an answer, a header has
    `HEADER_SECONDS` to arrive.

    Example: `uvicorn.Config(app, http=HeaderDeadline)`.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Begin to wait for a header, or stop where it is there."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
