"""`--against`: a function of the user's own, called with the inputs of a program, that gives what it should."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from liveshape.errors import InputError
from liveshape.named_function import named_function
from liveshape.run.arrays import as_torch

_USAGE = "--against takes module:function or path.py:function, called with the inputs of the program"


def against_of(text: str, dtypes: Sequence[str]) -> Callable[[Sequence[Any]], list[Any]]:
    """The function that `module:function` or `path.py:function` names, from arrays of these dtypes to arrays.

    It may be a torch module. A function without arguments is called once, and gives it: as a module or a function, or
    as `liveshape export` takes it, in a tuple with its example arguments. Where torch is used in its file it is called
    with tensors, otherwise with arrays.

    Example: `against_of("mymodel:build", ["float32"])([x])`.
    """
    function = _built(text, _named(text), len(dtypes))
    torch = sys.modules.get("torch")
    if torch is not None and not _uses(function, torch):
        torch = None

    def call(inputs: Sequence[Any]) -> list[Any]:
        given = list(inputs)
        if torch is not None:
            pairs = zip(inputs, dtypes, strict=True)
            given = [as_torch(torch, each.copy(), dtype) if hasattr(each, "shape") else each for each, dtype in pairs]
        try:
            with nullcontext() if torch is None else torch.no_grad():
                return [_array(each) for each in _flat(function(*given))]
        except Exception as error:
            raise InputError(f"--against {text}: {type(error).__name__}: {error}") from error

    return call


def _named(text: str) -> Any:
    place, _, attribute = text.rpartition(":")
    if not place or not attribute:
        raise InputError(f"--against {text!r}: {_USAGE}")
    try:
        return named_function(text)
    except InputError as error:
        raise InputError(f"--against {error}; {_USAGE}") from error


def _built(text: str, found: Any, count: int) -> Any:
    """What is called with inputs: the function itself, or what it gives without any."""
    try:
        needed = [each for each in inspect.signature(found).parameters.values() if each.default is each.empty]
    except (TypeError, ValueError):
        needed = [None] * count  # type: ignore[list-item]
    if callable(found) and count and not needed:
        made = found()
        found = made[0] if isinstance(made, tuple) and made else made
    if not callable(found):
        raise InputError(f"--against {text} is {type(found).__name__}, nothing that can be called; {_USAGE}")
    return found


def _uses(function: Any, torch: Any) -> bool:
    if isinstance(function, torch.nn.Module):
        return True
    return any(value is torch for value in getattr(inspect.unwrap(function), "__globals__", {}).values())


def _flat(given: Any) -> list[Any]:
    if isinstance(given, Mapping):
        given = list(given.values())
    return [part for each in given for part in _flat(each)] if isinstance(given, (tuple, list)) else [given]


def _array(given: Any) -> Any:
    if not hasattr(given, "detach"):
        return given
    made = given.detach().cpu()
    return (made.float() if str(made.dtype) == "torch.bfloat16" else made).numpy()
