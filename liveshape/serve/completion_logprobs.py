"""Log-probabilities of a text in the form of `/v1/completions`: rows of tokens, each with its place in the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from liveshape.llm.generation.logprobs import LEAST_LIKELY, Logprobs
from liveshape.llm.generation.responses import GenerationResponse
from liveshape.llm.text.tokenizer import Tokenizer

Row = dict[str, list[Any]]
_NAMES = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


class TokenRows:
    """Makes the rows of one text. It may begin with its prompt: a first token, which nothing comes before, and
    responses that have the log-probabilities of the others; these rows are `first`.

    Example: `rows = TokenRows(tokenizer); joined_rows([rows.row(response) for response in responses])`.
    """

    def __init__(
        self, tokenizer: Tokenizer, begin: int | None = None, prompt: Sequence[GenerationResponse] = ()
    ) -> None:
        self._tokenizer, self._offset = tokenizer, 0
        self.first: list[Row | None] = [] if begin is None else [self._row(begin, None)]
        self.first += [self._row(each.token, each.logprobs) for each in prompt]

    def row(self, response: GenerationResponse) -> Row | None:
        """That of one response; None if it has no log-probabilities, or its token ends the text and is none of it."""
        if response.logprobs is None or (response.finish_reason == "stop" and response.stop_string is None):
            return None
        return self._row(response.token, response.logprobs)

    def _row(self, token: int, found: Logprobs | None) -> Row:
        decode = self._tokenizer.decode_behind
        text, offset = decode(token), self._offset
        self._offset += len(text)
        likeliest = dict[str, float]()
        for each, logprob in () if found is None else found.top:  # the likeliest first, also of those with one text
            likeliest.setdefault(decode(each), max(logprob, LEAST_LIKELY))
        return {
            "tokens": [text],
            "token_logprobs": [None if found is None else max(found.chosen, LEAST_LIKELY)],
            "top_logprobs": [None if found is None else likeliest],
            "text_offset": [offset],
        }


def joined_rows(rows: Sequence[Row | None]) -> Row:
    """Rows as one.

    >>> joined_rows([None])["tokens"]
    []
    """
    return {name: [value for row in rows if row is not None for value in row[name]] for name in _NAMES}
