"""Budget of a chat template's time and memory, in units: one per character written or read, more per list item.

Every operation is charged its worst case before it runs, so that rendering ends within a number of units that no
value, width or clock can change. A unit stands for at most four bytes and some nanoseconds.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jinja2.runtime import Undefined

OPERATION = 32
ITEM = 32  # of a new list: its slot, and the string object that it may be
REFERENCE = 2  # to an existing item
LONGEST_NAME = 200  # of an attribute, or of a strftime format
_UNITS = 12 << 20
_UNITS_PER_INPUT = 32  # so that a long conversation gets a larger budget
_ESCAPED = 10  # the most characters that one becomes in the repr of a list
MOST_BITS = 4096  # of an integer
# str.find is quadratic below this length, and str.rfind at any.
_QUADRATIC_BELOW = 30_000

_SCALARS = (str, int, float, bool, type(None))


class LimitError(Exception):
    """A template exceeds its budget. Not a ValueError: some filters swallow those."""


class _Budget(threading.local):
    """The remaining units of the current rendering, per thread."""

    units = 0


_BUDGET = _Budget()


@contextmanager
def limited(given: Any) -> Iterator[None]:
    """Context manager: a new budget, sized by the input.

    Example: `with limited(messages): text = template.render(messages=messages)`.
    """
    _BUDGET.units = 1 << 62
    size = (1 << 62) - (weigh(given), _BUDGET.units)[1]
    _BUDGET.units = _UNITS + _UNITS_PER_INPUT * size
    yield


def charge(units: int) -> None:
    """Take units from the budget; raises a LimitError once it is spent.

    Example: `charge(OPERATION + len(text))`.
    """
    _BUDGET.units -= units
    if _BUDGET.units < 0:
        raise LimitError("it makes or reads more than any prompt has")


def weigh(value: Any, times: int = 1) -> tuple[int, int]:
    """Charge a value and, recursively, its items, once per occurrence; returns the number of items and the depth.

    Example: `items, depth = weigh([1, [2, 3]])`.
    """
    waiting: list[tuple[Any, int]] = [(value, 0)]
    items = deepest = 0
    while waiting:
        item, depth = waiting.pop()
        items, deepest = items + 1, max(deepest, depth)
        kind = type(item)
        if kind is str:
            charge(times * (ITEM + len(item)))
        elif kind is dict:
            charge(times * ITEM * (1 + len(item)))
            waiting += [(each, depth + 1) for pair in item.items() for each in pair]
        elif kind in (list, tuple):
            charge(times * ITEM * (1 + len(item)))
            waiting += [(each, depth + 1) for each in item]
        elif kind is int:
            charge(times * (ITEM + item.bit_length() // 3))
        elif kind in _SCALARS or kind is range or isinstance(item, Undefined):
            charge(times * ITEM)
        else:
            raise TypeError(f"{kind.__name__} is no value that can be printed or compared")
    return items, deepest


def text(value: Any) -> str:
    """A value as a template prints it (str), charged.

    Example: `text([1, "a"]) == "[1, 'a']"`.
    """
    if type(value) is str:
        charge(OPERATION)
        return value
    weigh(value, _ESCAPED)
    return str(value)


def hashed(value: Any) -> Any:
    """Charge the hash of a key: that of a tuple visits all its items."""
    if type(value) not in _SCALARS:
        weigh(value)
    return value


def search_cost(length: int, part: int, from_the_right: bool = False) -> int:
    """The cost of finding every occurrence of a substring.

    >>> search_cost(1000, 8)
    2000
    """
    if from_the_right or length < _QUADRATIC_BELOW:
        return length + length * part // 8
    return 4 * (length + part)


def compare(left: Any, operator: str, right: Any) -> bool:
    """One comparison, by jinja's name of the operator, charged.

    >>> with limited(None):
    ...     compare("a", "in", ["a", "b"])
    True
    """
    charge(OPERATION)
    if operator in ("in", "notin"):
        found = _contains(right, left)
        return found if operator == "in" else not found
    scalars = type(left) in _SCALARS or type(right) in _SCALARS
    if scalars:
        charge(min(len(left), len(right)) // 16 if type(left) is type(right) is str else 0)
    elif left is not right:
        weigh((left, right))
    elif isinstance(left, (list, tuple, dict)):
        charge(REFERENCE * len(left))
    if operator in ("eq", "ne"):
        return bool(left == right) is (operator == "eq")
    if operator in ("lt", "lteq"):
        return bool(left < right if operator == "lt" else left <= right)
    return bool(left > right if operator == "gt" else left >= right)


def _contains(whole: Any, item: Any) -> bool:
    if type(whole) is str and type(item) is str:
        charge(search_cost(len(whole), len(item)))
    elif type(item) not in _SCALARS:
        weigh((whole, item))
        charge(len(whole) if isinstance(whole, range) else 0)
    elif type(whole) in (list, tuple, range):
        charge(len(whole) * (REFERENCE + (len(item) // 16 if type(item) is str else 0)))
    elif not isinstance(whole, (dict, Undefined)):
        raise TypeError(f"{type(whole).__name__} holds no items")
    return item in whole


def calculate(operator: str, left: Any, right: Any) -> None:
    """Charge a binary operator before it is applied; a TypeError for unsupported operands.

    Example: `calculate("*", "ab", 3)`, before `"ab" * 3`.
    """
    charge(OPERATION)
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * abs(right) if operator == "**" else left.bit_length() + right.bit_length()
            if operator in ("*", "**") and bits > MOST_BITS:
                raise LimitError(f"it asks for an integer of more than {MOST_BITS} bits")
    elif operator == "+" and type(left) is type(right) and isinstance(left, (str, list, tuple)):
        charge((len(left) + len(right)) * (1 if isinstance(left, str) else REFERENCE))
    elif operator == "*":
        one, other = (right, left) if isinstance(left, int) else (left, right)
        if isinstance(one, (str, list, tuple)) and isinstance(other, int):
            charge(len(one) * max(other, 0) * (1 if isinstance(one, str) else REFERENCE))
    # Undefined raises its own error for every operator.
    elif not isinstance(left, Undefined) and not isinstance(right, Undefined):
        kinds = f"{type(left).__name__} and {type(right).__name__}"
        raise TypeError(f"unsupported operand types for {operator}: {kinds}")
