"""Exceptions of the package, each also a subclass of the builtin that a caller would expect; plurals in messages."""

from __future__ import annotations


class LiveshapeError(Exception):
    """Base class of all liveshape errors.

    Example: `except LiveshapeError as error: print(error)`.
    """


class FormatError(LiveshapeError, ValueError):
    """A file is corrupt or of another format; the message names the field, its value and what is allowed."""


class UnsupportedError(LiveshapeError, NotImplementedError):
    """A valid program needs an operator, dtype, version or limit that liveshape does not support.

    `details` holds (node, reason) pairs where several nodes are unsupported.
    """

    def __init__(self, message: str, details: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.details = details


class ShapeError(LiveshapeError, ValueError):
    """A live shape exceeds its upper bound, or the shapes of an operator's inputs do not match."""


class PlanError(LiveshapeError, RuntimeError):
    """Planning a graph at the live shapes failed; the next call plans the whole graph again."""


class DeviceError(LiveshapeError, RuntimeError):
    """An error of the GPU, its driver or a shader compiler, or no adapter was found."""


class NoAdapterError(DeviceError):
    """No adapter on this machine, or none that matches the request."""


class InputError(LiveshapeError, ValueError):
    """An invalid argument of a call: a name, a count, a dtype or a type of object."""


class QueueFull(LiveshapeError, RuntimeError):
    """An engine has as many requests as it may: this one is not waiting; ask again when others have ended."""


class EngineClosed(LiveshapeError, RuntimeError):
    """An engine was closed: it takes no more requests, and this one has not ended."""


class EngineDied(DeviceError):
    """The process of an engine has died, and with it all that it computed: ask again, and another one is started."""


class StorageError(LiveshapeError, OSError):
    """The disk is full; the message names the folder and what helps."""


def counted(number: int, noun: str, many: str = "") -> str:
    """A count with a noun in singular or plural.

    >>> counted(1, "method"), counted(8, "method")
    ('1 method', '8 methods')
    """
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"
