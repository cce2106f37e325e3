"""The options of a fleet of replicas, as they come from a command line, a config file or the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, get_args, get_type_hints

from liveshape.errors import InputError
from liveshape.graph.activation_kinds import AUTO, check_activations
from liveshape.llm.batch.loading import SEQUENCES
from liveshape.llm.serving.async_engine import MAX_WAITING

PREFIX = "LIVESHAPE_SERVE_"
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True)
class FleetOptions:
    """What every replica serves, and how many replicas there are.

    >>> FleetOptions.read({"model": "model.gguf", "sequences": "16", "half_cache": "true"}).sequences
    16
    """

    model: str | None = None  # the shipped one if nobody says
    name: str | None = None  # what clients call it
    any_model: bool = False  # whether they may call it anything
    api_key_file: str | None = None
    sequences: int = SEQUENCES
    cache_bytes: int | None = None
    max_context: int | None = None
    max_waiting: int = MAX_WAITING
    half_cache: bool = False
    activations: str = AUTO
    deterministic: bool = False
    quant: str | None = None
    chat_template: str | None = None  # a file
    embeddings: str | None = None
    pooling: str | None = None
    device: str | None = None  # of every replica; else the adapters are shared out by the GPUs that Ray assigns
    gpus: float = 0  # of Ray's count, for each replica
    cpus: float = 1
    min_replicas: int = 1
    max_replicas: int = 1
    upscale_delay: float = 30  # seconds of more load, or of less, before a replica comes or goes
    downscale_delay: float = 600
    spread: int = 8  # requests that the replica of a conversation may have more than the least busy one
    grace: float = 30

    def __post_init__(self) -> None:
        check_activations(self.activations)
        if min(self.sequences, self.min_replicas, self.max_replicas) < 1 or self.max_replicas < self.min_replicas:
            raise InputError(
                f"{self.sequences} sequences on {self.min_replicas} to {self.max_replicas} replicas: at least one of "
                "each is needed, and max_replicas is no less than min_replicas"
            )

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> FleetOptions:
        """Options by name, as texts or as values."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(given) - known)
        if unknown:
            raise InputError(f"{unknown[0]!r} is no option of a fleet; there are {', '.join(sorted(known))}")
        kinds = get_type_hints(cls)
        return cls(**{name: _value(name, value, kinds[name]) for name, value in given.items()})

    @classmethod
    def of_environment(cls, given: Mapping[str, Any]) -> FleetOptions:
        """The given options, and those that are not given from variables such as LIVESHAPE_SERVE_MODEL."""
        named = {field.name: os.environ.get(PREFIX + field.name.upper()) for field in fields(cls)}
        return cls.read({name: value for name, value in named.items() if value is not None} | dict(given))


def _value(name: str, value: Any, kind: Any) -> Any:
    """A value of the type that its option has."""
    plain = next((each for each in get_args(kind) if each is not type(None)), kind)
    try:
        if value is None or plain is str:
            return None if value is None else str(value)
        return _FLAGS[str(value).lower()] if plain is bool else plain(str(value))
    except (ValueError, KeyError):
        kinds = {bool: "true or false", int: "a whole number", float: "a number"}
        raise InputError(f"{name} is {kinds[plain]}, {value!r} was given") from None
