"""The fields of a JSON object, read by kind; one that nobody read is refused by name, so that none is dropped in
silence."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from liveshape.serve.refusals import Refusal

_SHOWN = 60  # characters of a wrong value in a message


class Fields:
    """A JSON object and which of its fields were read; a field that is null is absent.

    >>> Fields({"n": 2}).whole("n", 1, 16)
    2
    """

    def __init__(self, document: Any, place: str = "") -> None:
        if not isinstance(document, Mapping):
            raise Refusal(400, f"{place or 'the body'} must be an object, {_shown(document)} was given", place or None)
        self._given = {name: value for name, value in document.items() if value is not None}
        self._unread = set(self._given)
        self._place = place

    def path(self, name: str) -> str:
        """The name of a field as clients are told it.

        >>> Fields({}, "messages[0]").path("role")
        'messages[0].role'
        """
        return f"{self._place}.{name}" if self._place else name

    def __contains__(self, name: str) -> bool:
        return name in self._given

    @property
    def names(self) -> list[str]:
        """The fields that are there."""
        return list(self._given)

    def raw(self, name: str) -> Any:
        """The value of a field, whatever it is; None if it is absent."""
        self._unread.discard(name)
        return self._given.get(name)

    def wrong(self, name: str, allowed: str) -> Refusal:
        """The refusal of a field's value."""
        return Refusal(400, f"{name} must be {allowed}, {_shown(self._given.get(name))} was given", self.path(name))

    def needed(self, name: str) -> Any:
        """The value of a field that must be there."""
        if name not in self._given:
            raise Refusal(400, f"{name} is missing", self.path(name), "missing_required_parameter")
        return self.raw(name)

    def text(self, name: str) -> str | None:
        """A text, or None."""
        value = self.raw(name)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, "a text")
        return value

    def flag(self, name: str, usual: bool = False) -> bool:
        """True or false."""
        value = self.raw(name)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return usual if value is None else bool(value)

    def whole(self, name: str, least: int, most: int | None = None) -> int | None:
        """A whole number within bounds, or None."""
        value = self.raw(name)
        if value is None:
            return None
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or value < least
            or (most is not None and value > most)
        ):
            raise self.wrong(name, f"a whole number from {least} {'on' if most is None else f'to {most}'}")
        return value

    def choice(self, name: str, allowed: Collection[str]) -> str | None:
        """One of several words, or None."""
        value = self.raw(name)
        if value is not None and (not isinstance(value, str) or value not in allowed):
            raise self.wrong(name, " or ".join(repr(each) for each in allowed))
        return value

    def inner(self, name: str) -> Fields | None:
        """An object, or None."""
        value = self.raw(name)
        return None if value is None else Fields(value, self.path(name))

    def listed(self, name: str, most: int) -> list[Any]:
        """A list of at most so many items; empty if it is absent."""
        value = self.raw(name)
        if value is not None and not isinstance(value, list):
            raise self.wrong(name, "a list")
        if value is not None and len(value) > most:
            raise Refusal(400, f"{name} has {len(value):,} items, at most {most:,} are taken", self.path(name))
        return value or []

    def objects(self, name: str, most: int) -> list[Fields]:
        """A list of objects; empty if it is absent."""
        return [Fields(each, f"{self.path(name)}[{place}]") for place, each in enumerate(self.listed(name, most))]

    def ignore(self, *names: str) -> None:
        """Fields that change nothing in the answer."""
        self._unread.difference_update(names)

    def only(self, name: str, *allowed: Any, advice: str = "") -> None:
        """Refuse a field unless it has a value that means what happens anyway."""
        value = self.raw(name)
        if value is not None and value not in allowed:
            raise Refusal(400, f"{name} is not supported here{advice and f': {advice}'}", self.path(name))

    def done(self) -> None:
        """Refuse what nobody read."""
        for name in sorted(self._unread):
            raise Refusal(400, f"{name!r:.80} is no field that is known here", self.path(name), "unknown_parameter")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
