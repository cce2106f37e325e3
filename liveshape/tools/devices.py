"""`liveshape devices`: the adapters of this machine, and the one that would be chosen."""

from __future__ import annotations

import sys
from dataclasses import asdict

from liveshape.device.adapters import asked_device, choose_adapter, list_adapters
from liveshape.errors import NoAdapterError
from liveshape.tools.console import print_json, print_table, size_text


def devices(device: str | None = None, *, as_json: bool = False) -> int:
    """Print every adapter; 0 if one of them would be chosen, 3 if none.

    Example: `devices("nvidia")`.
    """
    adapters = list_adapters()
    chosen, problem = None, ""
    try:
        chosen = choose_adapter(asked_device(device), adapters)
    except NoAdapterError as error:
        problem = str(error)
    if as_json:
        rows = [{**asdict(adapter), "chosen": adapter.index == chosen} for adapter in adapters]
        print_json({"adapters": rows, "chosen": chosen, "problem": problem})
    elif adapters:
        print_table(
            "adapters",
            ("", "index", "name", "type", "backend", "f16", "max buffer", "max binding"),
            [
                (
                    "->" if adapter.index == chosen else "",
                    adapter.index,
                    adapter.name,
                    adapter.kind,
                    adapter.backend,
                    "yes" if adapter.half else "no",
                    size_text(adapter.max_buffer_bytes),
                    size_text(adapter.max_binding_bytes),
                )
                for adapter in adapters
            ],
        )
        if chosen is not None:
            print(f"{adapters[chosen].name} would be chosen; --device or LIVESHAPE_DEVICE takes an index or a name")
    if problem:
        print(f"liveshape: {problem}", file=sys.stderr)
    return 3 if chosen is None else 0
