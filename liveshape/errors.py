"""The exceptions of the package, each also the builtin exception that a caller would expect, and how messages count."""

from __future__ import annotations


class LiveshapeError(Exception):
    """The base of every error that liveshape raises on purpose.

    Example: `except LiveshapeError as error: print(error)`.
    """


class FormatError(LiveshapeError, ValueError):
    """A file is damaged or is of another format; the message names the field, its value and what is allowed."""


class UnsupportedError(LiveshapeError, NotImplementedError):
    """A well-formed program asks for an operator, dtype, version or limit that liveshape does not have.

    `details` holds (node, reason) pairs where several parts of a program are refused at once.
    """

    def __init__(self, message: str, details: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.details = details


class ShapeError(LiveshapeError, ValueError):
    """A live shape does not fit its bound, or the shapes of an operator do not fit each other."""


class PlanError(LiveshapeError, RuntimeError):
    """Planning a graph at the live shapes failed; the next call plans the whole graph again."""


class DeviceError(LiveshapeError, RuntimeError):
    """The GPU, its driver or a shader refused something, or no adapter was found."""


class NoAdapterError(DeviceError):
    """This machine offers no adapter, or none like the one that was asked for."""


class InputError(LiveshapeError, ValueError):
    """The caller gave an argument that the program does not take: a name, a count, a dtype or a kind of object."""


class StorageError(LiveshapeError, OSError):
    """A disk is full; the message names the folder and what helps."""


def counted(number: int, noun: str, many: str = "") -> str:
    """A number of things.

    >>> counted(1, "method"), counted(8, "method")
    ('1 method', '8 methods')
    """
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"
