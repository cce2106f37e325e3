"""`liveshape cache`: list and remove converted models in the cache folder."""

from __future__ import annotations

from datetime import datetime

from liveshape.cache_folder import cache_folder
from liveshape.export.conversions import Entry, entries, remove
from liveshape.tools.console import counted, print_json, print_table, print_text, size_text


def cache(clear: str | None = None, *, as_json: bool = False) -> int:
    """List cached models, or remove `all` of them or the `stale` ones; exit code 0 always.

    Example: `cache("stale")`.
    """
    found = [entry for entry in entries() if clear != "stale" or entry.is_stale]
    rows = [
        {
            "folder": str(entry.folder),
            "source": entry.source,
            "quant": entry.quant,
            "context": entry.context,
            "trained_context": entry.trained,
            "bytes": entry.size,
            "used": datetime.fromtimestamp(entry.used).isoformat(" ", "minutes"),
            "stale": entry.is_stale,
        }
        for entry in found
    ]
    total = sum(entry.size for entry in found)
    if clear is not None:
        for entry in found:
            remove(entry)
    if as_json:
        print_json({"cache": str(cache_folder()), "removed": clear is not None, "models": rows})
        return 0
    if clear is not None:
        print_text(f"{counted(len(found), 'model')} removed, {size_text(total)}")
    elif not found:
        print_text(f"{cache_folder()} has no converted models")
    else:
        columns = ("source", "weights", "context", "size", "last used", "")
        cells = [
            (
                entry.source or f"{entry.folder.name} (damaged)",
                entry.quant,
                _context(entry),
                size_text(entry.size),
                row["used"],
                "stale" if row["stale"] else "",
            )
            for row, entry in zip(rows, found, strict=True)
        ]
        print_table(f"{cache_folder()}: {counted(len(found), 'model')}, {size_text(total)}", columns, cells)
    return 0


def _context(entry: Entry) -> str:
    """Context length of a cached model, and the trained one where it is longer."""
    if entry.context is None:
        return ""
    longer = entry.trained is not None and entry.trained > entry.context
    return f"{entry.context:,} of {entry.trained:,}" if longer else f"{entry.context:,}"
