"""An import that was interrupted, as the first load of a process imports much, can be begun again."""

from __future__ import annotations

import importlib
import sys

import pytest

from liveshape import ops
from liveshape.ops.registry import OPS, op


def test_a_file_of_operators_that_was_imported_halfway_can_be_imported_again() -> None:
    assert len(OPS) > 100
    name = "liveshape.ops.softmax"
    before, known = sys.modules.pop(name), dict(OPS)  # as Python does with a module whose import failed
    try:
        again = importlib.import_module(name)
        assert again is not before
        assert OPS.keys() == known.keys()
    finally:
        sys.modules[name] = ops.softmax = before
        OPS.update(known)


def test_two_operators_of_one_name_are_still_refused() -> None:
    name = next(iter(OPS))
    with pytest.raises(ValueError, match="registered twice"):

        @op(name)
        def other(x: int, out: int) -> None: ...
