"""Prompts: a text, token ids or messages to token ids, and the check against the context length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeGuard

import numpy as np

from liveshape.errors import InputError, counted
from liveshape.llm.arguments import text_of, token_ids
from liveshape.llm.generation.options import Prompt, Prompts
from liveshape.llm.program.context import larger_context
from liveshape.llm.text.tokenizer import Tokenizer


class ModelInfo(Protocol):
    """What is asked of a model before it runs."""

    @property
    def bos_id(self) -> int | None: ...

    @property
    def eos_ids(self) -> tuple[int, ...]: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def max_context(self) -> int: ...

    @property
    def trained_context(self) -> int | None: ...


class ContextError(InputError):
    """A prompt exceeds the context length of the model; `tokens` and `context` are both lengths.

    Example: `except ContextError as error: print(error.tokens, error.context)`.
    """

    def __init__(self, tokens: int, context: int, trained: int | None = None) -> None:
        super().__init__(
            f"the prompt is {counted(tokens, 'token')} long, the context of this model is {context:,}: "
            f"shorten the prompt, or {larger_context(trained, tokens)}"
        )
        self.tokens, self.context = tokens, context


def prompt_ids(tokenizer: Tokenizer, prompt: Prompt, begin: int | None = None, *, raw: bool = False) -> list[int]:
    """The token ids of a prompt: messages are rendered by the chat template, and so is a text unless it is `raw`.

    An empty prompt becomes the BOS token: the tokenizer's, or else `begin`.

    Example: `prompt_ids(tokenizer, [{"role": "user", "content": "Hi"}])`.
    """
    if isinstance(prompt, str):
        text = text_of(prompt, "the prompt")
        chats = tokenizer.chat_template is not None and not raw
        said = [{"role": "user", "content": text}]
        ids = tokenizer.apply_chat_template(said) if chats else tokenizer.encode_prompt(text)
    elif _is_chat(prompt):
        if raw:
            raise InputError("raw takes a text as it is, and messages were given: they need the chat template")
        ids = tokenizer.apply_chat_template(prompt)
    else:
        try:
            ids = token_ids(prompt)
        except InputError as error:
            raise InputError(f"a prompt is a text, token ids, or messages: {error}") from error
    if ids:
        return ids
    begin = begin if tokenizer.bos_id is None else tokenizer.bos_id
    if begin is None:
        raise InputError("the prompt is empty, and this model has no token that begins a text")
    return [begin]


def _is_chat(prompt: Any) -> TypeGuard[Sequence[Mapping[str, Any]]]:
    listed = isinstance(prompt, Sequence) and len(prompt) > 0
    return listed and all(isinstance(item, Mapping) for item in prompt)


def is_batch(prompt: Any) -> TypeGuard[Prompts]:
    """Whether a list is several prompts (texts, token ids, or messages) and not one.

    >>> is_batch(["Once", "There"]), is_batch([1, 2, 3])
    (True, False)
    """
    if not isinstance(prompt, (list, tuple)) or not prompt:
        return False
    return all(isinstance(item, (str, list, tuple, np.ndarray)) for item in prompt)


def max_new_tokens(tokens: int, model: ModelInfo, max_tokens: int | None) -> int:
    """How many tokens may follow the prompt; the last one needs no row in the KV cache.

    Example: `max_new_tokens(len(ids), model, 256)`.
    """
    if tokens > model.max_context:
        raise ContextError(tokens, model.max_context, model.trained_context)
    room = model.max_context - tokens + 1
    return room if max_tokens is None else min(max_tokens, room)
