"""What a test of ExecuTorch would run: its programs, inputs and references, recorded once and kept on disk.

Exporting takes a second, running a tenth of one. So a test of theirs is run with a runtime that only writes down what
it was given; what we make of it is found out from the recording, as often as our operators change.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from tests.support.exporting import cached, quick, quiet


@dataclass(frozen=True)
class Call:
    """Inputs of a program, flat, and what must come out."""

    inputs: tuple[Any, ...]
    reference: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Recorded:
    """A program with the calls that are made of it, and how close the first results must be to their references."""

    pte: bytes
    calls: tuple[Call, ...]
    atol: float
    rtol: float
    apart: bool = False  # an error must be within one of the two, not within their sum


@dataclass
class Recording:
    """All programs of a test, or why there are none."""

    programs: list[Recorded] = field(default_factory=list)
    failure: str = ""


Recorder = partial[None]  # of a Recording, in which it writes down what a test would run


@dataclass(frozen=True)
class Suite:
    """Tests by name; each writes what it would run into a recording. A module that is not there is in `absent`."""

    title: str
    origin: str
    tests: Mapping[str, Recorder]
    absent: Mapping[str, str]


def recorded(name: str, record: Recorder) -> Recording:
    """The recording of a test, made where the disk has none by this code and the installed exporter."""
    code = (sys.modules[__name__], sys.modules[record.func.__module__])
    path = cached(f"coverage/{name}", code, lambda: pickle.dumps(_made(record)), ".recording")
    found: Recording = pickle.loads(path.read_bytes())
    return found


def _made(record: Recorder) -> Recording:
    recording = Recording()
    torch.manual_seed(0)
    try:
        # What they print is for a person who runs them one by one.
        with quiet(), quick(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            record(recording)
    except Exception as error:
        recording.failure = failure(error)
    return recording


def failure(error: BaseException) -> str:
    """An error in a line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def call(inputs: Any, reference: Any, first_only: bool = False) -> Call:
    """A call as torch made it."""
    given, _ = torch.utils._pytree.tree_flatten(inputs)
    results, _ = torch.utils._pytree.tree_flatten(reference)
    return Call(
        tuple(_plain(each) for each in given),
        tuple(np.asarray(_plain(each)) for each in results[: 1 if first_only else None]),
    )


def _plain(value: Any) -> Any:
    return value.detach().numpy().copy() if isinstance(value, torch.Tensor) else value
