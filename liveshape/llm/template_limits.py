"""What a chat template may cost. It comes with the weights, not with the code, so it runs in jinja's sandbox, and here
under a budget: every text and list that it makes is charged by its length before it is made, and every turn of a loop
looks at the clock. Honest templates use some thousandths of it.
"""

from __future__ import annotations

import functools
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

_CHARACTERS = 1 << 26  # of all that one rendering makes
_SECONDS = 1.5  # of the processor
_WIDTH = 1000  # the most that a filter is asked to indent, fill or round by
_FIELDS = 16  # of one format
_BITS = 4096  # of an integer
_ITEMS_PER_LOOK = 1024
_NESTED_FORMAT = re.compile(r"\{[^{}]*\{")
_WIDE_FORMAT = re.compile(r"[0-9]{4}|\*")
# Filters of web pages, with which a text can be made slow to read.
_NOT_OF_CHATS = ("forceescape", "pprint", "striptags", "urlize", "wordwrap", "xmlattr")
_WITH_WIDTHS = ("batch", "center", "indent", "round", "slice", "tojson")


class LimitError(Exception):
    """A template costs more than any prompt is worth. It is no ValueError: some filters swallow those."""


class _Budget(threading.local):
    """What is left for the rendering under way in this thread."""

    characters = 0
    deadline = 0.0

    def charge(self, cost: int) -> None:
        self.characters -= cost
        if self.characters < 0:
            raise LimitError(f"it makes more than {_CHARACTERS:,} characters")

    def look(self) -> None:
        if time.thread_time() > self.deadline:
            raise LimitError(f"it takes more than {_SECONDS} seconds")


_BUDGET = _Budget()


