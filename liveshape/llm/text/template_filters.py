"""The allowed jinja filters and tests of chat templates, each charged to the budget.

Filters that only web pages need are left out. Filters return lists, never iterators.
"""

from __future__ import annotations

import functools
import html
import json
from collections.abc import Callable
from typing import Any, cast

from jinja2 import pass_context, pass_environment
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.runtime import Undefined
from jinja2.tests import TESTS as JINJA_TESTS

from liveshape.llm.text.template_budget import ITEM, MOST_BITS, OPERATION, LimitError, charge, compare, text, weigh
from liveshape.llm.text.template_methods import (
    SLOW,
    WIDTH,
    Items,
    call_method,
    charge_linear,
    charge_search_back,
    joined,
    lengths,
    pairs,
    percent,
)


def _number(value: Any) -> Any:
    if not isinstance(value, (int, float)):
        raise TypeError(f"a number is expected, {type(value).__name__} was given")
    return value


def _default(value: Any, default_value: Any = "", boolean: bool = False) -> Any:
    return default_value if isinstance(value, Undefined) or (boolean and not value) else value


def _trim(value: Any, chars: Any = None) -> str:
    made = text(value)
    charge_search_back(made, chars)
    return made.strip(chars)


def _replace(value: Any, old: Any, new: Any, count: int | None = None) -> str:
    found: str = call_method(text(value), "replace", (text(old), text(new), -1 if count is None else count), {})
    return found


def _format(value: Any, *args: Any, **named: Any) -> str:
    if args and named:
        raise TypeError("format takes arguments in order or by name, not both")
    return percent(text(value), named or args)


