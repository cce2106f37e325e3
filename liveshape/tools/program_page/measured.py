"""What a profile measured and what a check found, read from their JSON and attached to the nodes of a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from liveshape.errors import InputError
from liveshape.tools.program_page.document import node_places

Json = dict[str, Any]


def add_profile(methods: Sequence[Json], file: str) -> None:
    """Add the times of `liveshape profile --json` to the methods whose nodes it names.

    Example: `add_profile(document["methods"], "profile.json")`.
    """
    profiles = _read(file, "--profile", "liveshape profile PROGRAM --json", "profiles", list)
    timed = [each for each in profiles if isinstance(each, dict) and isinstance(each.get("by_node"), list)]
    timed = [each for each in timed if each["by_node"]]
    if not timed:
        raise InputError(
            f"--profile {file}: it has no times of nodes, as on an adapter without timestamps; profile on another one"
        )
    matched = 0
    for method in methods:
        places = node_places(method)
        method["profiles"] = found = []
        for each in timed:
            seconds: dict[int, float] = {}
            for line in each["by_node"]:
                for place, share in _times(line, places, method, file):
                    seconds[place] = seconds.get(place, 0.0) + share
            if seconds:
                matched += len(seconds)
                whole = sum(float(line["seconds"]) for line in each["by_node"])
                turns = max(int(each.get("turns", 1)), 1)
                found.append({"name": str(each.get("name", "")), "turns": turns, "seconds": whole, "nodes": seconds})
    if not matched:
        raise InputError(f"--profile {file}: none of its nodes is in this program; profile the same file")


def _times(line: Any, places: dict[str, list[int]], method: Json, file: str) -> list[tuple[int, float]]:
    try:
        name, seconds, operator = str(line["name"]), float(line["seconds"]), line.get("operator")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"--profile {file}: a line of by_node has no name and seconds: {line!r}") from error
    nodes = [place for place in places.get(name, []) if method["nodes"][place]["label"] == name]
    # A fused node may stand beside another one of the same nodes of the file.
    of_operator = [each for each in nodes if _operator(method, each) == operator] or nodes
    return [(each, seconds / len(of_operator)) for each in of_operator]


def _operator(method: Json, place: int) -> str:
    return str(method["classes"][method["nodes"][place]["class"]]["operator"])


def add_check(methods: Sequence[Json], file: str) -> None:
    """Add what `liveshape check --json` found to the methods that it checked.

    Example: `add_check(document["methods"], "check.json")`.
    """
    found = _read(file, "--check", "liveshape check PROGRAM --json", "methods", dict)
    matched = False
    for method in methods:
        result = found.get(method["name"])
        if not isinstance(result, dict):
            continue
        matched = True
        places = node_places(method)
        try:
            method["check"] = {
                "right": bool(result["right"]),
                "calls": int(result["calls"]),
                "checked": int(result["checked"]),
                "fused": int(result["fused"]),
                "unknown": {str(node): str(reason) for node, reason in result["unknown"].items()},
                "divergences": [
                    {**each, "places": places.get(str(each["node"]), [])} for each in result["divergences"]
                ],
            }
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"--check {file}: {method['name']} is not what liveshape check --json writes") from error
    if not matched:
        known, wanted = ", ".join(map(str, found)) or "none", ", ".join(method["name"] for method in methods)
        raise InputError(f"--check {file}: it checked the methods {known}, this page has {wanted}; check the same file")


def _read(file: str, flag: str, command: str, key: str, kind: type) -> Any:
    try:
        found = json.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{flag} {file}: it cannot be read ({error.strerror}); write it by {command}") from error
    except ValueError as error:
        raise InputError(f"{flag} {file}: it is no JSON ({error}); write it by {command}") from error
    held = found.get(key) if isinstance(found, dict) else None
    if not isinstance(held, kind):
        raise InputError(f"{flag} {file}: it has no {key!r}; write it by {command}")
    return held


__all__ = ["add_check", "add_profile"]
