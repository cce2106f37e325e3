"""Which replica a conversation belongs to: the one that has the pages of its earlier turns, while load allows.

The key of a conversation is a digest of how it opens, which every turn of it repeats. Replicas are ordered by
rendezvous hashing: every router finds the same order without asking another, and when a replica comes or goes only its
own conversations move.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

_OPENING = 256  # characters or tokens of a prompt without messages


def conversation_key(body: bytes) -> str:
    """The key of the conversation that a request goes on with; empty for one that has no prompt.

    `prompt_cache_key`, where it is given, else the messages up to the first of a user.

    >>> first, again = b'{"messages": [{"role": "user"}]}', b'{"messages": [{"role": "user"}, {"role": "assistant"}]}'
    >>> conversation_key(first) == conversation_key(again) != ""
    True
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):  # which the replica refuses
        return ""
    opening = _opening(document) if isinstance(document, Mapping) else None
    return "" if opening is None else blake2b(json.dumps(opening).encode(), digest_size=16).hexdigest()


def _opening(document: Mapping[str, Any]) -> Any:
    given, messages, prompt = (document.get(name) for name in ("prompt_cache_key", "messages", "prompt"))
    if isinstance(given, str):
        return given
    if isinstance(messages, list):
        said = [isinstance(each, Mapping) and each.get("role") == "user" for each in messages]
        return [document.get("system"), messages[: said.index(True) + 1 if True in said else None]]
    while isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    return prompt[:_OPENING] if isinstance(prompt, str | list) else None


def ranked(key: str, loads: Mapping[str, int], spread: int) -> list[list[str]]:
    """Replicas by preference, in ranks of equals, for a conversation and the requests that each replica has.

    One that has more than `spread` requests more than the least busy one is not preferred, whatever it keeps.

    >>> home, other = ranked("a", {"x": 0, "y": 0}, spread=8)
    >>> ranked("a", {home[0]: 9, other[0]: 0}, spread=8) == [other, home]
    True
    """
    if not key:
        return [list(loads)]
    order = sorted(loads, key=lambda name: blake2b(f"{key} {name}".encode(), digest_size=8).digest())
    least = min(loads.values(), default=0)
    calm = [name for name in order if loads[name] - least <= spread]
    busy = [name for name in order if name not in calm]
    return [*([name] for name in calm), *([busy] if busy else [])]
