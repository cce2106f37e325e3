"""The sandbox of chat templates, which come with the weights and are untrusted: a jinja environment with an allowlist
of nodes, operators, attributes, calls and filters, all charged to a budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import BuiltinMethodType, MethodType
from typing import Any

from jinja2 import TemplateAssertionError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Cycler, Joiner, Namespace

from liveshape.llm.text.template_budget import (
    ITEM,
    OPERATION,
    REFERENCE,
    calculate,
    charge,
    compare,
    hashed,
    text,
    weigh,
)
from liveshape.llm.text.template_filters import FILTERS, TESTS
from liveshape.llm.text.template_methods import ATTRIBUTES, FUNCTIONS, Items, call_method, percent

_SOURCE = 1 << 16  # characters of a template: compiling takes memory, too
_ITERATION_PER_NODE = 12  # units per node in the body of a loop or macro, per iteration or call
_ALLOWED = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.Const, nodes.Name, nodes.NSRef, nodes.Assign),
    *(nodes.AssignBlock, nodes.For, nodes.If, nodes.CondExpr, nodes.Macro, nodes.Call, nodes.CallBlock),
    *(nodes.FilterBlock, nodes.Filter, nodes.Test, nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.List),
    *(nodes.Tuple, nodes.Dict, nodes.Pair, nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not),
    *(nodes.Neg, nodes.Pos, nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow),
    *(nodes.Concat, nodes.Keyword, nodes.With, nodes.Scope, nodes.ExprStmt, nodes.Break, nodes.Continue),
)
# Internal filters: `%` is in no name that a template can write.
_LOOPED, _ITERATION, _COMPARED, _SLICED, _JOINED, _KEY = "%loop", "%iteration", "%compare", "%slice", "%join", "%key"


class _Generation(Extension):
    """`{% generation %}` marks assistant tokens for training; here only its body is rendered."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """A jinja environment for one chat template, in the dialect of transformers.

    Example: `with limited(None): LimitedEnvironment().from_string("{{ 1 + 1 }}").render()`.
    """

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],
            finalize=text,
            optimized=False,
            cache_size=0,
        )
        self.globals = {"range": self.globals["range"], **FUNCTIONS}
        own = {
            _LOOPED: Items,
            _ITERATION: _iteration,
            _COMPARED: _compared,
            _SLICED: _sliced,
            _JOINED: _joined,
            _KEY: hashed,
        }
        self.filters = {**FILTERS, **own}
        self.tests = dict(TESTS)
        self._size = 0  # nodes of the template

    def _parse(self, source: str, *args: Any, **kwargs: Any) -> nodes.Template:
        if len(source) > _SOURCE:
            raise TemplateAssertionError(f"it has {len(source):,} characters, at most {_SOURCE:,} are read", 1)
        return super()._parse(source, *args, **kwargs)

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        """Wrap what jinja cannot intercept in internal filters."""
        self._size = _count(source)
        return str(super()._generate(_guarded(source), *args, **kwargs))

    @staticmethod
    def concat(pieces: Iterable[str]) -> str:
        """Join the pieces of a block."""
        held = list(pieces)
        charge(sum(map(len, held)))
        return "".join(held)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str):
            return percent(left, right)
        calculate(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def getitem(self, obj: Any, argument: Any) -> Any:
        charge(OPERATION)
        return super().getitem(obj, hashed(argument))

    def getattr(self, obj: Any, attribute: str) -> Any:
        charge(OPERATION)
        return super().getattr(obj, attribute)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if type(obj) is Namespace:
            return not attr.startswith("_")
        return attr in ATTRIBUTES.get(type(obj), ())

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        return None  # `call` charges it like any other method

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call an allowed function, macro or method."""
        charge(OPERATION + REFERENCE * (len(args) + len(kwargs)))
        kind, owner = type(__obj), getattr(__obj, "__self__", None)
        if kind is BuiltinMethodType and type(owner) in ATTRIBUTES:
            # jinja adds these for functions that take the context.
            given = {name: value for name, value in kwargs.items() if name not in ("_loop_vars", "_block_vars")}
            return call_method(owner, __obj.__name__, args, given)
        if kind is LoopContext:
            (iterable,) = args
            return __obj(Items(iterable, __self._size * _ITERATION_PER_NODE + OPERATION))
        if kind is MethodType and type(owner) in (LoopContext, Cycler):
            weigh(args, 2)
        elif (
            not isinstance(__obj, (Macro, Joiner, Undefined))
            and __obj is not __self.globals["range"]
            and not any(__obj is known for known in FUNCTIONS.values())
        ):
            raise SecurityError(f"{kind.__name__} cannot be called")
        elif not isinstance(__obj, Macro):
            # Functions may copy their arguments.
            charge(REFERENCE * sum(len(each) for each in args if isinstance(each, (str, list, tuple, dict))))
        return super().call(__context, __obj, *args, **kwargs)


