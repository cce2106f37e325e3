"""Multi-turn chat: the whole conversation is rendered each time, and prefix reuse computes only what is new."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from liveshape.errors import InputError
from liveshape.llm.arguments import check_pair, text_of, token_limit
from liveshape.llm.generation.generating import stream_generate
from liveshape.llm.generation.options import GenerationOptions
from liveshape.llm.generation.responses import GenerationResponse
from liveshape.llm.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from liveshape.llm.language_model import LanguageModel

_OPENING = ("system", "developer")
_ROOM = 4  # 1/4 of the context is reserved for the answer, while there are turns to drop


def without_system(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages after the leading system and developer messages.

    >>> without_system([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
    [{'role': 'user', 'content': 'Hi'}]
    """
    opening = next((place for place, each in enumerate(messages) if each["role"] not in _OPENING), len(messages))
    return list(messages[opening:])


class Conversation:
    """Chat history with prefix reuse. One longer than the context is an error, or, with `drop_oldest`, loses its oldest
    turns but for the system prompt: `dropped` is the number of messages that the last question removed.

    A model without a chat template continues the concatenated text of all messages.

    Example: `chat = Conversation(model, tokenizer, system="Be brief."); print(chat.reply("Hi"))`.
    """

    def __init__(
        self,
        model: LanguageModel,
        tokenizer: Tokenizer,
        *,
        system: str | None = None,
        drop_oldest: bool = False,
        **template: Any,
    ) -> None:
        check_pair(model, tokenizer)
        if system is not None and tokenizer.chat_template is None:
            raise InputError("this model has no chat template, so it knows no system prompt")
        self.model, self.tokenizer = model, tokenizer
        self._system = (
            [{"role": "system", "content": text_of(system, "the system prompt")}] if system is not None else []
        )
        self._template = template
        self._drop_oldest = drop_oldest
        self.dropped = 0
        self.messages: list[Mapping[str, Any]] = list(self._system)
        self.context_used = 0  # tokens, as of the last answer

    def ask(self, text: str, **options: Unpack[GenerationOptions]) -> Generator[GenerationResponse, None, None]:
        """Stream the answer to a user message; the options are those of `stream_generate`.

        An answer that is not read to its end stays in the history as far as it was read.

        Example: `for response in chat.ask("Hi", max_tokens=50): print(response.text, end="")`.
        """
        messages = [*self.messages, {"role": "user", "content": text_of(text, "the message")}]
        chosen: GenerationOptions = {"max_tokens": None, "keep_prefix": True, **options}
        ids, kept = self._fitting(messages, token_limit(chosen["max_tokens"]))
        responses = stream_generate(self.model, self.tokenizer, ids, **chosen)
        self.dropped = len(messages) - len(kept)
        return self._answer(kept, responses)

    def reply(self, text: str, **options: Unpack[GenerationOptions]) -> str:
        """The whole answer to a user message.

        Example: `chat.reply("What is the capital of France?")`.
        """
        return "".join(response.text for response in self.ask(text, **options))

    def reset(self) -> None:
        """Clear the history but for the system prompt, whose KV cache is still reused."""
        self.messages = list(self._system)

    def _fitting(
        self, messages: list[Mapping[str, Any]], max_tokens: int | None
    ) -> tuple[list[int], list[Mapping[str, Any]]]:
        """The token ids of the messages that fit, with room for an answer, and these messages: at least the last."""
        context = self.model.max_context
        room = min(max_tokens or context, context // _ROOM)
        while len(ids := self._render(messages)) + room > context and self._drop_oldest:
            opening = len(messages) - len(without_system(messages))
            users = [place for place, each in enumerate(messages) if each["role"] == "user" and place > opening]
            if not users:
                break
            messages = [*messages[:opening], *messages[users[0] :]]
        return ids, messages

    def _render(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        if self.tokenizer.chat_template is not None:
            ids: list[int] = self.tokenizer.apply_chat_template(messages, **self._template)
            return ids
        return self.tokenizer.encode_prompt("".join(str(message["content"]) for message in messages))

    def _answer(
        self, messages: list[Mapping[str, Any]], responses: Generator[GenerationResponse, None, None]
    ) -> Generator[GenerationResponse, None, None]:
        answer = ""
        try:
            for response in responses:
                answer += response.text
                self.messages = [*messages, {"role": "assistant", "content": answer}]
                self.context_used = response.prompt_tokens + response.generation_tokens
                yield response
        finally:
            responses.close()
