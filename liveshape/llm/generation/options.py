"""Types of generation: prompts, samplers, logits processors, streamers, and the generation options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

import numpy as np
import numpy.typing as npt

from liveshape.llm.generation.host_sampling import Logits, Tokens
from liveshape.llm.generation.stats import Stats

if TYPE_CHECKING:
    from liveshape.llm.language_model import LanguageModel
    from liveshape.llm.text.tokenizer import Tokenizer

Prompt = str | Sequence[int] | npt.NDArray[np.integer[Any]] | Sequence[Mapping[str, Any]]
Prompts = (
    list[str]
    | tuple[str, ...]
    | Sequence[Sequence[int]]
    | Sequence[npt.NDArray[np.integer[Any]]]
    | Sequence[Sequence[Mapping[str, Any]]]
)
Sampler = Callable[[Logits], int]
LogitsProcessor = Callable[[Tokens, Logits], Logits]


class Streamer(Protocol):
    """The streamer protocol of transformers: `put` gets the prompt's token ids first, then those of each token."""

    def put(self, value: Any) -> None: ...

    def end(self) -> None: ...


class GenerationOptions(TypedDict, total=False):
    """The keyword arguments of `stream_generate`, for wrappers that pass them on.

    Example: `def say(text: str, **options: Unpack[GenerationOptions]) -> str: ...`.
    """

    max_tokens: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    logit_bias: Mapping[int, float] | None
    seed: int | None
    stop: str | Sequence[str] | None
    streamer: Streamer | None
    sampler: Sampler | None
    logits_processors: Sequence[LogitsProcessor]
    keep_prefix: bool
    stats: Stats | None
    lookahead: Literal["ngram"] | LanguageModel | tuple[LanguageModel, Tokenizer] | None
    lookahead_tokens: int
    logprobs: int | None
    json_schema: Mapping[str, Any] | str | bool | None
    regex: str | None
    forced_tokens: Sequence[int]
    raw: bool


NAMES = tuple(GenerationOptions.__annotations__)
