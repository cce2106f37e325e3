"""Captures log records and warnings of torch and ExecuTorch, which would be printed between our progress lines."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def quiet_imports() -> Iterator[None]:
    """Silence warnings and log records below ERROR while the exporter's libraries are imported.

    Example: `with quiet_imports(): import torchao`.
    """
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)


@contextmanager
def quiet_tracing() -> Iterator[None]:
    """Silence torch's own warnings and log while it traces; what others log meanwhile is theirs.

    Example: `with quiet_tracing(): torch.export.export(module, args)`.
    """
    torch_log = logging.getLogger("torch")
    level = torch_log.level
    torch_log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch_log.setLevel(level)


@contextmanager
def exporter_log() -> Iterator[list[str]]:
    """Collect the messages of the root logger, whose level the exporter sets itself; nothing is printed.

    Example: `with exporter_log() as lines: to_edge_transform_and_lower(program)`.
    """
    root, torch_log = logging.getLogger(), logging.getLogger("torch")
    handlers, level, torch_level = root.handlers[:], root.level, torch_log.level
    collector = _Collector()
    root.handlers[:] = [collector]
    root.setLevel(logging.INFO)
    torch_log.setLevel(logging.ERROR)  # it has a handler of its own
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield collector.lines
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        torch_log.setLevel(torch_level)