def _indent(s: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    made = text(s)
    size = len(width) if isinstance(width, str) else width
    if not isinstance(size, int) or size > WIDTH:
        raise LimitError(f"it indents by more than {WIDTH}")
    # There are at most as many line ends as characters.
    charge((1 + ITEM) * len(made))
    charge((len(made.splitlines()) + 1) * max(size, 0))
    return str(JINJA_FILTERS["indent"](made, width, first, blank))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja's own tojson escapes for HTML, which no model was trained on.
    size = len(indent) if isinstance(indent, str) else indent or 0
    if not isinstance(size, int) or size > WIDTH:
        raise LimitError(f"it indents JSON by more than {WIDTH}")
    items, depth = weigh(value, 6 if not ensure_ascii else 12)
    charge(items * (size * depth + sum(map(len, separators or ()))))
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _round(value: Any, precision: int = 0, method: str = "common") -> Any:
    if not -WIDTH < precision < WIDTH:
        raise LimitError(f"it rounds to more than {WIDTH} places")
    return JINJA_FILTERS["round"](_number(value), precision, method)


def _title(value: Any) -> str:
    made = text(value)
    charge(SLOW * len(made))
    return str(JINJA_FILTERS["title"](made))


def _int(value: Any, default: int = 0, base: int = 10) -> Any:
    charge(len(value) if isinstance(value, str) else 0)
    found = JINJA_FILTERS["int"](value, default, base)
    if isinstance(found, int) and found.bit_length() > MOST_BITS:
        raise LimitError(f"it reads an integer of more than {MOST_BITS} bits")
    return found


def _float(value: Any, default: float = 0.0) -> Any:
    charge(len(value) if isinstance(value, str) else 0)
    return JINJA_FILTERS["float"](value, default)


def _reverse(value: Any) -> Any:
    charge(len(value))
    return value[::-1] if isinstance(value, str) else list(Items(value))[::-1]


def _items(value: Any) -> list[Any]:
    if not isinstance(value, (dict, Undefined)):
        raise TypeError("items are those of a table")
    return pairs(value) if isinstance(value, dict) else []


def _escape(value: Any) -> str:
    made = text(value)
    charge(6 * len(made))
    return html.escape(made).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")


def _charged_text(method: str) -> Callable[[Any], str]:
    def changed(value: Any) -> str:
        made = text(value)
        charge_linear(made)
        return str(getattr(made, method)())

    return changed


def _of_items(name: str) -> Callable[..., Any]:
    """A jinja filter that visits each item once, charged."""
    used = JINJA_FILTERS[name]

    @functools.wraps(used)
    def checked(context: Any, value: Any, *args: Any, **named: Any) -> Any:
        items = Items(value)
        options = (*args, *named.values())
        # An attribute such as a.b.c is split and looked up part by part, for every item.
        charge(OPERATION + lengths(options) * (len(items) + 1))
        found = used(context, items, *args, **named)
        return list(found)

    return checked


def _of_order(name: str) -> Callable[..., Any]:
    """A jinja filter that compares items with each other (n log n), charged."""
    used = JINJA_FILTERS[name]

    @functools.wraps(used)
    def checked(environment: Any, value: Any, *args: Any, **named: Any) -> Any:
        items = list(Items(value))
        charge(OPERATION + lengths((*args, *named.values())) * (len(items) + 1))
        weigh(items, 2 * len(items).bit_length() + 2)
        found = used(environment, items, *args, **named)
        return list(found) if hasattr(found, "__next__") else found

    return checked


def _dictsort(value: Any, *args: Any, **named: Any) -> list[Any]:
    if not isinstance(value, dict):
        raise TypeError("dictsort is of tables")
    weigh(value, 2 * len(value).bit_length() + 2)
    return list(JINJA_FILTERS["dictsort"](value, *args, **named))


@pass_environment
def _first(environment: Any, seq: Any) -> Any:
    return next(iter(Items(seq)), environment.undefined("No first item, sequence was empty."))


@pass_environment
def _last(environment: Any, seq: Any) -> Any:
    items = list(Items(seq)) if isinstance(seq, dict) else seq
    return items[-1] if len(items) else environment.undefined("No last item, sequence was empty.")


_MAP = _of_items("map")


@pass_context
def _join(context: Any, value: Any, d: Any = "", attribute: Any = None) -> str:
    items = value if attribute is None else _MAP(context, value, attribute=attribute)
    return joined(text(d), [text(item) for item in Items(items)])


@pass_context
def _sum(context: Any, iterable: Any, attribute: Any = None, start: Any = 0) -> Any:
    items = iterable if attribute is None else _MAP(context, iterable, attribute=attribute)
    return sum((_number(item) for item in Items(items)), _number(start))


def _charged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def checked(*args: Any, **named: Any) -> Any:
        charge(OPERATION)
        return function(*args, **named)

    return checked


_FILTERS: dict[str, Callable[..., Any]] = {
    "abs": lambda value: abs(_number(value)),
    "capitalize": _charged_text("capitalize"),
    "count": len,
    "d": _default,
    "default": _default,
    "dictsort": _dictsort,
    "e": _escape,
    "escape": _escape,
    "first": _first,
    "float": _float,
    "format": _format,
    "indent": _indent,
    "int": _int,
    "items": _items,
    "join": _join,
    "last": _last,
    "length": len,
    "list": lambda value: list(Items(value)),
    "lower": _charged_text("lower"),
    "map": _MAP,
    **{name: _of_items(name) for name in ("reject", "rejectattr", "select", "selectattr")},
    **{name: _of_order(name) for name in ("max", "min", "sort", "unique")},
    "replace": _replace,
    "reverse": _reverse,
    "round": _round,
    "safe": text,
    "string": text,
    "sum": _sum,
    "title": _title,
    "tojson": _tojson,
    "trim": _trim,
    "upper": _charged_text("upper"),
}
FILTERS = {name: _charged(function) for name, function in _FILTERS.items()}


# Tests


def _compared(operator: str) -> Callable[[Any, Any], bool]:
    return lambda left, right: compare(left, operator, right)


def _upper(value: Any) -> bool:
    made = text(value)
    charge_linear(made)
    return made.isupper()


def _lower(value: Any) -> bool:
    made = text(value)
    charge_linear(made)
    return made.islower()


_OF_ONE = (
    *("boolean", "defined", "divisibleby", "even", "false", "float", "integer", "iterable", "mapping", "none"),
    *("number", "odd", "sameas", "sequence", "string", "true", "undefined", "callable", "filter", "test"),
)
_COMPARISONS = {
    **dict.fromkeys(("eq", "equalto", "=="), "eq"),
    **dict.fromkeys(("ne", "!="), "ne"),
    **dict.fromkeys(("lt", "lessthan", "<"), "lt"),
    **dict.fromkeys(("le", "<="), "lteq"),
    **dict.fromkeys(("gt", "greaterthan", ">"), "gt"),
    **dict.fromkeys(("ge", ">="), "gteq"),
    "in": "in",
}
TESTS: dict[str, Callable[..., Any]] = {
    **{name: cast("Callable[..., Any]", JINJA_TESTS[name]) for name in _OF_ONE},
    **{name: _compared(operator) for name, operator in _COMPARISONS.items()},
    "upper": _upper,
    "lower": _lower,
}
