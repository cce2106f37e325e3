"""The bounds of what a client may send."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RequestLimits:
    """Bounds of one request; the queue is bounded by the engine, the prompt by the context."""

    body_bytes: int = 8 << 20
    body_seconds: float = 60
    messages: int = 4096
    tools: int = 128
    stops: int = 16
    stop_characters: int = 4096  # of one of them
    schema_characters: int = 1 << 18
    counted_characters: int = 1 << 20  # of a text whose tokens are counted, or more where the context holds more
    choices: int = 16  # n, or prompts times n
    embedded_texts: int = 2048  # of one request, as OpenAI takes them
    ping_seconds: float = 15  # of silence, before a stream says that it is there
    stall_seconds: float = 120  # without a step, before the server is unhealthy
