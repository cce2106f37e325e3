"""The allowed methods and functions of chat templates, each charged to the budget.

They return lists, never iterators or views.
"""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.runtime import LoopContext, Undefined
from jinja2.utils import Cycler, Joiner, Namespace

from liveshape.llm.text.template_budget import (
    ITEM,
    LONGEST_NAME,
    OPERATION,
    REFERENCE,
    LimitError,
    charge,
    search_cost,
    text,
    weigh,
)

WIDTH = 1000  # the largest padding, indentation or precision
SLOW = 40  # units per character that a regex visits
_WIDE = re.compile(r"[0-9]{4}|\*")
_CLOCK_WIDTH = re.compile(r"%[^a-zA-Z%]*[0-9]")


class Items:
    """The iterable of a loop: each item charges one iteration.

    Example: `for item in Items([1, 2], 100): ...`.
    """

    def __init__(self, value: Any, cost: int = OPERATION + ITEM) -> None:
        if not isinstance(value, (str, list, tuple, dict, range, Undefined)):
            raise TypeError(f"{type(value).__name__} cannot be looped over")
        self._value, self._cost = value, cost

    def __iter__(self) -> Iterator[Any]:
        for item in self._value:
            charge(self._cost)
            yield item

    def __len__(self) -> int:
        return len(self._value)


# String methods


def lengths(args: tuple[Any, ...]) -> int:
    """The total length of the strings among arguments, those in tuples included."""
    flat = [each for arg in args for each in (arg if isinstance(arg, tuple) else (arg,))]
    charge(REFERENCE * len(flat))
    return sum(len(each) for each in flat if isinstance(each, str))


def charge_linear(made: str, *args: Any, **named: Any) -> None:
    charge(3 * len(made))


def _charge_search(made: str, *args: Any, **named: Any) -> None:
    charge(len(made) + search_cost(len(made), lengths(args)))


def charge_search_back(made: str, *args: Any, **named: Any) -> None:
    charge(len(made) + search_cost(len(made), lengths(args), from_the_right=True))


def _charge_split(made: str, sep: Any = None, maxsplit: Any = -1, *, back: bool = False) -> None:
    pieces = len(made) // 2 + 1
    if isinstance(sep, str) and sep:
        charge(2 * search_cost(len(made), len(sep), back))
        pieces = made.count(sep) + 1
    if isinstance(maxsplit, int) and maxsplit >= 0:
        pieces = min(pieces, maxsplit + 1)
    charge(len(made) + ITEM * pieces)


def _charge_lines(made: str, *args: Any, **named: Any) -> None:
    charge((1 + ITEM) * len(made))


def _charge_replace(made: str, old: Any = "", new: Any = "", count: Any = -1) -> None:
    if isinstance(old, str) and isinstance(new, str):
        charge(2 * search_cost(len(made), len(old)))
        hits = made.count(old)
        charge(len(made) + (hits if not isinstance(count, int) or count < 0 else min(hits, count)) * len(new))


def _charge_width(made: str, width: Any = 0, *args: Any) -> None:
    if isinstance(width, int) and width > WIDTH:
        raise LimitError(f"it fills a text to more than {WIDTH}")
    charge(len(made) + WIDTH)


def _charge_format(made: str, *args: Any, **named: Any) -> None:
    charge(SLOW * len(made))
    fields = 0
    for _, name, spec, conversion in string.Formatter().parse(made):
        if name is None:
            continue
        fields += 1
        if not re.fullmatch(r"\w*", name) or "{" in (spec or "") or _WIDE.search(spec or "") or conversion is not None:
            raise LimitError(f"it formats with {made[:40]!r}")
        charge(WIDTH * 2)
    weigh((args, named), 10 * max(fields, 1))


def percent(form: str, values: Any) -> str:
    """`form % values`; a width of four digits or `*` is refused.

    Example: `percent("%05.2f", 3.14159)`.
    """
    charge(SLOW * len(form))
    if _WIDE.search(form):
        raise LimitError(f"it formats with {form[:40]!r}")
    fields = form.count("%")
    charge(2 * WIDTH * fields)
    weigh(values, 10 * (max(fields, 1) if isinstance(values, dict) else 1))
    return str(form % values)


