"""C types that are parsed at once are those that cffi parses one by one. No GPU."""

from __future__ import annotations

from liveshape.device.wgpu_types import parse_types


def test_types_parsed_at_once_are_those_parsed_one_by_one() -> None:
    from wgpu.backends.wgpu_native import ffi

    texts = parse_types(ffi)
    assert len(texts) > 40
    for text in texts:
        at_once = ffi.typeof(text)
        kept = ffi._parsed_types.pop(text)
        assert ffi.typeof(text) is at_once, text
        assert ffi._parsed_types[text] == kept, text


def test_a_library_without_them_is_left_alone() -> None:
    class Other:
        def __init__(self) -> None:
            self._parsed_types: dict[str, object] = {}

        def typeof(self, text: str) -> None:
            raise ValueError(text)

    assert parse_types(Other()) == []
    assert parse_types(object()) == []
