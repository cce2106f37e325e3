"""Optional dependencies (extras): needed for text, constrained decoding, export and the Hub, not to run programs.

And interrupt-safe imports in the middle of a call.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from liveshape.errors import LiveshapeError

CPU_TORCH = "pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"


class MissingPackageError(LiveshapeError, ImportError):
    """An optional dependency is not installed; the message says which, and how to install it."""


def need(*packages: str, extra: str = "llm", what: str = "text in and out") -> None:
    """Raise MissingPackageError with the install command if one of the packages is missing.

    Example: `need("tokenizers")` before `from tokenizers import Tokenizer`.
    """
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        how = f"pip install 'liveshape[{extra}]'"
        if "torch" in missing:
            how = f"{CPU_TORCH} && {how} (without the first command pip brings 5 GB of CUDA, which nothing here uses)"
        if sys.platform == "emscripten":
            how = "micropip.install has what is built for Pyodide, and tokenizers is not (docs/web.md)"
        raise MissingPackageError(f"{what} needs {' and '.join(missing)}, which running a program does not: {how}")


class _Import(threading.Thread):
    """An import running in a non-daemon thread: the process must not exit with a library half initialized."""

    def __init__(self, module: str) -> None:
        super().__init__(name=f"liveshape imports {module}", daemon=False)
        self._module = module
        self._ending = threading.Lock()
        self._ending.acquire()
        self.error: BaseException | None = None
        self.over = False

    def run(self) -> None:
        try:
            import_module(self._module)
        except BaseException as error:
            self.error = error
        self.over = True
        self._ending.release()

    def end(self) -> None:
        """Wait for the import. Not by `join`, which takes a thread for ended if a signal interrupts it."""
        while not self.over:
            self._ending.acquire(timeout=0.05)


_under_way: dict[str, _Import] = {}


def import_whole(module: str) -> Any:
    """Import a module in its own thread, where no signal interrupts it: Ctrl-C ends the wait, not the import.

    A library such as torch cannot be imported again after a partial import.

    Example: `import_whole("torch").ops`.
    """
    if module not in sys.modules or module in _under_way:
        importing = _under_way.get(module)
        if importing is None:
            importing = _Import(module)
            try:
                importing.start()
            except RuntimeError:  # interpreter exit: no thread can start, and no signal is handled any more
                return import_module(module)
            _under_way[module] = importing
        importing.end()
        _under_way.pop(module, None)
        if importing.error is not None:
            raise importing.error
    return import_module(module)
