"""Chat messages: validation, since templates drop what they do not know in silence, and protection against injected
special tokens: text in a message is never encoded as a control token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from liveshape.errors import InputError
from liveshape.llm.text.long_texts import encoded, encoded_ids

if TYPE_CHECKING:
    import tokenizers

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
# Unicode noncharacters: they occur neither in text nor in templates.
_MARKS = tuple(map(chr, range(0xFDD0, 0xFDF0)))


def check_messages(messages: Sequence[Mapping[str, Any]], template: str) -> None:
    """Raise for messages that a chat template would drop or misrender.

    Example: `check_messages([{"role": "user", "content": "Hi"}], source)`.
    """
    if not messages:
        raise InputError("there are no messages: give at least one, such as {'role': 'user', 'content': 'Hi'}")
    for place, message in enumerate(messages):
        role = message.get("role")
        if not isinstance(role, str):
            given = "no role" if "role" not in message else f"the role {role!r:.40}"
            raise InputError(f"message {place} has {given}: roles are {', '.join(ROLES)}")
        if role not in ROLES and (not role or (f"'{role}'" not in template and f'"{role}"' not in template)):
            raise InputError(
                f"message {place} has the role {role!r:.40}, which this chat template does not know: roles are "
                f"{', '.join(ROLES)}"
            )
        if "content" not in message and not message.keys() - {"role", "name"}:
            raise InputError(f"message {place}, of the role {role}, has no content")
        content = message.get("content")
        if content is None and role in ("system", "developer", "user"):
            raise InputError(f"message {place}, of the role {role}, has no content: it is None")
        if content is not None and not isinstance(content, (str, Sequence, Mapping)):
            raise InputError(f"the content of message {place} is a text or a list of parts, it is {content!r:.40}")


class ControlTokens:
    """Keeps special tokens that are spelled out in messages from being encoded as such (prompt injection): a mark is
    inserted in each before rendering, and text with a mark is encoded as plain text.

    Example: `tokens = ControlTokens(backend, ["<|im_end|>"]); mark = tokens.mark_for(messages)`.
    """

    def __init__(self, backend: tokenizers.Tokenizer, special: Mapping[int, str]) -> None:
        self._backend = backend
        self._special = dict(special)
        texts = sorted({text for text in special.values() if len(text) > 1}, key=len, reverse=True)
        normalizer, added = backend.normalizer, backend.get_added_tokens_decoder()
        # Looked for in the normalized text, which other spellings become, too: those of capitals or of wide letters.
        self._normalized = {
            index: normalizer.normalize_str(text)
            for index, text in special.items()
            if normalizer is not None and len(text) > 1 and added[index].normalized
        }
        self._pattern = re.compile(f"(?={'|'.join(map(re.escape, texts))})") if texts else None
        self._plain: tokenizers.Tokenizer | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plain": None}  # which forgets in a pickle that it encodes no special tokens

    def marked(self, *values: Any) -> tuple[str | None, list[Any]]:
        """The mark and the marked values; None and the values themselves if no special token is spelled out in them."""
        if self._pattern is None:
            return None, list(values)
        texts = list(_texts(values))
        mark = next((mark for mark in _MARKS if not any(mark in text for text in texts)), None)
        if mark is None:
            raise InputError(
                "the messages have every character in them that could mark a control token: U+FDD0 to U+FDEF"
            )
        made = [_changed(value, self._marking(mark)) for value in values]
        return (None, list(values)) if made == list(values) else (mark, made)

    def _marking(self, mark: str) -> Callable[[list[str]], list[str]]:
        pattern = self._pattern
        assert pattern is not None

        def put(texts: list[str]) -> list[str]:
            whole = "".join(texts)
            places = {match.start() + 1 for match in pattern.finditer(whole)}
            if self._normalized:
                found = encoded(self._backend, whole)
                starts = [
                    start
                    for token, (start, _) in zip(found.ids, found.offsets, strict=True)
                    if token in self._normalized
                ]
                # A replacement has the place of its last letter alone.
                places |= {place for start in starts for place in (start, start + 1) if place < len(whole)}
            made, start = [], 0
            for text in texts:
                cuts = sorted(place - start for place in places if start < place <= start + len(text))
                made.append(mark.join(text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)))
                start += len(text)
            return made

        return put

    def encode(self, text: str, mark: str) -> list[int]:
        """The token ids of a rendered prompt: control tokens of the template, and plain text where there is a mark.

        Text around a mark is encoded as one run, from one control token to the next.
        """
        found = encoded(self._backend, text)
        ids: list[int] = []
        begin = first = 0  # of the run after the last control token: in the text, and in the ids
        for place, token in enumerate([*found.ids, None]):
            if token is not None and token not in self._special:
                continue
            start, end = found.offsets[place] if token is not None else (len(text), len(text))
            if token is not None and (mark in text[start:end] or not self._is_control(token, text[start:end])):
                continue
            run = text[begin:start]
            ids += self._letters(run.replace(mark, ""), begin > 0) if mark in run else found.ids[first:place]
            ids += [] if token is None else [token]
            begin, first = end, place + 1
        return ids

    def _is_control(self, token: int, text: str) -> bool:
        """Whether a token stands for a control token that is spelled in a text; <unk> stands for letters, too."""
        if token in self._normalized and self._normalized[token] in self._backend.normalizer.normalize_str(text):
            return True
        return token in self._special and self._special[token] in text

    def _letters(self, run: str, behind: bool) -> list[int]:
        """Encode a run without control tokens, as after one (`behind`) or at the beginning of a text."""
        anchor = _MARKS[0] * 3
        if self._plain is None:
            import tokenizers

            plain = tokenizers.Tokenizer.from_str(self._backend.to_str())
            plain.encode_special_tokens = True
            plain.add_tokens([tokenizers.AddedToken(anchor, normalized=False, special=False)])
            self._plain = plain
        if not behind:
            return encoded_ids(self._plain, run, add_special_tokens=False)
        return encoded_ids(self._plain, anchor + run, add_special_tokens=False)[1:]


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for pair in value.items():
            yield from _texts(list(pair))
    elif isinstance(value, Collection) and not isinstance(value, (bytes, bytearray)):
        for each in value:
            yield from _texts(each)


def _changed(value: Any, change: Callable[[list[str]], list[str]]) -> Any:
    """A copy with its texts changed; those of a list of parts together, since a template may concatenate them."""
    if isinstance(value, str):
        return change([value])[0]
    if isinstance(value, Mapping):
        return {_changed(key, change): _changed(each, change) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        parts = [each.get("text") if isinstance(each, Mapping) else None for each in value]
        said = iter(change([part for part in parts if isinstance(part, str)]))
        made = []
        for part, each in zip(parts, value, strict=True):
            whole = _changed(each, change)
            made.append({**whole, "text": next(said)} if isinstance(part, str) else whole)
        return made if not isinstance(value, tuple) else tuple(made)
    return value
