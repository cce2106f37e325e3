"""What all routes share: the engine once it is loaded, the names of the model, the limits, the counters."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from liveshape.llm.serving.async_engine import AsyncEngine
from liveshape.serve.embedder import Embedder
from liveshape.serve.fields import Fields
from liveshape.serve.long_requests import LongRequests
from liveshape.serve.metrics import Metrics
from liveshape.serve.refusals import Refusal
from liveshape.serve.request_limits import RequestLimits


@dataclass
class Service:
    """A server's state; the engine is None while the model is loaded.

    Example: `service = Service(("story",)); service.engine = SerialEngine(model, tokenizer)`.
    """

    names: Sequence[str]
    key: str | None = None
    cors: Sequence[str] = ()
    hosts: Sequence[str] | None = None  # the Host headers that are answered; None answers all
    limits: RequestLimits = field(default_factory=RequestLimits)
    engine: AsyncEngine | None = None
    embedder: Embedder | None = None
    metrics: Metrics = field(default_factory=Metrics)
    any_model: bool = False  # whether a request may ask for the model by any name
    long: LongRequests = field(default_factory=LongRequests)
    created: int = field(default_factory=lambda: int(time.time()))

    def ready(self) -> AsyncEngine:
        """The engine; a refusal while there is none."""
        if self.engine is None:
            raise Refusal(503, "the model is being loaded; ask again in a moment", None, "loading")
        return self.engine

    def embeds(self) -> Embedder:
        """The encoder of embeddings; a refusal where the server has none."""
        if self.embedder is None:
            raise Refusal(
                400,
                "this server has no encoder: start it with --embeddings ENCODER, a program that gives hidden states",
            )
        return self.embedder

    @property
    def all_names(self) -> Sequence[str]:
        """The names of the model, and of the encoder behind them."""
        return self.names if self.embedder is None else (*self.names, self.embedder.name)

    def model_of(self, fields: Fields) -> str:
        """The name of the model that a request asks for; without one, the model that is here."""
        return self._asked(fields, self.names)

    def encoder_of(self, fields: Fields) -> str:
        """The name of the encoder that a request for embeddings asks for."""
        return self._asked(fields, (self.embeds().name,))

    def _asked(self, fields: Fields, names: Sequence[str]) -> str:
        name = fields.text("model")
        if name is None or (self.any_model and name not in names):
            return names[0]
        if name not in names:
            raise unknown_model(name, names)
        return name

    def health(self, now: float) -> str:
        """`ok`, `loading`, or `stalled` where requests wait and nothing moves."""
        if self.engine is None:
            return "loading"
        stalled = self.engine.status.stalled_for(now) > self.limits.stall_seconds
        return "stalled" if stalled else "ok"


def model_name(model: str | None) -> str:
    """The name of a model as clients ask for it: of its folder or file, or on the Hub; None is the shipped one. What is
    behind a link, as in the Hub's cache, has the link's name.

    >>> model_name("owner/name"), model_name(None)
    ('owner/name', 'story')
    """
    if model is None:
        return "story"
    path = Path(model)
    if not path.exists():
        return model
    path = Path(os.path.abspath(path))
    found = path.parent if path.name == "model.pte" else path
    if found.is_dir() and found.parent.name == "snapshots":  # a revision in the Hub's cache: models--owner--name
        return found.parents[1].name.removeprefix("models--").replace("--", "/")
    return found.name if found.is_dir() else found.stem


def unknown_model(name: str, names: Sequence[str]) -> Refusal:
    """The refusal of a model that is not here.

    >>> unknown_model("gpt", ["story"]).status
    404
    """
    here = f"the model {name!r:.80} is not here: {', '.join(names)} is"
    advice = "ask for that, leave it out, or start the server with --name NAME or --any-model"
    return Refusal(404, f"{here}; {advice}", "model", "model_not_found")
