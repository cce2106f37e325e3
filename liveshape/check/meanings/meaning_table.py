"""The table of meanings: functions in numpy by the operators that they are of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Meaning = Callable[..., Sequence[Any]]

MEANINGS: dict[str, Meaning] = {}


def meaning(*names: str) -> Callable[[Meaning], Meaning]:
    """Register a function as the meaning of operators.

    Example: `@meaning("et_vk.prepack.default")`.
    """

    def register(function: Meaning) -> Meaning:
        MEANINGS.update(dict.fromkeys(names, function))
        return function

    return register
