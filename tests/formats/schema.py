"""The tables of a `.fbs` in the installed ExecuTorch, read from its text, to hold our slots against."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path


def _text(path: str) -> str:
    found = importlib.util.find_spec("executorch")
    assert found is not None
    assert found.submodule_search_locations
    text = (Path(next(iter(found.submodule_search_locations))) / path).read_text()
    return re.sub(r"//.*", "", text)


def table_fields(path: str) -> dict[str, list[str]]:
    """The fields of each table in slot order; a union takes a slot for its type, too."""
    text = _text(path)
    unions = set(re.findall(r"union\s+(\w+)", text))
    tables = {}
    for name, body in re.findall(r"table\s+(\w+)\s*\{([^}]*)\}", text):
        names: list[str] = []
        for field, kind in re.findall(r"(\w+)\s*:\s*\[?\s*([\w.]+)", re.sub(r"\([^)]*\)", "", body)):
            names += [f"{field}_type", field] if kind in unions else [field]
        tables[name] = names
    return tables


def union_names(path: str, name: str) -> dict[int, str]:
    """The members of a union by code."""
    body = re.search(rf"union\s+{name}\s*\{{([^}}]*)\}}", _text(path))
    assert body
    return dict(enumerate(re.findall(r"\w+", body[1]), start=1))


def enum_names(path: str, name: str) -> dict[int, str]:
    """The members of an enum by code."""
    body = re.search(rf"enum\s+{name}\s*:\s*\w+\s*\{{([^}}]*)\}}", _text(path))
    assert body
    return {int(code): member for member, code in re.findall(r"(\w+)\s*=\s*(\d+)", body[1])}
