"""Chat templates: messages to the text that a model was trained on, in the jinja dialect of transformers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import Any, NoReturn

from liveshape.errors import FormatError, InputError, LiveshapeError
from liveshape.packages import need

Message = Mapping[str, Any]


class ChatTemplate:
    """A template that turns messages into text. It runs in a sandbox: it comes with the weights, not with the code.

    Example: `ChatTemplate(text).render([{"role": "user", "content": "Hi"}], add_generation_prompt=True)`.
    """

    def __init__(self, source: str) -> None:
        self.source = source

    def render(self, messages: Sequence[Message], **variables: Any) -> str:
        """The text for the messages; what the template itself refuses is an InputError with its words.

        A template that is broken, or that costs more than any prompt is worth, is a FormatError.
        """
        need("jinja2")
        from liveshape.llm.template_limits import limited

        given = _as_tables(messages)
        with limited():
            template = self._compiled
            with _refusals("the chat template refuses these messages"):
                return str(template.render(messages=given, **variables))

    @cached_property
    def _compiled(self) -> Any:
        import jinja2

        with _refusals("the chat template is broken", FormatError):
            try:
                return _environment().from_string(self.source)
            except jinja2.TemplateSyntaxError as error:
                raise FormatError(f"the chat template is broken at its line {error.lineno}: {error}") from error


def _as_tables(messages: Any) -> list[dict[str, Any]]:
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        kind = type(messages).__name__
        raise InputError(f"messages are a list of {{'role': ..., 'content': ...}}, {kind} was given; give a list")
    made = list(messages)
    wrong = [type(each).__name__ for each in made if not isinstance(each, Mapping)]
    if wrong:
        raise InputError(f"a message is {{'role': ..., 'content': ...}}, {wrong[0]} was given")
    return [dict(message) for message in made]


@contextmanager
def _refusals(what: str, kind: type[LiveshapeError] = InputError) -> Iterator[None]:
    """Whatever a template raises, in our words."""
    from liveshape.llm.template_limits import LimitError

    try:
        yield
    except LiveshapeError:
        raise
    except (LimitError, RecursionError, MemoryError, OverflowError) as error:
        reason = str(error) or type(error).__name__
        raise FormatError(f"the chat template costs too much: {reason}; give another chat_template") from error
    except Exception as error:  # anything: a template is a program
        raise kind(f"{what}: {error}") from error


def _environment() -> Any:
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser

    from liveshape.llm.template_limits import LimitedEnvironment, limit_filter

    class Generation(Extension):
        """`{% generation %}` marks what the model writes, which only training needs: the inside is all that counts."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Parser) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    def raise_exception(message: str) -> NoReturn:
        raise TemplateError(message)

    environment = LimitedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    environment.filters["tojson"] = limit_filter("tojson", _tojson)
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja's own filter escapes for HTML, which no model was trained on.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
