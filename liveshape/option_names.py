"""A misspelled option of a function is an error that names it and what may have been meant."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import ParamSpec, TypeVar

from liveshape.errors import InputError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_CLOSE = 0.6


class OptionError(InputError, TypeError):
    """A function has no such option.

    Example: `raise OptionError("load has no option max_contxt; did you mean max_context?")`.
    """


def checks_options(*more: str) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Decorator: refuse options that are neither in the signature of the function nor among `more`, which it passes on.

    >>> checks_options("seed")(lambda prompt, **options: options)("Once", sede=1)
    Traceback (most recent call last):
    liveshape.option_names.OptionError: <lambda> has no option sede; did you mean seed? It has seed
    """

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        parameters = inspect.signature(function).parameters.values()
        own = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
        given = {each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD}
        options = list(dict.fromkeys([*own, *more]))
        known = given.union(options)

        @functools.wraps(function)
        def checked(*args: Arguments.args, **named: Arguments.kwargs) -> Result:
            if not known.issuperset(named):
                _refuse(function.__name__, named, options, known)
            return function(*args, **named)

        return checked

    return decorate


def _refuse(name: str, named: Iterable[str], options: list[str], known: set[str]) -> None:
    wrong = next(each for each in named if each not in known)
    near = get_close_matches(wrong, options, 1, _CLOSE)
    meant = f"; did you mean {near[0]}?" if near else ";"
    raise OptionError(f"{name} has no option {wrong}{meant} {'It' if near else 'it'} has {', '.join(options)}")
