"""Chat templates: messages to the text that a model was trained on, in the jinja dialect of transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, NoReturn

from liveshape.errors import FormatError, InputError
from liveshape.llm.packages import need

Message = Mapping[str, Any]


class ChatTemplate:
    """A template that turns messages into text. It runs in a sandbox: it comes with the weights, not with the code.

    Example: `ChatTemplate(text).render([{"role": "user", "content": "Hi"}], add_generation_prompt=True)`.
    """

    def __init__(self, source: str) -> None:
        self.source = source

    def render(self, messages: Sequence[Message], **variables: Any) -> str:
        """The text for the messages; what the template itself refuses is an InputError with its words."""
        need("jinja2")
        import jinja2

        try:
            return str(self._compiled.render(messages=[dict(message) for message in messages], **variables))
        except (jinja2.TemplateError, TypeError, KeyError, AttributeError) as error:
            raise InputError(f"the chat template refuses these messages: {error}") from error

    @cached_property
    def _compiled(self) -> Any:
        import jinja2

        try:
            return _environment().from_string(self.source)
        except jinja2.TemplateSyntaxError as error:
            raise FormatError(f"the chat template is broken at its line {error.lineno}: {error}") from error


def _environment() -> Any:
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks what the model writes, which only training needs: the inside is all that counts."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Parser) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    def raise_exception(message: str) -> NoReturn:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    environment.filters["tojson"] = _tojson
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
