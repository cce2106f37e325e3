"""A user's own function that builds a torch module, as a source of `liveshape export`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from liveshape.errors import InputError
from liveshape.named_function import named_function

_FUNCTION = re.compile(r"(?:[\w.]+|.+\.py):[A-Za-z_][\w.]*")


def is_function(source: str) -> bool:
    """Whether a source is `module:function` or `file.py:function` rather than a path.

    >>> is_function("mymodel:build"), is_function("models/bert.py:build"), is_function("models/llama.gguf")
    (True, True, False)
    """
    return bool(_FUNCTION.fullmatch(source)) and not Path(source).exists()


def call_function(source: str) -> tuple[Any, tuple[Any, ...], Any]:
    """Call it: returns a torch module, its example arguments at the upper bound, and dynamic_shapes.

    Example: `module, args, dynamic_shapes = call_function("mymodel:build")`.
    """
    made = named_function(source)()
    if not isinstance(made, tuple) or len(made) not in (2, 3) or not isinstance(made[1], tuple):
        raise InputError(f"{source} must return (module, example arguments as a tuple, dynamic_shapes)")
    return made[0], made[1], made[2] if len(made) == 3 else None
