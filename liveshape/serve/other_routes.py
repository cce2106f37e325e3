"""Paths that clients of other servers ask for: each names the route that does it here, or says that none does."""

from __future__ import annotations

from collections.abc import Collection

CHAT, TEXT, VECTORS, MODELS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models"
_RERANK = f"no route ranks documents here: compare vectors of {VECTORS} (--embeddings ENCODER)"
_OTHER_MEDIA = f"this server has text and vectors alone: {CHAT}, {TEXT}, {VECTORS}"
# By the beginning of a path, the most special first.
_ADVICE = {
    "/v1/responses": (
        f"{CHAT} answers here, OpenAI's Responses API is not served: `client.chat.completions.create`, in "
        'openai-agents `set_default_openai_api("chat_completions")`'
    ),
    "/api/chat": f"of Ollama's API; {CHAT} is a chat here",
    "/api/generate": f"of Ollama's API; {TEXT} goes on from a text here",
    "/api/embed": f"of Ollama's API; {VECTORS} gives vectors here",
    "/api/tags": f"of Ollama's API; {MODELS} lists models here",
    "/api/ps": f"of Ollama's API; {MODELS} lists models here",
    "/api/show": f"of Ollama's API; {MODELS} lists models here",
    "/api": "Ollama's API is not served; OpenAI's is, below /v1: give clients http://HOST:PORT/v1 as the base URL",
    "/props": f"of llama.cpp's server; {MODELS} has the context length (max_context) here, /health says what it does",
    "/slots": "of llama.cpp's server; /metrics has what runs and waits here",
    "/completion": f"of llama.cpp's server; {TEXT} goes on from a text here",
    "/infill": f"of llama.cpp's server; {TEXT} with prompt and suffix fills in here",
    "/apply-template": "of llama.cpp's server; /tokenize takes messages here",
    "/embedding": f"of llama.cpp's server; {VECTORS} gives vectors here",
    "/rerank": _RERANK,
    "/reranking": _RERANK,
    "/v1/rerank": _RERANK,
    "/v1/reranking": _RERANK,
    "/v2/rerank": _RERANK,
    "/score": _RERANK,
    "/v1/score": _RERANK,
    "/v1/complete": "of Anthropic's older API; /v1/messages is a chat here",
    "/generate": f"{TEXT} goes on from a text here",
    "/generate_stream": f"{TEXT} with stream goes on from a text here",
    "/version": f"{MODELS} lists models here",
    "/ping": "/health says whether the server works",
    "/healthz": "/health says whether the server works",
    "/v1/health": "/health says whether the server works",
    "/docs": "docs/serve.md of liveshape has the routes and their fields",
    "/openapi.json": "docs/serve.md of liveshape has the routes and their fields",
    **dict.fromkeys(("/v1/audio", "/v1/images", "/v1/moderations", "/v1/videos", "/v1/realtime"), _OTHER_MEDIA),
    **dict.fromkeys(
        ("/v1/assistants", "/v1/threads", "/v1/files", "/v1/batches", "/v1/fine_tuning", "/v1/vector_stores"),
        f"nothing is stored on this server: {CHAT} answers at once",
    ),
}


def advice(path: str, routes: Collection[str]) -> str | None:
    """What to ask for instead of a path, of the `routes` that there are; None where nobody knows.

    >>> advice("/chat/completions", ["/v1/chat/completions"])
    'the path is /v1/chat/completions: clients of OpenAI want a base URL that ends in /v1'
    """
    asked = path.rstrip("/")
    if asked == "/v1":
        return f"this is the base URL of OpenAI's clients; {CHAT} is a chat, {MODELS} lists models"
    parts = asked.split("/")
    for first in range(1, len(parts)):
        rest = "/" + "/".join(parts[first:])
        found = next((each for each in (rest, f"/v1{rest}") if each in routes), None)
        if found is not None and found.startswith("/v1/"):
            return f"the path is {found}: {_base_url(asked, found)}"
    place = max((each for each in _ADVICE if _below(asked, each)), key=len, default=None)
    return None if place is None else _ADVICE[place]


def _base_url(asked: str, found: str) -> str:
    if "/messages" in found:
        return "clients of Anthropic add /v1 themselves, and want a base URL without it"
    if asked.startswith("/v1/v1/"):
        return "the base URL has /v1 once"
    return "clients of OpenAI want a base URL that ends in /v1"


def _below(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place}/")
