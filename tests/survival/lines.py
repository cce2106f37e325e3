"""Ctrl-C at a certain line: what a timer hits once in thousands of times, this hits each time.

A signal arrives between two calls, not between any two lines; where that makes a difference on purpose, in
`fair_lock.py`, no line is cut. Those that only pass the time are left out, too, and so are the end of a `with`, where
Python comes back to its line, and `try:` and `continue`, which are no operation and belong to no `with` around them:
what is raised at these moments keeps the lock for ever, which no signal can do.
"""

from __future__ import annotations

import dis
import linecache
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from tests.survival.subjects import ROOT

_PARTS = ("run", "llm", "device", "plan", "runtime.py", "graph")
_WITHOUT = ("fair_lock.py", "waiting.py")


_NO_OPERATION = dis.opmap["NOP"]


def no_signal_comes(frame: FrameType, last: int | None) -> bool:
    """Whether a line is no operation, or that of a `with` which ends: Python comes to it from a line below."""
    if frame.f_code.co_code[frame.f_lasti] == _NO_OPERATION:
        return True
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip()
    return last is not None and last > frame.f_lineno and line.startswith(("with ", "async with "))


class Lines:
    """Counts the lines of the package that a thread runs, and raises KeyboardInterrupt at one of them.

    Example: `Lines(100).over(action)`.
    """

    def __init__(self, at: int | None = None) -> None:
        self.count, self._at = 0, at
        self.where = ""
        self._last: dict[int, int] = {}  # the line before, by the identity of a frame, which must not be kept alive

    def over(self, action: Callable[[], object]) -> bool:
        """Whether the action was cut."""
        before = sys.gettrace()
        try:
            sys.settrace(self._calls)
            action()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False

    def _calls(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        ours = any(name.startswith(str(ROOT / "liveshape" / part)) for part in _PARTS)
        return self._lines if ours and not name.endswith(_WITHOUT) else None

    def _lines(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "return":
            self._last.pop(id(frame), None)
        elif event == "line":
            last, self._last[id(frame)] = self._last.get(id(frame)), frame.f_lineno
            if no_signal_comes(frame, last):
                return self._lines
            self.count += 1
            if self.count == self._at:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self._lines
