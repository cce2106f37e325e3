"""Constants that are one place of a file have one memory: views of one range are one view, whatever holds the bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import liveshape
from liveshape.formats import open_program
from liveshape.formats.segments import Constants, NamedData, Segments
from liveshape.formats.source import FileRange
from liveshape.graph import Tensor
from liveshape.graph.constants import view_identity
from liveshape.graph.elements import is_packed
from liveshape.lower.lowering import lower
from liveshape.plan.memory import share_constants

STORY = Path(liveshape.__file__).parent / "demo" / "story" / "model.pte"


@pytest.mark.parametrize("kind", ["path", "bytes", "bytearray", "view", "no maps"])
def test_a_tied_table_has_one_memory(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy knows where bytes lie, and confirms each."""
    if kind == "no maps":  # as in a browser
        monkeypatch.setattr("liveshape.formats.source.mmap", None)
    content = {"bytes": bytes, "bytearray": bytearray, "view": memoryview}
    source: Any = content[kind](STORY.read_bytes()) if kind in content else STORY
    with open_program(source) as program:
        graph = lower(program, "forward", {})
    roots = share_constants(graph)
    places: dict[Any, Tensor] = {}
    for tensor, root in roots.items():
        constant: Any = tensor.constant
        dtype = "uint8" if is_packed(tensor.dtype) else tensor.dtype
        if isinstance(constant, FileRange):
            place = constant.start, constant.nbytes
        else:
            data = np.frombuffer(constant, np.uint8)
            place = data.ctypes.data, data.size
        assert places.setdefault((dtype, *place), root) is root
    assert len(set(roots.values())) == len(places) < len(roots)


def test_one_range_of_a_segment_is_one_view() -> None:
    segments = Segments(memoryview(b"aaaabbbb"), ((0, 4), (4, 8), (0, 4), (0, 8)))
    assert segments.view(0) is segments.view(2) is segments.view(0)
    named = NamedData(segments, {"embedding": 0, "head": 2, "other": 1})
    assert named["embedding"] is named["head"] is not named["other"]
    constants = Constants([segments.view(3)], (0, 0, 4))
    assert constants.piece(1, 0, 4) is constants.piece(0, 0, 4) is not constants.piece(0, 0, 2)
    assert constants.piece(0, 4, 4) is constants.piece(2, 0, 4)
    inline = Constants([memoryview(b"aaaa"), memoryview(b"aaaa")])
    assert inline.piece(0, 0, 4) is not inline.piece(1, 0, 4)


def test_views_of_one_whole_object_are_the_same_bytes() -> None:
    data = bytearray(b"abcdabcd")
    view = memoryview(data)
    assert view_identity(view) == view_identity(memoryview(data).toreadonly()) == view_identity(memoryview(data)[:])
    first, second = view[:4], view[4:]
    assert len({view_identity(each) for each in (view, first, second, memoryview(b"abcdabcd"))}) == 4