@contextmanager
def limited() -> Iterator[None]:
    """Give what runs inside a fresh budget.

    Example: `with limited(): text = template.render(messages=messages)`.
    """
    _BUDGET.characters, _BUDGET.deadline = _CHARACTERS, time.thread_time() + _SECONDS
    yield


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, with its operators, calls, filters and loops under the budget.

    Example: `with limited(): LimitedEnvironment().from_string("{{ 1 + 1 }}").render()`.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        del self.globals["lipsum"]
        self.filters = {
            name: limit_filter(name, used) for name, used in self.filters.items() if name not in _NOT_OF_CHATS
        }

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        """Put what jinja does not let us intercept into calls of our own: loops, `~`, and lists of lists."""
        looping: Any = source.find_all((nodes.For, nodes.Macro, nodes.CallBlock))
        for looped in list(looping):
            looped.body.insert(0, nodes.ExprStmt(_own_call("look", [], looped.lineno), lineno=looped.lineno))
        for parent in list(source.find_all(nodes.Node)):
            for field, value in list(parent.iter_fields()):
                if isinstance(value, list):
                    value[:] = [_guarded(each) for each in value]
                elif isinstance(value, nodes.Expr):
                    setattr(parent, field, _guarded(value))
        return str(super()._generate(source, *args, **kwargs))

    @staticmethod
    def look() -> str:
        _BUDGET.look()
        return ""

    @staticmethod
    def joined(*items: Any) -> str:
        """`a ~ b`."""
        texts = [str(item) for item in items]
        _BUDGET.charge(sum(map(len, texts)))
        return "".join(texts)

    @staticmethod
    def weighed(value: Any) -> Any:
        """A list or table that the template has made, and all that is inside of it."""
        _charge_all(value)
        return value

    @staticmethod
    def concat(pieces: Iterable[str]) -> str:
        """The pieces of a block as one text."""
        held = list(pieces)
        _BUDGET.charge(sum(map(len, held)))
        return "".join(held)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        _BUDGET.look()
        if operator == "%" and isinstance(left, str):
            _check_format(left, (right,))
        elif operator == "**":
            if isinstance(left, int) and isinstance(right, int) and left.bit_length() * abs(right) > _BITS:
                raise LimitError(f"it asks for an integer of more than {_BITS} bits")
        elif operator == "*":
            for one, other in ((left, right), (right, left)):
                if isinstance(one, int) and isinstance(other, (str, list, tuple)):
                    _charge_all(other, max(one, 0))
            if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > _BITS:
                raise LimitError(f"it asks for an integer of more than {_BITS} bits")
        elif operator == "+" and isinstance(left, (str, list, tuple)):
            _charge_all((left, right))
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return super().is_safe_attribute(obj, attr, value) and not (isinstance(obj, str) and attr == "translate")

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        inner, form = wrapped, value.__self__

        def checked(*args: Any, **kwargs: Any) -> str:
            _check_format(form, (args, kwargs))
            return inner(*args, **kwargs)

        return checked

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function or a method; those of texts are charged for what they will give."""
        _BUDGET.look()
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        if isinstance(owner, str):
            args = _charge_method(owner, name, args, kwargs)
        elif __obj is dict:
            _charge_all((args, kwargs))
        return super().call(__context, __obj, *args, **kwargs)


def limit_filter(name: str, used: Callable[..., Any]) -> Callable[..., Any]:
    """A filter under the budget.

    Example: `environment.filters["tojson"] = limit_filter("tojson", to_json)`.
    """
    place = 1 if hasattr(used, "jinja_pass_arg") else 0  # of the value, behind what jinja passes itself

    @functools.wraps(used)
    def checked(*args: Any, **kwargs: Any) -> Any:
        _BUDGET.look()
        before, (value, *given) = args[:place], args[place:]
        options = [*given, *kwargs.values()]
        if name in _WITH_WIDTHS and any(_width(each) > _WIDTH for each in options):
            raise LimitError(f"it asks {name} for more than {_WIDTH}")
        if name == "indent":
            _BUDGET.charge(len(str(value)) * max((each for each in options if isinstance(each, int)), default=4))
        elif name == "replace":
            _charge_replaced(str(value), *map(str, given[:2]))
        elif name == "format":
            _check_format(str(value), (given, kwargs))
        elif name == "join":
            value = [str(each) if not isinstance(each, Mapping) else each for each in value]
            _charge_all((value, [given[:1] * len(value)]))
        elif name == "sum" and not isinstance(kwargs.get("start", (*given, 0, 0)[1]), (int, float)):
            raise LimitError("it sums what are no numbers")
        elif name == "tojson":
            _charge_all(value)
        found = used(*before, value, *given, **kwargs)
        if isinstance(found, (str, list)):
            _BUDGET.charge(len(found))
        return found

    return checked


def _width(option: Any) -> float:
    return abs(option) if isinstance(option, (int, float)) else len(option) if isinstance(option, str) else 0


def _own_call(name: str, args: list[nodes.Expr], line: int) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), args, [], None, None, lineno=line)


def _guarded(node: Any) -> Any:
    """A node, or a call of ours around it where what it makes must be charged."""
    if isinstance(node, nodes.Concat):
        return _own_call("joined", node.nodes, node.lineno)
    made = isinstance(node, (nodes.List, nodes.Dict)) or (isinstance(node, nodes.Tuple) and node.ctx == "load")
    if made and any(not isinstance(each, (nodes.Const, nodes.Pair)) for each in node.iter_child_nodes()):
        return _own_call("weighed", [node], node.lineno)
    if isinstance(node, nodes.Dict) and node.items:
        return _own_call("weighed", [node], node.lineno)
    return node


def _charge_all(value: Any, times: int = 1) -> None:
    """Charge a value with everything inside of it, as often as it is there."""
    waiting, seen = [value], 0
    while waiting:
        item = waiting.pop()
        seen += 1
        if seen % _ITEMS_PER_LOOK == 0:
            _BUDGET.look()
        if isinstance(item, str):
            _BUDGET.charge(len(item) * times)
        else:
            _BUDGET.charge(times)
            if isinstance(item, Mapping):
                waiting += [*item.keys(), *item.values()]
            elif isinstance(item, (list, tuple, set, frozenset)):
                waiting += item


def _charge_replaced(text: str, old: str = "", new: str = "") -> None:
    _BUDGET.charge(len(text) + (len(text) // max(len(old), 1) + 1) * len(new))


def _charge_method(text: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Charge a method of a text for what it will give, and return its arguments."""
    widths = [each for each in (*args, *kwargs.values()) if isinstance(each, int)]
    if name == "join" and args:
        items = list(args[0])
        _charge_all((items, [text] * len(items)))
        return (items, *args[1:])
    if name == "replace":
        _charge_replaced(text, *(each for each in args[:2] if isinstance(each, str)))
    elif name == "expandtabs":
        _BUDGET.charge(len(text) * max(widths, default=8))
    else:
        _BUDGET.charge(len(text) + max(widths, default=0))
    return args


def _check_format(form: str, values: Any) -> None:
    """Charge a format; one that asks for a width of thousands, or of what it is told, is refused."""
    fields = form.count("{") + form.count("%")
    if fields > _FIELDS or _WIDE_FORMAT.search(form) or _NESTED_FORMAT.search(form):
        raise LimitError(f"it formats with {form[:40]!r}")
    _charge_all((form, values), max(fields, 1))
