"""A function of the user's own by name: `module:function`, or `path/to/file.py:function`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from liveshape.errors import InputError


def check_named(text: str) -> None:
    """Raise InputError if the file or the package of a function does not exist; nothing is imported.

    Example: `check_named("mymodel:build")`, before torch is loaded for it.
    """
    place, _, attribute = text.rpartition(":")
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise InputError(f"{text}: there is no file {place}")
        return
    _look_in(Path.cwd())  # as `python -m` does
    first = place.partition(".")[0]
    if first not in sys.modules and importlib.util.find_spec(first) is None:
        raise InputError(
            f"{text}: No module named {first!r} in {Path.cwd()} or among what is installed; for a file elsewhere type "
            f"its path, as in path/to/{first}.py:{attribute}"
        )


def named_function(text: str) -> Any:
    """Import the module and return the function.

    Example: `named_function("models/bert.py:build")()`.
    """
    check_named(text)
    place, _, attribute = text.rpartition(":")
    try:
        found: Any = _from_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InputError(f"{text}: {error}") from error
    return found


def _from_file(path: Path) -> ModuleType:
    """The module of a file, which finds others of its folder, as with `python file.py`."""
    _look_in(path.resolve().parent)
    name = path.stem if path.stem not in sys.modules else f"{path.stem} of liveshape's user"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look theirs up
    spec.loader.exec_module(module)
    return module


def _look_in(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
