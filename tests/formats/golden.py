"""Programs through ExecuTorch's own reader and writer: what ours must equal, and how broken files are made."""

from __future__ import annotations

import struct
from typing import Any


def golden_of(data: bytes) -> Any:
    """The same file through ExecuTorch."""
    from executorch.exir._serialize._program import deserialize_pte_binary

    return deserialize_pte_binary(data)


def written(file: Any, **options: Any) -> bytes:
    """A file from ExecuTorch's dataclasses."""
    from executorch.exir._serialize._program import serialize_pte_binary

    return bytes(serialize_pte_binary(file, **{"extract_delegate_segments": True, **options}))


def patched(data: bytes, at: int, form: str, value: Any) -> bytes:
    changed = bytearray(data)
    struct.pack_into(form, changed, at, value)
    return bytes(changed)