def _count(node: nodes.Node) -> int:
    """The number of nodes of a template; raises for nodes that are not allowed."""
    for each in (node, *node.find_all(nodes.Node)):
        name = type(each).__name__
        if type(each) not in _ALLOWED or getattr(each, "dyn_args", None) or getattr(each, "dyn_kwargs", None):
            raise TemplateAssertionError(f"it uses {name}, which chat templates have no use for", each.lineno)
    return _size(node)


def _size(node: nodes.Node) -> int:
    return 1 + sum(1 for _ in node.find_all(nodes.Node))


def _guarded(node: Any) -> Any:
    """The AST with internal filters around what must be charged."""
    size = _size(node) if isinstance(node, (nodes.For, nodes.Macro, nodes.CallBlock)) else 0
    for field, value in list(node.iter_fields()):
        if isinstance(value, list):
            value[:] = [_guarded(each) if isinstance(each, nodes.Node) else each for each in value]
        elif isinstance(value, nodes.Node):
            setattr(node, field, _guarded(value))
    cost = nodes.Const(OPERATION + ITEM + size * _ITERATION_PER_NODE, lineno=node.lineno) if size else None
    if isinstance(node, nodes.For):
        node.iter = _own(_LOOPED, node.iter, cost)
    elif isinstance(node, (nodes.Macro, nodes.CallBlock)):
        node.body.insert(0, nodes.ExprStmt(_own(_ITERATION, cost), lineno=node.lineno))
    elif isinstance(node, nodes.Compare):
        operands: list[Any] = [each for one in node.ops for each in (nodes.Const(one.op, lineno=node.lineno), one.expr)]
        return _own(_COMPARED, node.expr, *operands)
    elif isinstance(node, nodes.Concat):
        return _own(_JOINED, *node.nodes)
    elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        bounds = [getattr(node.arg, name) or nodes.Const(None) for name in ("start", "stop", "step")]
        return _own(_SLICED, node.node, *bounds)
    elif isinstance(node, nodes.Pair) and not isinstance(node.key, nodes.Const):
        node.key = _own(_KEY, node.key)
    return node


def _own(name: str, node: Any, *args: Any) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)


def _iteration(cost: int) -> str:
    charge(cost)
    return ""


def _compared(left: Any, *operands: Any) -> bool:
    """`a < b`, or chained comparisons."""
    for operator, right in zip(operands[::2], operands[1::2], strict=True):
        if not compare(left, operator, right):
            return False
        left = right
    return True


def _sliced(value: Any, start: Any, stop: Any, step: Any) -> Any:
    if isinstance(value, Undefined) or not isinstance(value, (str, list, tuple, range)):
        return value[start:stop:step]
    bounds = slice(start, stop, step)
    count = len(range(*bounds.indices(len(value))))
    charge(OPERATION + count * (1 if isinstance(value, str) else REFERENCE))
    return value[bounds]


def _joined(*values: Any) -> str:
    """`a ~ b`."""
    pieces = [text(value) for value in values]
    charge(sum(map(len, pieces)))
    return "".join(pieces)
