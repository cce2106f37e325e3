"""Pooling: one vector of the hidden states of a text, in the ways of sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from liveshape.errors import FormatError, UnsupportedError
from liveshape.llm.settings import read_json

Vector = npt.NDArray[np.float32]

POOLINGS = ("mean", "cls", "last", "none")
_FILE = Path("1_Pooling") / "config.json"
_PREFIX = "pooling_mode_"
_MODES = {"mean_tokens": "mean", "cls_token": "cls", "lasttoken": "last"}


def stored_pooling(folder: Path) -> str | None:
    """The pooling that a folder of sentence-transformers asks for; None if it has no such file.

    Example: `stored_pooling(Path("all-MiniLM-L6-v2")) == "mean"`.
    """
    path = folder / _FILE
    modes = {name.removeprefix(_PREFIX): on for name, on in read_json(path).items() if name.startswith(_PREFIX)}
    if not modes:
        return None
    if not all(isinstance(on, bool) for on in modes.values()):
        raise FormatError(f"{path}: every {_PREFIX}... is true or false")
    chosen = [name for name, on in modes.items() if on]
    if len(chosen) != 1 or chosen[0] not in _MODES:
        known = ", ".join(_PREFIX + name for name in _MODES)
        raise UnsupportedError(
            f"{path} chooses {', '.join(_PREFIX + name for name in chosen) or 'nothing'}: one of {known} is "
            "supported; --pooling chooses another"
        )
    return _MODES[chosen[0]]


def pooled(rows: npt.NDArray[Any], how: str) -> Vector:
    """One vector of unit length of the hidden states (S, D) of a text, without those of its padding.

    >>> pooled(np.array([[3.0, 0.0], [3.0, 8.0]]), "mean").tolist()
    [0.6000000238418579, 0.800000011920929]
    """
    exact = rows.astype(np.float64)
    vector: npt.NDArray[np.float64] = exact.mean(0) if how == "mean" else exact[0] if how == "cls" else exact[-1]
    length = float(np.linalg.norm(vector))
    return (vector / length if length else vector).astype(np.float32)