_TEXT_METHODS: dict[str, Callable[..., None]] = {
    **dict.fromkeys(("upper", "lower", "title", "capitalize", "swapcase", "casefold"), charge_linear),
    **dict.fromkeys(("isdigit", "isalpha", "isalnum", "isspace", "isupper", "islower"), charge_linear),
    **dict.fromkeys(("isnumeric", "isdecimal", "istitle", "isidentifier", "isascii"), charge_linear),
    **dict.fromkeys(("find", "index", "count", "partition"), _charge_search),
    **dict.fromkeys(("rfind", "rindex", "rpartition", "strip", "lstrip", "rstrip"), charge_search_back),
    **dict.fromkeys(("startswith", "endswith", "removeprefix", "removesuffix"), _charge_search),
    **dict.fromkeys(("zfill", "ljust", "rjust", "center"), _charge_width),
    "split": _charge_split,
    "rsplit": functools.partial(_charge_split, back=True),
    "splitlines": _charge_lines,
    "replace": _charge_replace,
    "format": _charge_format,
}


def joined(separator: str, values: Any) -> str:
    items = list(Items(values))
    charge(lengths(tuple(items)) + len(separator) * len(items))
    return separator.join(items)


def _get(table: dict[Any, Any], key: Any, default: Any = None) -> Any:
    if isinstance(key, tuple):
        weigh(key)
    return table.get(key, default)


def pairs(table: dict[Any, Any]) -> list[Any]:
    charge((ITEM + 2 * REFERENCE) * len(table))
    return list(table.items())


def _keys(table: dict[Any, Any]) -> list[Any]:
    charge(REFERENCE * len(table))
    return list(table)


def _values(table: dict[Any, Any]) -> list[Any]:
    charge(REFERENCE * len(table))
    return list(table.values())


def _index(items: Any, item: Any) -> int:
    weigh((items, item))
    return int(items.index(item))


def _count(items: Any, item: Any) -> int:
    weigh((items, item))
    return int(items.count(item))


_METHODS: dict[type, dict[str, Callable[..., Any]]] = {
    dict: {"get": _get, "items": pairs, "keys": _keys, "values": _values},
    list: {"index": _index, "count": _count},
    tuple: {"index": _index, "count": _count},
}
_LOOP = ("index", "index0", "revindex", "revindex0", "first", "last", "length", "depth", "depth0")
ATTRIBUTES: dict[type, frozenset[str]] = {
    str: frozenset({*_TEXT_METHODS, "join"}),
    **{kind: frozenset(methods) for kind, methods in _METHODS.items()},
    LoopContext: frozenset({*_LOOP, "previtem", "nextitem", "cycle", "changed"}),
    Cycler: frozenset({"current", "next", "reset"}),
}


def call_method(owner: Any, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Call an allowed method of a str, list, tuple or dict, charged.

    Example: `call_method("a,b", "split", (",",), {})`.
    """
    if type(owner) is not str:
        return _METHODS[type(owner)][name](owner, *args, **named)
    if name == "join":
        return joined(owner, *args, **named)
    _TEXT_METHODS[name](owner, *args, **named)
    return getattr(owner, name)(*args, **named)


# Functions


def _raise_exception(message: Any = "") -> NoReturn:
    raise TemplateError(text(message))


def _strftime_now(form: str) -> str:
    if len(form) > LONGEST_NAME or _CLOCK_WIDTH.search(form):
        raise LimitError(f"it asks the clock for {form[:40]!r}")
    charge(5 * SLOW * len(form))
    return datetime.now().strftime(form)


def _dict(*args: Any, **named: Any) -> dict[Any, Any]:
    weigh((args, named))
    return dict(*args, **named)


FUNCTIONS: dict[str, Any] = {
    "raise_exception": _raise_exception,
    "strftime_now": _strftime_now,
    "dict": _dict,
    "namespace": Namespace,
    "cycler": Cycler,
    "joiner": Joiner,
}
