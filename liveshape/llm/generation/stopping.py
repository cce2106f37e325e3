"""Stop strings: text passes until one of them appears, and what might become one waits."""

from __future__ import annotations

from collections.abc import Sequence

from liveshape.llm.arguments import stop_strings


class StopWatch:
    """Lets text through up to the first stop string, which may begin in one piece and end in another.

    >>> watch = StopWatch(["\\nUser:"])
    >>> watch.put("Hello.\\nUs"), watch.put("er: Hi"), watch.matched
    ('Hello.', '', '\\nUser:')
    """

    def __init__(self, stops: str | Sequence[str] = ()) -> None:
        self._stops = stop_strings(stops)
        self._held = ""
        self.matched: str | None = None

    def put(self, text: str) -> str:
        """What may be said after one more piece; nothing any more once a stop string was found."""
        if self.matched is not None:
            return ""
        text = self._held + text
        found = [(text.find(stop), -len(stop), stop) for stop in self._stops if stop in text]
        if found:
            place, _, self.matched = min(found)
            self._held = ""
            return text[:place]
        held = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def end(self) -> str:
        """What waited for a stop string that did not come."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """How long the longest end of the text is that a stop string begins with."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
