"""Tensor data read by liveshape equals what ExecuTorch reads, and broken files say what is broken."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from liveshape.errors import FormatError, UnsupportedError
from liveshape.formats import TensorEntry, TensorSpec, open_program, open_tensor_data, parse_vkgraph, ptd
from liveshape.formats.dtypes import SCALAR_TYPES
from tests.formats.schema import table_fields

PathOf = Callable[[str], Path]


def data_path(program: Path) -> Path:
    (path,) = program.parent.glob("*.ptd")
    return path


def written(*layouts: Any, data: bytes = bytes(24), version: int | None = None) -> bytes:
    """A file from ExecuTorch's own writer, with one key per layout."""
    from executorch.exir._serialize.data_serializer import DataEntry, DataPayload
    from executorch.extension.flat_tensor.serialize import serialize

    named = {f"key{index}": DataEntry(0, 16, layout) for index, layout in enumerate(layouts)}
    known = serialize._FLAT_TENSOR_VERSION
    try:
        serialize._FLAT_TENSOR_VERSION = known if version is None else version
        return bytes(serialize.FlatTensorSerializer().serialize(DataPayload(buffers=[data], named_data=named)))
    finally:
        serialize._FLAT_TENSOR_VERSION = known


def layout(sizes: list[int], dim_order: list[int], scalar_type: int = 6) -> Any:
    from executorch.exir.scalar_type import ScalarType
    from executorch.exir.tensor_layout import TensorLayout

    return TensorLayout(ScalarType(scalar_type), sizes, dim_order)


@pytest.mark.parametrize("name", ["external", "external_delegate"])
def test_equals_the_deserializer_of_executorch(name: str, program_path: PathOf) -> None:
    from executorch.exir._serialize._cord import Cord
    from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer

    path = data_path(program_path(name))
    golden = FlatTensorSerializer().deserialize(Cord(path.read_bytes()))
    with open_tensor_data(path) as weights:
        assert weights.version == 0
        assert weights.entries.keys() == golden.named_data.keys()
        for key, expected in golden.named_data.items():
            entry, their_layout = weights.entries[key], expected.tensor_layout
            assert entry.data == golden.buffers[expected.buffer_index]
            if their_layout is None:
                assert (entry.dtype, entry.shape, entry.dim_order) == (None, None, None)
            else:
                assert entry.dtype == SCALAR_TYPES[int(their_layout.scalar_type)]
                assert entry.shape == tuple(their_layout.sizes)
                assert entry.dim_order == tuple(their_layout.dim_order)


def test_programs_find_their_data(program_path: PathOf) -> None:
    path = program_path("external")
    weights = open_tensor_data(data_path(path))
    program = open_program(path)
    external = [value for value in program.method().values if isinstance(value, TensorSpec) and value.external]
    assert sorted(str(value.name) for value in external) == ["bias", "weight"]
    for value in external:
        entry = weights.entries[str(value.name)]
        assert (entry.dtype, entry.shape) == (value.dtype, value.shape)
        assert program.tensor_data(value) is None
    path = program_path("external_delegate")
    weights = open_tensor_data(data_path(path))
    for delegate in open_program(path).method().delegates:
        for constant in parse_vkgraph(delegate.blob).constants:
            assert len(weights.entries[str(constant.key)].data) == constant.length


def test_every_slot_is_the_one_of_the_schema() -> None:
    tables = table_fields("extension/flat_tensor/serialize/flat_tensor.fbs")
    assert tables["FlatTensor"] == list(ptd.FLAT_TENSOR)
    assert tables["NamedData"] == list(ptd.NAMED_TENSOR)
    assert tables["TensorLayout"] == list(ptd.LAYOUT)


def test_keys_may_share_a_segment() -> None:
    entries = open_tensor_data(written(None, layout([2, 3], [1, 0]), data=bytes(range(24)))).entries
    assert entries["key0"] == TensorEntry(memoryview(bytes(range(24))))
    assert entries["key1"] == TensorEntry(memoryview(bytes(range(24))), "float32", (2, 3), (1, 0))


def test_broken_layouts() -> None:
    for broken, message in [
        (layout([2, 4], [0, 1]), r"named_data\[0\]\.tensor_layout\.sizes: float32 of shape \(2, 4\) takes 32 bytes"),
        (layout([2, -3], [0, 1]), r"tensor_layout\.sizes: shape \(2, -3\) has a negative dimension"),
        (layout([2, 3], [0, 2]), r"dim_order: \(0, 2\) does not name each of the 2 dimensions of \(2, 3\) once"),
    ]:
        with pytest.raises(FormatError, match=message):
            open_tensor_data(written(broken))


def test_two_keys_of_one_name() -> None:
    with pytest.raises(FormatError, match=r"FlatTensor\.named_data\[1\]\.key: a second 'key0', keys must differ"):
        open_tensor_data(written(None, None).replace(b"key1", b"key0"))


def test_newer_versions() -> None:
    with pytest.raises(UnsupportedError, match=r"FlatTensor\.version: 3, this version of liveshape reads 0; update"):
        open_tensor_data(written(None, version=3))


HEADERS = {
    "identifier": (
        4,
        "4s",
        b"ET12",
        r"b'ET12' at byte 4, expected b'FT01'; this is an ExecuTorch program \(\.pte\), pass",
    ),
    "magic": (8, "4s", b"FH00", r"FH01 header\.magic: b'FH00' at byte 8, expected b'FH01'"),
    "length": (12, "<I", 39, r"FH01 header\.length: 39, at least 40 is allowed"),
    "flatbuffer": (24, "<Q", 2**64 - 1, r"FH01 header\.flatbuffer_size: 18446744073709551615 bytes at offset"),
    "base": (32, "<Q", 2**40, r"FH01 header\.segment_data_size: 24 bytes from byte 1099511627776 on"),
    "data size": (40, "<Q", 2**40, r"FH01 header\.segment_data_size: 1099511627776 bytes from byte"),
    "data size low": (40, "<Q", 3, r"FlatTensor\.segments\[0\]: 24 bytes at offset 0 do not fit in the 3 bytes"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_broken_headers(name: str) -> None:
    at, form, value, message = HEADERS[name]
    data = bytearray(written(None))
    struct.pack_into(form, data, at, value)
    with pytest.raises(FormatError, match=message):
        open_tensor_data(bytes(data))


@pytest.mark.parametrize("keep", [0, 10, 47, 60])
def test_files_cut_short(keep: int) -> None:
    with pytest.raises(FormatError, match=r"FH01 header.*the file is damaged or cut short"):
        open_tensor_data(written(None)[:keep])


def test_a_program_is_no_tensor_data(program_path: PathOf) -> None:
    with pytest.raises(
        FormatError, match=r"this is an ExecuTorch program \(\.pte\), pass a tensor data file \(\.ptd\)"
    ):
        open_tensor_data(program_path("rms_norm"))
    with pytest.raises(
        FormatError, match=r"this is a tensor data file \(\.ptd\), pass an ExecuTorch program \(\.pte\)"
    ):
        open_program(data_path(program_path("external")))
