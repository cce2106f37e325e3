"""`liveshape devices`: GPU adapters of this machine, the default one, and their peak rates."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

from liveshape.device.backends import asked_device, choose_adapter, list_adapters, open_device
from liveshape.errors import NoAdapterError
from liveshape.tools.console import print_json, print_table, print_text, size_text, work_bar
from liveshape.tools.measuring.rates import MEASURED, Rates, rates_of
from liveshape.tools.wrapping import wrapped


def devices(device: str | None = None, *, as_json: bool = False, measure: bool = False, remeasure: bool = False) -> int:
    """Print every adapter; exit code 0 if one of them would be chosen, 3 if none.

    `measure` adds peak bandwidth and throughput, of the chosen adapter or of all; `remeasure` ignores cached rates.

    Example: `devices("nvidia", measure=True)`.
    """
    adapters = list_adapters()
    chosen, problem = None, ""
    try:
        chosen = choose_adapter(asked_device(device), adapters)
    except NoAdapterError as error:
        problem = str(error)
    rates: dict[int, Rates] = {}
    if (measure or remeasure) and chosen is not None:
        wanted = [chosen] if device is not None else [adapter.index for adapter in adapters]
        with work_bar(len(wanted) * len(MEASURED)) as begin:
            for index in wanted:
                name = adapters[index].name
                rates[index] = rates_of(open_device(index), remeasure, lambda what, name=name: begin(f"{name}: {what}"))  # type: ignore[misc]
    if as_json:
        rows: list[dict[str, Any]] = [{**asdict(adapter), "chosen": adapter.index == chosen} for adapter in adapters]
        for index, found in rates.items():
            rows[index]["rates"] = asdict(found)
        print_json({"adapters": rows, "chosen": chosen, "problem": problem})
    elif adapters:
        print_table(
            "adapters",
            ("", "index", "name", "type", "backend", "driver", "f16", "max buffer", "max binding"),
            [
                (
                    "->" if adapter.index == chosen else "",
                    adapter.index,
                    adapter.name,
                    adapter.kind,
                    adapter.backend,
                    adapter.driver,
                    "yes" if adapter.half else "no",
                    size_text(adapter.max_buffer_bytes),
                    size_text(adapter.max_binding_bytes),
                )
                for adapter in adapters
            ],
        )
        if rates:
            print_table(
                "at its best",
                ("index", "copy", "f32", "f16", "8-bit dots", "measured"),
                [
                    (index, rate_text(each.copy, "B/s"), *map(_operations, (each.f32, each.f16, each.int8)), each.date)
                    for index, each in rates.items()
                ],
            )
        if chosen is not None:
            would = f"{adapters[chosen].name} would be chosen; --device or LIVESHAPE_DEVICE takes an index or a name"
            print_text(would)
    if problem:
        print(wrapped(f"liveshape: {problem}", sys.stderr), file=sys.stderr)
    return 3 if chosen is None else 0


def _operations(rate: float | None) -> str:
    return "-" if rate is None else rate_text(rate, "op/s")


def rate_text(rate: float, unit: str) -> str:
    """Human-readable rate with an SI prefix.

    >>> rate_text(3.92e12, "B/s"), rate_text(2.16e9, "op/s"), rate_text(0, "B/s")
    ('3.92 TB/s', '2.16 Gop/s', '0.00 MB/s')
    """
    scale, prefix = next((each for each in ((1e12, "T"), (1e9, "G")) if rate >= each[0]), (1e6, "M"))
    return f"{rate / scale:.2f} {prefix}{unit}"
