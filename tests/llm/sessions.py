"""What a text should say, by torch, and a Ctrl-C between any two lines of what makes it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from liveshape.llm import language_model as models
from liveshape.llm.engine import engine, kv_cache, session, stream
from tests.llm.test_model import LAST, Recurrent
from tests.support.llamas import logits_of

FILES = frozenset(module.__file__ for module in (kv_cache, engine, session, stream, models))


def after(tokens: Sequence[int]) -> Any:
    """Torch's logits of what follows a text. Not for several threads at once."""
    return _after(tuple(tokens))


@functools.cache
def _after(tokens: tuple[int, ...]) -> Any:
    return logits_of(LAST, list(tokens))[-1]


def recurrent_logits(tokens: tuple[int, ...]) -> Any:
    module, position = Recurrent(), torch.zeros(1, dtype=torch.long)
    return [module(torch.tensor([[token]]), position)[0].numpy() for token in tokens][-1]


def interrupt_after(lines: int, action: Callable[[], Any]) -> bool:
    """Run an action; before so many lines of the session's files have run, nothing, then a KeyboardInterrupt."""
    left = lines

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line":
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def every_line(
    action: Callable[[], Any], prepare: Callable[[], None], check: Callable[[], None], stride: int = 1
) -> int:
    """Interrupt an action after each number of lines, until it is through; the number of lines."""
    lines = 0
    while True:
        prepare()
        over = not interrupt_after(lines, action)
        check()
        if over:
            return lines
        lines += stride
