"""Constrained decoding (structured output): the logits of tokens that violate a JSON schema or a regex are masked.

The token mask comes from llguidance, the extra `constrain`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from liveshape.errors import InputError
from liveshape.llm.arguments import text_of
from liveshape.llm.generation.host_sampling import Logits
from liveshape.packages import need

if TYPE_CHECKING:
    from liveshape.llm.text.tokenizer import Tokenizer

_SPACE = r"[ \n]?"  # between JSON tokens

_made: WeakKeyDictionary[Tokenizer, dict[Any, Any]] = WeakKeyDictionary()  # LLTokenizers, built once per vocabulary


def grammar_of(json_schema: Any = None, regex: Any = None) -> str | None:
    """The llguidance grammar of a JSON schema (text or object) or of a regex; None if neither is given.

    Example: `grammar_of(json_schema={"type": "object"})`.
    """
    form = check_form(json_schema, regex)
    if form is None:
        return None
    from llguidance import LLMatcher

    if regex is not None:
        name, grammar = "regex", LLMatcher.grammar_from_regex(form)
    else:
        schema = form
        # Unless the schema sets its own whitespace, limit it: a model may otherwise write nothing else.
        spaces = {} if '"x-guidance"' in schema or schema == "false" else {"overrides": {"whitespace_pattern": _SPACE}}
        name, grammar = "json_schema", LLMatcher.grammar_from_json_schema(schema, **spaces)
    problem = LLMatcher.validate_grammar(grammar)
    if problem:
        raise InputError(f"{name} cannot be followed: {' '.join(problem.split())}")
    return str(grammar)


def check_form(json_schema: Any = None, regex: Any = None) -> str | None:
    """The text of a JSON schema or of a regex, checked as far as that takes no time; None if neither is given.

    Example: `check_form(regex="yes|no")`.
    """
    if json_schema is None and regex is None:
        return None
    if json_schema is not None and regex is not None:
        raise InputError("json_schema and regex were given: a text has one form; give one of them")
    need("llguidance", extra="constrain", what="text of a given form")
    return _schema_text(json_schema) if regex is None else text_of(regex, "regex")


def _schema_text(schema: Any) -> str:
    try:
        document = json.loads(schema) if isinstance(schema, str) else schema
        text = json.dumps({} if document is True else document, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"json_schema is an object or its JSON text, and this is none: {error}") from error
    if not isinstance(document, (Mapping, bool)):
        raise InputError(f"json_schema is an object or true, {type(document).__name__} was given")
    return text


class Constraint:
    """The state of a grammar matcher, and the token mask of the next token.

    Example: `Constraint(tokenizer, grammar_of(regex="yes|no"), 49152, {2}).mask(logits)`.
    """

    def __init__(self, tokenizer: Tokenizer, grammar: str, vocabulary: int, ends: Collection[int]) -> None:
        from llguidance import LLMatcher

        self._ends = frozenset(ends)
        known = _vocabulary(tokenizer, vocabulary, self._ends)
        # Without stop tokens llguidance picks an EOS token itself: it must never be sampled.
        self._never = [] if ends else list(known.eos_tokens)
        self._matcher = LLMatcher(known, grammar, log_level=0)
        self._check()

    def mask(self, logits: Logits) -> Logits:
        """The logits with disallowed tokens at -inf."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check()
        allowed = np.unpackbits(bits, bitorder="little")[: logits.size] == 1
        allowed[self._never] = False
        if not allowed.any():
            raise InputError("no token of this model can go on in the form that was asked for")
        return np.where(allowed, logits, np.float32(-np.inf))

    def put(self, token: int) -> None:
        """Advance the grammar by a sampled token."""
        if not self._matcher.is_stopped():
            self._matcher.consume_token(token)
            self._check()

    @property
    def complete(self) -> bool:
        """Whether the grammar allows no further token."""
        return bool(self._matcher.is_stopped())

    def _check(self) -> None:
        if self._matcher.is_error():
            problem = self._matcher.get_error().split("<state>")[0]
            raise InputError(f"the form that was asked for cannot be followed: {' '.join(problem.split())}")


def _vocabulary(tokenizer: Tokenizer, vocabulary: int, ends: frozenset[int]) -> Any:
    """The LLTokenizer of a tokenizer and its stop tokens, cached."""
    from llguidance import LLTokenizer

    found = _made.setdefault(tokenizer, {})
    if (vocabulary, ends) not in found:
        size = max(vocabulary, tokenizer.vocab_size)
        known = sorted(end for end in ends if end < size)
        try:
            found[vocabulary, ends] = LLTokenizer(tokenizer.to_json(), n_vocab=size, eos_token=known or None)
        except Exception as error:  # llguidance has no error class of its own
            raise InputError(f"this tokenizer cannot be constrained: {error}") from error
    return found[vocabulary, ends]
