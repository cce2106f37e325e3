"""Ctrl-C at a certain line: what a timer hits once in thousands of times, this hits each time.

A signal arrives between two calls, not between any two lines; where that makes a difference on purpose, in `turns.py`,
no line is cut. Those that only pass the time are left out, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from tests.survival.subjects import ROOT

_PARTS = ("run", "llm", "device", "plan", "runtime.py", "graph")
_WITHOUT = ("turns.py", "waiting.py")


class Lines:
    """Counts the lines of the package that a thread runs, and raises KeyboardInterrupt at one of them.

    Example: `Lines(100).over(action)`.
    """

    def __init__(self, at: int | None = None) -> None:
        self.count, self._at = 0, at
        self.where = ""

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
        if event == "line":
            self.count += 1
            if self.count == self._at:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self._lines
