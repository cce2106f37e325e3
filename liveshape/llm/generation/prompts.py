"""Prompts: a text, token ids or messages to token ids, and the check against the context length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeGuard

import numpy as np

from liveshape.errors import InputError, counted
from liveshape.llm.arguments import text_of, token_ids
from liveshape.llm.generation.options import Prompt, Prompts
from liveshape.llm.program.context import larger_context
from liveshape.llm.text.token_bound import TooManyTokensError
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
    """A prompt exceeds the context length of the model; `tokens` and `context` are both lengths, and `length` is that
    of the prompt in words: of a text that cannot fit it is the least, since that is not encoded.

    Example: `except ContextError as error: print(error.tokens, error.context)`.
    """

    def __init__(self, tokens: int, context: int, trained: int | None = None, *, at_least: bool = False) -> None:
        self.length = ("at least " if at_least else "") + counted(tokens, "token")
        super().__init__(
            f"the prompt is {self.length} long, the context of this model is {context:,}: "
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


def fitting_ids(
    tokenizer: Tokenizer,
    prompt: Prompt,
    context: int,
    trained: int | None,
    *,
    begin: int | None = None,
    raw: bool = False,
) -> list[int]:
    """`prompt_ids` of a prompt that fits a context: a text that cannot is refused before it is encoded.

    Example: `fitting_ids(tokenizer, "Once upon a time", model.max_context, model.trained_context)`.
    """
    try:
        ids = prompt_ids(tokenizer.limited(context, "the context of this model"), prompt, begin, raw=raw)
    except TooManyTokensError as error:
        raise ContextError(error.tokens, context, trained, at_least=True) from None
    if len(ids) > context:
        raise ContextError(len(ids), context, trained)
    return ids


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
    """How many tokens may follow a prompt that fits; the last one needs no row in the KV cache.

    Example: `max_new_tokens(len(ids), model, 256)`.
    """
    room = model.max_context - tokens + 1
    return room if max_tokens is None else min(max_tokens, room)
