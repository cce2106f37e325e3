"""The engine of a replica, in a process of its own: the replica's passes messages on, and Python runs one thread at a
time. Ray is not imported there."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from liveshape.disk import read_text
from liveshape.llm.serving.answer_channel import AnswerChannel
from liveshape.llm.serving.async_engine import AsyncEngine
from liveshape.llm.serving.engine_opening import open_engine
from liveshape.llm.serving.remote_engine import RemoteEngine
from liveshape.serve.fleet_options import FleetOptions
from liveshape.shipped import shipped_model


def replica_engine(options: FleetOptions, device: str | None) -> RemoteEngine:
    """The engine of a fleet's options on an adapter.

    Example: `replica_engine(FleetOptions(model="model.gguf"), "0").facts`.
    """
    return RemoteEngine(partial(_opened, options, device))


def _opened(options: FleetOptions, device: str | None, channel: AnswerChannel) -> AsyncEngine:
    template = options.chat_template
    return open_engine(
        shipped_model() if options.model is None else options.model,
        sequences=options.sequences,
        cache_bytes=options.cache_bytes,
        max_context=options.max_context,
        max_waiting=options.max_waiting,
        chat_template=None if template is None else read_text(Path(template)),
        quant=options.quant,
        half_cache=options.half_cache,
        activations=options.activations,
        deterministic=options.deterministic,
        device=device,
        channel=channel,
    )
