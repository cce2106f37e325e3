"""Argument validation before anything is computed: integers of numpy and torch are accepted, no guesses are made."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from liveshape.errors import InputError

_MOST_BIAS = 100  # as OpenAI has it
LOOKAHEAD_TOKENS = 7  # default draft tokens per call: eight rows with the token before them


def check_pair(model: Any, tokenizer: Any) -> None:
    """Raise unless these are a model and a tokenizer, in this order.

    Example: `check_pair(*load("SmolLM2-135M-Instruct"))`.
    """
    if not hasattr(model, "prefill") or not hasattr(tokenizer, "encode_prompt"):
        swapped = hasattr(tokenizer, "prefill") and hasattr(model, "encode_prompt")
        kinds = f"{type(model).__name__} and {type(tokenizer).__name__} were given"
        advice = "swap them" if swapped else "`model, tokenizer = load(path)` gives both"
        raise InputError(f"a model and then its tokenizer are expected, {kinds}; {advice}")


def token_ids(ids: Any) -> list[int]:
    """Token ids as a list of int, from any sequence or 1-d array.

    >>> token_ids((1, 2, 3))
    [1, 2, 3]
    """
    kind = type(ids).__name__
    if isinstance(ids, (str, bytes, bytearray, Mapping)):
        raise InputError(f"token ids are a list of integers, {kind} was given; `tokenizer.encode` makes them of text")
    if hasattr(ids, "tolist"):  # arrays and tensors, whose elements are not Python's int
        try:
            ids = ids.tolist()
        except Exception as error:  # of any array library
            raise InputError(f"token ids are a list of integers, {kind} was given: {error}") from error
    if not isinstance(ids, Collection):
        raise InputError(f"token ids are a list of integers, {kind} was given; give a list")
    wrong = next(
        (type(each).__name__ for each in ids if isinstance(each, bool) or not isinstance(each, Integral)), None
    )
    if wrong is not None:
        raise InputError(f"token ids are a list of integers, this is a sequence of {wrong}")
    return [int(each) for each in ids]


def token_limit(max_tokens: Any) -> int | None:
    """Validate `max_tokens`; None and -1 mean up to the context length.

    >>> token_limit(5), token_limit(-1)
    (5, None)
    """
    if max_tokens is None:
        return None
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, Integral):
        raise InputError(f"max_tokens is a whole number or None, {max_tokens!r} was given")
    limit = int(max_tokens)
    if limit == 0 or limit < -1:
        raise InputError(f"max_tokens is {limit}: give a number above 0, or None or -1 for as many as there is context")
    return limit if limit > 0 else None


def token_biases(logit_bias: Any, vocabulary: int) -> dict[int, float]:
    """Validate `logit_bias`: numbers from -100 to 100 that are added to the logits of tokens, by token id.

    >>> token_biases({5: -100}, 10), token_biases(None, 10)
    ({5: -100.0}, {})
    """
    if not isinstance(logit_bias, Mapping | None):
        raise InputError(f"logit_bias is a bias by token id, {type(logit_bias).__name__} was given")
    found: dict[int, float] = {}
    for token, bias in (logit_bias or {}).items():
        if isinstance(token, bool) or not isinstance(token, Integral) or not 0 <= int(token) < vocabulary:
            raise InputError(f"logit_bias is by token id, from 0 to {vocabulary - 1}; {token!r:.60} is none")
        if isinstance(bias, bool) or not isinstance(bias, Real) or not abs(float(bias)) <= _MOST_BIAS:
            raise InputError(f"logit_bias of token {token} must be from -100 to 100, {bias!r:.60} was given")
        found[int(token)] = float(bias)
    return found


def draft_limit(lookahead_tokens: Any) -> int:
    """Validate `lookahead_tokens`, the most draft tokens per call.

    >>> draft_limit(5)
    5
    """
    given = lookahead_tokens
    if isinstance(given, bool) or not isinstance(given, Integral) or given < 1:
        raise InputError(f"lookahead_tokens is a whole number above 0, {given!r} was given")
    return int(given)


def stop_strings(stop: Any) -> tuple[str, ...]:
    """Validate stop strings: one, several, or none.

    >>> stop_strings("END"), stop_strings(None)
    (('END',), ())
    """
    if stop is None:
        return ()
    stops = (stop,) if isinstance(stop, str) else tuple(stop) if isinstance(stop, Collection) else (stop,)
    wrong = next((each for each in stops if not isinstance(each, str)), None)
    if wrong is not None or isinstance(stop, (bytes, Mapping)):
        raise InputError(f"stop is a text or several, {stop!r} was given")
    if not all(stops):
        raise InputError("a stop string must not be empty: it would end every text at once")
    return stops


def text_of(value: Any, what: str) -> str:
    """Validate a str that can be encoded as UTF-8, as tokenizers need it.

    >>> text_of("Hi", "the prompt")
    'Hi'
    """
    if not isinstance(value, str):
        raise InputError(f"{what} is a text, {type(value).__name__} was given")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        place = f"{value[error.start]!r} at {error.start}"
        raise InputError(
            f"{what} has a character that is no text: {place}; decode bytes with errors='replace'"
        ) from None
    return value


def path_of(path: Any) -> Path:
    """Validate a path.

    >>> path_of("model.pte").name
    'model.pte'
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"a path is expected, {type(path).__name__} was given")
    if "\0" in os.fsdecode(path):
        raise InputError(f"{os.fsdecode(path)!r} is no path: it has a character that no file name can have")
    return Path(os.fsdecode(path))


def callables(name: str, given: Any) -> tuple[Callable[..., Any], ...]:
    """Validate callables given by the user.

    >>> callables("logits_processors", [max])
    (<built-in function max>,)
    """
    found: Sequence[Any] = () if given is None else tuple(given) if isinstance(given, Iterable) else (given,)
    wrong = next((type(each).__name__ for each in found if not callable(each)), None)
    if wrong is not None:
        raise InputError(f"{name} must be functions, {wrong} was given")
    return tuple(found)
