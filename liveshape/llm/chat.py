"""A conversation: every turn is rendered as a whole, and only what the model's cache does not hold yet is computed."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from liveshape.errors import InputError
from liveshape.llm.arguments import check_pair, text_of
from liveshape.llm.generate import stream_generate
from liveshape.llm.options import GenerationOptions
from liveshape.llm.responses import GenerationResponse
from liveshape.llm.tokenizer import Tokenizer

if TYPE_CHECKING:
    from liveshape.llm.model import LanguageModel


class Conversation:
    """Messages, and what of them the cache holds. Nothing is dropped: a conversation that is too long is an error.

    A model without a chat template continues the text of all messages instead.

    Example: `chat = Conversation(model, tokenizer, system="Be brief."); print(chat.reply("Hi"))`.
    """

    def __init__(
        self, model: LanguageModel, tokenizer: Tokenizer, *, system: str | None = None, **template: Any
    ) -> None:
        check_pair(model, tokenizer)
        if system is not None and tokenizer.chat_template is None:
            raise InputError("this model has no chat template, so it knows no system prompt")
        self.model, self.tokenizer = model, tokenizer
        self._system = (
            [{"role": "system", "content": text_of(system, "the system prompt")}] if system is not None else []
        )
        self._template = template
        self.messages: list[Mapping[str, Any]] = list(self._system)
        self.context_used = 0  # tokens of the conversation so far, as of the last answer

    def ask(self, text: str, **options: Unpack[GenerationOptions]) -> Generator[GenerationResponse, None, None]:
        """Stream the answer to a text; the options are those of `stream_generate`.

        An answer that is not read to its end is part of the conversation as far as it was read.

        Example: `for response in chat.ask("Hi", max_tokens=50): print(response.text, end="")`.
        """
        messages = [*self.messages, {"role": "user", "content": text_of(text, "the message")}]
        chosen: GenerationOptions = {"max_tokens": None, "keep_prefix": True, **options}
        return self._answer(messages, stream_generate(self.model, self.tokenizer, self._render(messages), **chosen))

    def reply(self, text: str, **options: Unpack[GenerationOptions]) -> str:
        """The whole answer to a text.

        Example: `chat.reply("What is the capital of France?")`.
        """
        return "".join(response.text for response in self.ask(text, **options))

    def reset(self) -> None:
        """Forget every message but the system prompt; what the cache holds of it is still of use."""
        self.messages = list(self._system)

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
