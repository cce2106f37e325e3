"""Refusals and errors, in the shape and with the status that OpenAI's and Anthropic's clients know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from liveshape.errors import (
    EngineClosed,
    EngineDied,
    FormatError,
    InputError,
    LiveshapeError,
    QueueFull,
    UnsupportedError,
)
from liveshape.llm.generation.prompts import ContextError
from liveshape.llm.text.token_bound import TooManyTokensError
from liveshape.packages import MissingPackageError

ANTHROPIC = "/v1/messages"  # the path of the routes that answer in Anthropic's shape
RETRY_SECONDS = 1
_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class Refusal(Exception):
    """A request that is not answered: the status, what to tell, the field that is wrong, and OpenAI's code for it.

    Example: `raise Refusal(400, "n is 0: it must be from 1 to 16", "n")`.
    """

    def __init__(self, status: int, message: str, field: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.field, self.code = status, message, field, code

    @property
    def headers(self) -> dict[str, str]:
        """What a client is told beside the body: when to try again."""
        return {"Retry-After": str(RETRY_SECONDS)} if self.status in (429, 503) else {}


@contextmanager
def refused(field: str | None) -> Iterator[None]:
    """Say which field an invalid value was given for.

    Example: `with refused("stop"): stop_strings(value)`.
    """
    try:
        yield
    except (InputError, FormatError, UnsupportedError, MissingPackageError) as error:
        raise refusal_of(error, field) from error


def refusal_of(error: Exception, field: str | None = None) -> Refusal:
    """What a client is told of an error.

    >>> refusal_of(InputError("top_p must be above 0"), "top_p").status
    400
    """
    match error:
        case Refusal():
            return error
        case ContextError() | TooManyTokensError():
            return Refusal(400, str(error), field, "context_length_exceeded")
        case InputError() | FormatError() | UnsupportedError() | MissingPackageError():
            return Refusal(400, str(error), field)
        case QueueFull():
            return Refusal(429, str(error), None, "queue_full")
        case EngineDied():
            return Refusal(503, str(error), None, "restarting")
        case EngineClosed():
            return Refusal(503, str(error), None, "closing")
        case LiveshapeError():
            return Refusal(500, str(error))
        case _:
            return Refusal(500, "the server failed at this request; its log says where")


def error_body(refusal: Refusal, path: str) -> dict[str, Any]:
    """The JSON of an error on a route.

    >>> error_body(Refusal(401, "no key"), "/v1/messages")["error"]["type"]
    'authentication_error'
    """
    usual = "invalid_request_error" if refusal.status < 500 else "server_error"
    if path.startswith(ANTHROPIC):
        kind = _ANTHROPIC_TYPES.get(refusal.status, "api_error" if refusal.status >= 500 else usual)
        named = refusal.message if refusal.field is None else f"{refusal.field}: {refusal.message}"
        return {"type": "error", "error": {"type": kind, "message": named}}
    return {
        "error": {
            "message": refusal.message,
            "type": _OPENAI_TYPES.get(refusal.status, usual),
            "param": refusal.field,
            "code": refusal.code,
        }
    }
