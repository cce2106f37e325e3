"""The uniform arena: a fixed offset for the params of each step of each class of nodes, updated in place.

As offsets do not move, commands are reused while only values change, and a call uploads the dirty range.
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
    """The bytes of all params on the host, and the dirty range that the device does not have yet."""

    def __init__(self, alignment: int) -> None:
        self.alignment = alignment
        self.data = bytearray()
        self.uploaded = 0  # bytes that the device was given since the start, for tests and profiles
        self._low, self._high = 0, 0

    def place(self, nbytes: int) -> int:
        """Allocate params of this size, for good: returns their offset."""
        offset = len(self.data)
        self.data += bytes(aligned(nbytes, self.alignment))
        return offset

    def store(self, slot: Slot, params: bytes) -> None:
        """Overwrite the params of a slot."""
        offset = slot.offset
        end = offset + len(params)
        # Marked dirty before anything is written: bytes that are uploaded twice do no harm.
        if self._low == self._high:
            self._low, self._high = offset, end
        else:
            self._low, self._high = min(self._low, offset), max(self._high, end)
        self.data[offset:end] = params
        slot.params = params

    def dirty(self) -> tuple[int, memoryview] | None:
        """The range to upload, until `mark_clean`."""
        if self._low == self._high:
            return None
        return self._low, memoryview(self.data)[self._low : self._high]

    def mark_clean(self) -> None:
        """The device has everything."""
        self.uploaded += self._high - self._low
        self._low = self._high = 0

    def mark_dirty(self) -> None:
        """Everything has to be uploaded: the device has another buffer."""
        self._low, self._high = 0, len(self.data)


def aligned(nbytes: int, alignment: int) -> int:
    """The next multiple.

    >>> aligned(20, 256)
    256
    """
    return -(-nbytes // alignment) * alignment
