"""Chat templates: render messages to a prompt, in the jinja dialect of transformers."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from numbers import Integral, Real
from typing import Any

from liveshape.errors import FormatError, InputError, LiveshapeError
from liveshape.packages import need

Message = Mapping[str, Any]
_LONGEST_REASON = 400  # characters of a template's error message


class ChatTemplate:
    """A chat template. It is rendered in a sandbox: it comes with the weights, so it is untrusted.

    Example: `ChatTemplate(text).render([{"role": "user", "content": "Hi"}], add_generation_prompt=True)`.
    """

    def __init__(self, source: str) -> None:
        self.source = source

    def render(self, messages: Sequence[Message], **variables: Any) -> str:
        """Render messages to the prompt text; what the template raises is an InputError with its message.

        A template that does not compile, or that exceeds its budget, is a FormatError.
        """
        need("jinja2")
        from liveshape.llm.text.template_budget import limited

        given = {"messages": as_tables(messages), **{name: _plain(value, name) for name, value in variables.items()}}
        with _refusals("the chat template refuses these messages"), limited(given):
            return str(self._compiled.render(given))

    def render_open(self, messages: Sequence[Any], **variables: Any) -> str:
        """Render messages up to the end of the content of the last one, whose turn stays open.

        Example: `template.render_open([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hel"}])`.
        """
        said = as_tables(messages)
        if not said or not isinstance(said[-1].get("content"), str):
            raise InputError("a message that is to be continued has a text as its content")
        end = f"end-{secrets.token_hex(8)}"  # found again whatever the template makes of the content
        said[-1]["content"] += end
        text, found, _ = self.render(said, add_generation_prompt=False, **variables).rpartition(end)
        if not found:
            raise InputError("the chat template leaves the last message out, so no answer can go on from it")
        return text

    @cached_property
    def _compiled(self) -> Any:
        import jinja2

        from liveshape.llm.text.template_limits import LimitedEnvironment

        with _refusals("the chat template is broken", FormatError):
            try:
                return LimitedEnvironment().from_string(self.source)
            except jinja2.TemplateSyntaxError as error:
                raise FormatError(f"the chat template is broken at its line {error.lineno}: {error}") from error


def as_tables(messages: Any) -> list[dict[str, Any]]:
    """Validate messages and copy them to plain dicts, lists and scalars.

    >>> as_tables(({"role": "user", "content": "Hi"},))
    [{'role': 'user', 'content': 'Hi'}]
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        kind = type(messages).__name__
        raise InputError(f"messages are a list of {{'role': ..., 'content': ...}}, {kind} was given; give a list")
    made = list(messages)
    wrong = [type(each).__name__ for each in made if not isinstance(each, Mapping)]
    if wrong:
        raise InputError(f"a message is {{'role': ..., 'content': ...}}, {wrong[0]} was given")
    plain: list[dict[str, Any]] = _plain(made, "messages")
    return plain


def _plain(value: Any, what: str) -> Any:
    """A deep copy in Python's built-in types: only these have a known cost in the template budget."""
    try:
        return _copied(value, what)
    except RecursionError:
        raise InputError(f"{what} holds itself, or is nested too deep") from None


def _copied(value: Any, what: str) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, Mapping):
        return {_copied(key, what): _copied(each, what) for key, each in value.items()}
    if isinstance(value, tuple):
        return tuple(_copied(each, what) for each in value)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        return [_copied(each, what) for each in value]
    raise InputError(f"a chat template takes texts, numbers, lists and tables; {what} has {type(value).__name__}")


@contextmanager
def _refusals(what: str, kind: type[LiveshapeError] = InputError) -> Iterator[None]:
    """Translate whatever a template raises to a LiveshapeError."""
    from liveshape.llm.text.template_budget import LimitError

    try:
        yield
    except LiveshapeError:
        raise
    except (LimitError, RecursionError, MemoryError, OverflowError) as error:
        reason = (str(error) or type(error).__name__)[:_LONGEST_REASON]
        raise FormatError(f"the chat template costs too much: {reason}; give another chat_template") from error
    except Exception as error:  # anything: a template is a program
        raise kind(f"{what}: {str(error)[:_LONGEST_REASON]}") from error
