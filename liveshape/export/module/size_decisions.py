"""Comparisons of sizes that ExecuTorch's passes make while they lower a program, answered for every legal size.

torch answers for the example's sizes and remembers it as a guard: a pass that asks whether the batch is 16 fixes the
batch at 16. The passes only choose among lowerings that are right at any size, so what cannot be proved equal is
different here, and the larger of two sizes is the one that is larger at the upper bounds. Nothing is remembered.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv, uninteresting_files

_ASKED_THROUGH = "torch.fx.experimental."


def shape_env_of(program: Any) -> ShapeEnv | None:
    """The ShapeEnv that holds the symbols of an exported program; None where all of it is static.

    Example: `shape_env_of(torch.export.export(module, args, dynamic_shapes=shapes)).var_to_range`.
    """
    for node in program.graph.nodes:
        value = node.meta.get("val")
        shape_env = getattr(getattr(value, "fake_mode", None), "shape_env", None)
        if shape_env is not None:
            return shape_env
    return None


@contextmanager
def sizes_stay_dynamic(shape_env: ShapeEnv | None) -> Iterator[None]:
    """While a program is lowered, let no comparison of ExecuTorch's own passes restrict its symbols.

    Other programs, in this thread or another, have a ShapeEnv of their own.

    Example: `with sizes_stay_dynamic(shape_env_of(program)): to_edge_transform_and_lower(program)`.
    """
    if shape_env is None:
        yield
        return
    evaluate = shape_env.evaluate_expr

    def decide(expression: Any, *args: Any, **options: Any) -> Any:
        answer = _answer(shape_env, expression) if _is_asked_by_a_pass() else None
        return evaluate(expression, *args, **options) if answer is None else answer

    shape_env.evaluate_expr = decide
    shape_env._get_user_frame = _asking_frame  # which a guard is said to come from
    try:
        yield
    finally:
        del shape_env.evaluate_expr, shape_env._get_user_frame  # the class has its own


@contextmanager
def without_onednn() -> Iterator[None]:
    """While a program is traced and lowered, let no convolution ask whether its image is large enough for oneDNN: torch
    takes the answer for granted at every size.

    Example: `with without_onednn(): torch.export.export(module, args, dynamic_shapes=shapes)`.
    """
    enabled = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = enabled


def _asking_frame() -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename in {__file__, *uninteresting_files()}:
        frame = frame.f_back
    return frame


def _is_asked_by_a_pass() -> bool:
    """Whether ExecuTorch compares the sizes itself, rather than an operator of torch that it runs."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module != "torch" and not module.startswith(_ASKED_THROUGH):
            return module.startswith("executorch.")
        frame = frame.f_back
    return False


def _answer(shape_env: ShapeEnv, expression: Any) -> Any:
    """What holds of all legal sizes where it is known, else what is assumed; None leaves it to torch."""
    if not isinstance(expression, sympy.core.relational.Relational):
        return None
    if not expression.free_symbols <= shape_env.backed_var_to_val.keys():
        return None  # a size that data decides has no upper bound that could be planned for
    known = shape_env._maybe_evaluate_static(expression)
    if known is not None:
        return known
    if isinstance(expression, (sympy.Eq, sympy.Ne)):
        return sympy.sympify(isinstance(expression, sympy.Ne))
    bounds = {symbol: shape_env.var_to_range[symbol].upper for symbol in expression.free_symbols}
    largest = expression.xreplace(bounds)
    return largest if largest in (sympy.true, sympy.false) else None
