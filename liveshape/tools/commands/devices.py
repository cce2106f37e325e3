"""`liveshape devices`: GPU adapters of this machine, the default one, and their peak rates."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from liveshape.device.backends import backend_names, choose_adapter, choose_backend, list_adapters, open_device
from liveshape.device.protocol import Adapter
from liveshape.driver_folder import driver_folders, named_drivers
from liveshape.errors import NoAdapterError
from liveshape.graph.limits import MatrixShape, MatrixUse
from liveshape.tools.console import print_json, print_table, print_text, size_text, work_bar
from liveshape.tools.driver_packages import STEPS, install
from liveshape.tools.measuring.rates import MEASURED, Rates, rates_of
from liveshape.tools.wrapping import wrapped


def devices(
    device: str | None = None,
    *,
    as_json: bool = False,
    measure: bool = False,
    remeasure: bool = False,
    install_software_driver: bool = False,
) -> int:
    """Print every adapter; exit code 0 if one of them would be chosen, 3 if none.

    `measure` adds peak bandwidth and throughput, of the chosen adapter or of all; `remeasure` ignores cached rates.
    `install_software_driver` unpacks Mesa's newest first.

    Example: `devices("nvidia", measure=True)`.
    """
    if install_software_driver:
        _install_software_driver()
    backend, asked = choose_backend(device)
    adapters, problem = _all_adapters()
    chosen = None
    try:
        own = [adapter for adapter in adapters if adapter.library == backend]
        chosen = own[choose_adapter(asked, own)]
        problem = ""
    except NoAdapterError as error:
        problem = problem or str(error)
    rates: dict[tuple[str, int], Rates] = {}
    if (measure or remeasure) and chosen is not None:
        wanted = [chosen] if device is not None else adapters
        with work_bar(len(wanted) * len(MEASURED)) as begin:
            for adapter in wanted:
                opened = open_device(adapter.index, adapter.library)
                told = partial(_tell, begin, adapter.name)
                rates[adapter.library, adapter.index] = rates_of(opened, remeasure, told)
    if as_json:
        rows: list[dict[str, Any]] = [{**asdict(adapter), "chosen": adapter is chosen} for adapter in adapters]
        for row in rows:
            if found := rates.get((row["library"], row["index"])):
                row["rates"] = asdict(found)
        print_json({"adapters": rows, "chosen": None if chosen is None else chosen.index, "problem": problem})
    elif adapters:
        print_table(
            "adapters",
            (
                "",
                "library",
                "index",
                "name",
                "type",
                "via",
                "driver",
                "f16",
                "matrices",
                "max buffer",
                "max binding",
            ),
            [
                (
                    "->" if adapter is chosen else "",
                    adapter.library,
                    adapter.index,
                    adapter.name,
                    adapter.kind,
                    adapter.backend,
                    adapter.driver,
                    "yes" if adapter.half else "no",
                    matrices_text(adapter.matrices),
                    size_text(adapter.max_buffer_bytes),
                    size_text(adapter.max_binding_bytes),
                )
                for adapter in adapters
            ],
        )
        if rates:
            print_table(
                "at its best",
                ("library", "index", "copy", "f32", "f16", "8-bit dots", "measured"),
                [
                    (*which, rate_text(each.copy, "B/s"), *map(_operations, (each.f32, each.f16, each.int8)), each.date)
                    for which, each in rates.items()
                ],
            )
        if chosen is not None:
            print_text(
                f"{chosen.name} would be chosen, through {chosen.library}{_otherwise(device, backend)}; --device or "
                "LIVESHAPE_DEVICE takes an index or a name, --backend or LIVESHAPE_BACKEND a library"
            )
    if problem:
        _say(problem)
    return 3 if chosen is None else 0


def _install_software_driver() -> None:
    folder = driver_folders()[0]
    _say(f"unpacking Mesa's software Vulkan driver in {folder}; nothing is installed in the system")
    with work_bar(STEPS) as begin:
        version = install(folder, begin)
    _say(f"Mesa {version} is there: a CPU answers now where there is no GPU, but slowly")
    variable = named_drivers()
    if variable is not None:
        _say(f"{variable} names other drivers, which are taken in its place: unset it")


def _say(text: str) -> None:
    print(wrapped(f"liveshape: {text}", sys.stderr), file=sys.stderr, flush=True)


def _all_adapters() -> tuple[list[Adapter], str]:
    """The adapters of every library that is installed, and the last problem of one that has none."""
    found: list[Adapter] = []
    problem = ""
    for name in backend_names():
        try:
            found += list_adapters(name)
        except NoAdapterError as error:  # Dawn is an extra
            problem = str(error)
    return found, problem


def _otherwise(device: str | None, backend: str) -> str:
    """The backend of programs that take no matrix units, where it is another."""
    plain, _ = choose_backend(device, matrices=lambda: MatrixUse.NOTHING)
    return "" if plain == backend else f", or through {plain} for a program that takes no matrix units"


def _tell(begin: Callable[[str], None], name: str, what: str) -> None:
    begin(f"{name}: {what}")


def matrices_text(matrices: Sequence[MatrixShape]) -> str:
    """The products of an adapter's matrix units, by types.

    >>> matrices_text([MatrixShape("float16", "float32", 16, 16, 16), MatrixShape("float16", "float32", 16, 8, 16)])
    'float16 -> float32 16x16x16, 16x8x16'
    """
    types = dict.fromkeys((each.input, each.result) for each in matrices)
    lines = []
    for given, result in types:
        sizes = [f"{each.m}x{each.n}x{each.k}" for each in matrices if (each.input, each.result) == (given, result)]
        lines.append(f"{given} -> {result} {', '.join(sizes)}")
    return "; ".join(lines) or "-"


def _operations(rate: float | None) -> str:
    return "-" if rate is None else rate_text(rate, "op/s")


def rate_text(rate: float, unit: str) -> str:
    """Human-readable rate with an SI prefix.

    >>> rate_text(3.92e12, "B/s"), rate_text(2.16e9, "op/s"), rate_text(0, "B/s")
    ('3.92 TB/s', '2.16 Gop/s', '0.00 MB/s')
    """
    scale, prefix = next((each for each in ((1e12, "T"), (1e9, "G")) if rate >= each[0]), (1e6, "M"))
    return f"{rate / scale:.2f} {prefix}{unit}"
