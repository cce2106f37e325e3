"""Peak host memory of a load, against a bound of a quarter of the file and 200 MB.

A process of its own loads, and this one looks at it from outside. Linux only, and with a real GPU only: the memory of a
software adapter is memory of the process.

Run: python -m bench.load MODEL.pte|MODEL.pte.xz|FOLDER [--device nvidia]
"""

from __future__ import annotations

import argparse
import lzma
import multiprocessing
import shutil
import time
from contextlib import suppress
from dataclasses import astuple, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

_EACH = 0.001  # seconds between samples
_ALLOWANCE = 200e6  # bytes beside a quarter of the file
_RESET_PEAK = "5"  # the value that resets VmHWM in clear_refs


@dataclass(frozen=True)
class HostMemory:
    """Resident bytes of a process, by kind, and bytes in use on the whole machine."""

    everything: int = 0
    anonymous: int = 0
    file: int = 0  # the mapped model and libraries, which the kernel may evict at any time
    shared: int = 0
    machine: int = 0  # includes what a driver allocates outside of the process, and other processes

    def __sub__(self, other: HostMemory) -> HostMemory:
        return HostMemory(*(mine - its for mine, its in zip(astuple(self), astuple(other), strict=True)))

    def __or__(self, other: HostMemory) -> HostMemory:
        """The maximum of each."""
        return HostMemory(*map(max, astuple(self), astuple(other)))


def host_memory(pid: int) -> HostMemory:
    """The memory of a process now; where the kernel does not break it down, all of it counts as anonymous."""
    status, machine = _fields(f"/proc/{pid}/status"), _fields("/proc/meminfo")
    everything = status["VmRSS"]
    return HostMemory(
        everything,
        status.get("RssAnon", everything),
        status.get("RssFile", 0),
        status.get("RssShmem", 0),
        machine["MemTotal"] - machine["MemAvailable"],
    )


def _fields(path: str) -> dict[str, int]:
    """Every line of the form `Name:   12 kB`, in bytes."""
    lines = (line.split() for line in Path(path).read_text().splitlines())
    return {line[0].rstrip(":"): int(line[1]) << 10 for line in lines if line[2:] == ["kB"]}


@dataclass(frozen=True)
class Loaded:
    """What the loading process reports."""

    adapter: str
    software: bool
    seconds: float
    gpu: int


def load(path: Path, choice: str | None, watcher: Connection) -> None:
    """Load as a user does, in step with the watcher."""
    import liveshape.model  # its imports count as baseline
    from liveshape.device.backends import open_device

    def pause(said: Loaded | None = None) -> None:
        watcher.send(said)
        watcher.recv()

    pause()
    device = open_device(choice)
    pause()
    start = time.perf_counter()
    model: Any
    if path.is_dir():
        from liveshape import llm

        model, _ = llm.load(path, device=device)
    else:
        model = liveshape.load(path, device=device)
    seconds = time.perf_counter() - start
    pause(Loaded(device.adapter.name, device.adapter.software, seconds, model.memory.total))


class Watch:
    """A loading process, sampled from outside."""

    def __init__(self, path: Path, choice: str | None) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=load, args=(path, choice, other), daemon=True)
        self._process.start()
        other.close()
        self._pid = self._process.pid or 0
        self._exact = False

    def step(self) -> tuple[HostMemory, HostMemory, Any]:
        """Until the process waits next: its memory then, the peak on the way, and what it reports."""
        peak = HostMemory()
        while not self._pipe.poll(_EACH):
            with suppress(OSError, KeyError):  # it is gone, and the pipe will say so
                peak |= host_memory(self._pid)
        try:
            said = self._pipe.recv()
        except EOFError:
            raise SystemExit("the model could not be loaded") from None
        now = host_memory(self._pid)
        if self._exact:  # the kernel's own peak misses nothing, but has no breakdown
            peak |= HostMemory(_fields(f"/proc/{self._pid}/status").get("VmHWM", 0))
        return now, peak | now, said

    def go_on(self) -> None:
        """Let the process take its next step, with its peak reset where the kernel permits it."""
        self._exact = False
        with suppress(OSError):
            Path(f"/proc/{self._pid}/clear_refs").write_text(_RESET_PEAK)
            self._exact = True
        self._pipe.send(None)

    def end(self) -> None:
        """Let the process end."""
        self.go_on()
        self._process.join()


def unpacked(path: Path) -> Path:
    """The file that an `.xz` holds, beside it; any other path is itself."""
    if path.suffix != ".xz":
        return path
    target = path.with_suffix("")
    temporary = target.with_name(f".{target.name}.part")
    try:
        with lzma.open(path) as source, open(temporary, "wb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def megabytes(nbytes: float) -> str:
    return f"{nbytes / 1e6:,.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", type=Path, help="a .pte, a .pte.xz, or a folder with a model.pte and its tokenizer")
    parser.add_argument("--device", help="a part of the adapter's name, or its index")
    options = parser.parse_args()
    path = unpacked(options.model)
    size = (path / "model.pte" if path.is_dir() else path).stat().st_size
    watch = Watch(path, options.device)
    before, _, _ = watch.step()
    watch.go_on()
    opened, _, _ = watch.step()
    watch.go_on()
    after, peak, loaded = watch.step()
    watch.end()

    table = Table("host memory", title=f"{path}, {megabytes(size)}, on {loaded.adapter}")
    for column in ("all (RSS)", "anonymous", "file-backed", "shared", "machine"):
        table.add_column(column, justify="right")
    rows = {
        "before the device": before,
        "device open": opened,
        "peak of the load": peak,
        "after the load": after,
        "peak - before": peak - before,
        "peak - device open": peak - opened,
    }
    for name, memory in rows.items():
        table.add_row(name, *map(megabytes, astuple(memory)))
    console = Console()
    console.print(table)
    console.print(f"loaded in {loaded.seconds:.1f} s; GPU memory {megabytes(loaded.gpu)}")
    if loaded.software:
        console.print("a software adapter: these figures have the GPU memory in them")

    bound = size / 4 + _ALLOWANCE
    increases = {
        "everything, with driver and mapped file": (peak - before).everything,
        "anonymous memory only": (peak - before).anonymous,
    }
    table = Table("increase at the peak", "is", "file / 4 + 200 MB", "bound")
    for name, increase in increases.items():
        table.add_row(name, megabytes(increase), megabytes(bound), "kept" if increase <= bound else "exceeded")
    console.print(table)
    exceeded = [
        f"{name}: {megabytes(increase - bound)} above the bound"
        for name, increase in increases.items()
        if increase > bound
    ]
    if exceeded:
        raise SystemExit("\n".join(exceeded))


if __name__ == "__main__":
    main()
