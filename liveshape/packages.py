"""The packages of the extras: text, constraints, export and the Hub need them, running programs does not."""

from __future__ import annotations

from importlib.util import find_spec

from liveshape.errors import LiveshapeError


class MissingPackageError(LiveshapeError, ImportError):
    """A package of an extra is not installed; the message says which, and how to get it."""


def need(*packages: str, extra: str = "llm", what: str = "text in and out") -> None:
    """Raise an error that tells how to install, if one of the packages is missing.

    Example: `need("tokenizers")` before `from tokenizers import Tokenizer`.
    """
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise MissingPackageError(
            f"{what} needs {' and '.join(missing)}, which running a program does not: pip install 'liveshape[{extra}]'"
        )
