"""Where the params of every dispatch lie: a place of its own for each step of each class of nodes, written over.

As places do not move, commands stay as they are while only numbers change, and a call uploads what differs.
"""

from __future__ import annotations


class Slot:
    """One step of a class as it is now: its params in the arena and its grid. Commands of all its nodes point here."""

    __slots__ = ("grid", "offset", "params")

    def __init__(self, offset: int) -> None:
        self.offset = offset  # in the arena; -1 for a kernel without params
        self.params = b""
        self.grid = (0, 0, 0)


class Arena:
    """The bytes of all params on the host, and which of them the device has not seen."""

    def __init__(self, alignment: int) -> None:
        self.alignment = alignment
        self.data = bytearray()
        self.uploaded = 0  # bytes that the device was given since the start, for tests and profiles
        self._low, self._high = 0, 0

    def place(self, nbytes: int) -> int:
        """Room for params of this size, for good."""
        offset = len(self.data)
        self.data += bytes(aligned(nbytes, self.alignment))
        return offset

    def put(self, slot: Slot, params: bytes) -> None:
        """Write over the params of a slot."""
        offset = slot.offset
        end = offset + len(params)
        # Noted before anything is written: bytes that are uploaded twice do no harm.
        if self._low == self._high:
            self._low, self._high = offset, end
        else:
            self._low, self._high = min(self._low, offset), max(self._high, end)
        self.data[offset:end] = params
        slot.params = params

    def unseen(self) -> tuple[int, memoryview] | None:
        """The range that the device has to be given, until `seen` is said."""
        if self._low == self._high:
            return None
        return self._low, memoryview(self.data)[self._low : self._high]

    def seen(self) -> None:
        """The device has everything."""
        self.uploaded += self._high - self._low
        self._low = self._high = 0

    def forget(self) -> None:
        """The device has nothing that could be relied on."""
        self._low, self._high = 0, len(self.data)


def aligned(nbytes: int, alignment: int) -> int:
    """The next multiple.

    >>> aligned(20, 256)
    256
    """
    return -(-nbytes // alignment) * alignment
