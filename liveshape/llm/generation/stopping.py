"""Stop strings: text is passed on until one appears; a suffix that may begin one is held back."""

from __future__ import annotations

from collections.abc import Sequence

from liveshape.llm.arguments import stop_strings


class StopWatch:
    """Streams text up to the first stop string, which may span several pieces.

    >>> watch = StopWatch(["\\nUser:"])
    >>> watch.put("Hello.\\nUs"), watch.put("er: Hi"), watch.matched
    ('Hello.', '', '\\nUser:')
    """

    def __init__(self, stops: str | Sequence[str] = ()) -> None:
        self._stops = stop_strings(stops)
        self._held = ""
        self.matched: str | None = None

    def put(self, text: str) -> str:
        """The text that can be emitted after one more piece; empty once a stop string was found."""
        if self.matched is not None:
            return ""
        if not self._stops:
            return text
        text = self._held + text
        found = [(text.find(stop), -len(stop), stop) for stop in self._stops if stop in text]
        if found:
            place, _, self.matched = min(found)
            self._held = ""
            return text[:place]
        held = max((overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def end(self) -> str:
        """The text held back for a stop string that did not come."""
        held, self._held = self._held, ""
        return held


def overlap(text: str, stop: str) -> int:
    """The length of the longest suffix of the text that is a prefix of a stop string, but not all of it.

    >>> overlap("Hello.\\nUs", "\\nUser:")
    3
    """
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
