"""The writer by itself: every form of storage on the device, memory and files that stay small and whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import liveshape
from liveshape.export.decoder.decoder import Bounds, decoder_program
from liveshape.export.file.delegate_blob import DelegateBuilder
from liveshape.export.file.program_file import ProgramSpec, write_program
from liveshape.export.folder import MODEL, Settings, export_folder
from liveshape.export.model.config import Quantization
from liveshape.export.model.layout import Grouped, Layout
from liveshape.export.weights.lazy_constants import Batch, Constant, batch_of
from liveshape.export.weights.packing import pack_codes
from liveshape.export.weights.storage import RoundedStorage
from liveshape.formats import open_program, parse_vkgraph
from tests.export.exported import operators
from tests.export.reference import logits
from tests.export.tiny import LLAMA, QWEN2, QWEN3, checkpoint_of

Array = np.ndarray[Any, Any]
MAX, CONTEXT = 12, 24
FOUR = Layout(4, 32)
TOKENS = [int(token) for token in np.random.default_rng(5).integers(0, 128, CONTEXT)]


@dataclass(frozen=True)
class AnyStorage(RoundedStorage):
    """Every matrix in one layout, as a file might have it."""

    form: Layout = FOUR

    def layout(self, name: str, lookup: bool) -> Layout | None:
        return self.form

    def grouped(self, name: str, layout: Layout, rows: slice) -> Grouped:
        weight = self.floats(name, rows)
        groups = weight.reshape(len(weight), -1, layout.group)
        low, high = groups.min(2), groups.max(2)
        steps = (1 << layout.bits) - 1
        scales = (high - low) / steps if layout.minima else np.abs(groups).max(2) / (steps // 2)
        # Codes are signed: the lowest is half of all below zero.
        minima = low + scales * ((steps + 1) // 2) if layout.minima else None
        above = groups - minima[:, :, None] if minima is not None else groups
        limit = (steps + 1) // 2
        codes = np.clip(np.rint(above / scales[:, :, None]), -limit, limit - 1).astype(np.int8)
        return Grouped(layout.bits, codes.reshape(weight.shape), scales.astype(np.float32), minima)

    def dequantized(self, name: str) -> Array:
        if len(self.shapes[name]) == 1:
            return self.floats(name)
        made = self.grouped(name, self.form, slice(None))
        weight = made.codes * made.scales.repeat(made.group, axis=1)
        return weight if made.minima is None else weight + made.minima.repeat(made.group, axis=1)


FORMS: Mapping[str, tuple[dict[str, Any], Layout]] = {
    "4_bits_with_minima": (LLAMA, Layout(4, 32, minima=True)),
    "8_bits": ({**QWEN2, "num_hidden_layers": 1}, Layout(8, 32)),
    "8_bits_with_minima": ({**QWEN3, "num_hidden_layers": 1}, Layout(8, 16, minima=True)),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "8_bits" else ()) for name in FORMS]
)
def test_every_form_of_storage_on_the_device(name: str, tmp_path: Path) -> None:
    settings, form = FORMS[name]
    checkpoint = checkpoint_of(settings)
    storage = AnyStorage(checkpoint, Quantization("4w"), form)
    program = decoder_program(checkpoint.config, storage, Bounds(MAX, CONTEXT), False, True, False)
    write_program(program, tmp_path / "model.pte")
    expected = logits(settings, {name: storage.dequantized(name) for name in storage.shapes}, TOKENS)
    model = liveshape.load(tmp_path / "model.pte")
    for start, end in ((0, 5), (5, 6), (6, 18), (18, 24), (3, 4)):
        got = np.asarray(model(np.array([TOKENS[start:end]]), np.array([start])))[0]
        np.testing.assert_allclose(got, expected[start:end], rtol=1e-3, atol=1e-3)
    found = operators(tmp_path / "model.pte")
    layers = settings["num_hidden_layers"]
    assert found.count("aten.sum.dim_IntList") == (4 * layers + 1 if form.minima else 0)  # once for each input
    tables = 8 - 1 if settings["tie_word_embeddings"] else 8
    if form.bits == 8:
        assert found.count("torchao.dequantize_affine.default") >= tables * layers
    else:
        assert found.count("et_vk.linear_q4gsw.default") == 7 * layers + 1


def test_a_tied_table_is_stored_once(tmp_path: Path) -> None:
    settings = {**QWEN3, "vocab_size": 130}  # no multiple of 4
    export_folder(checkpoint_of(settings), tmp_path, Settings(Quantization("4w"), max_seq=8, max_context=16))
    with open_program(tmp_path / MODEL) as program:
        table = [key for key in program.named_data if key.startswith("model.embed_tokens")]
    kinds = ["codes", "scales", "scales_by_group"]
    assert sorted(table) == [f"model.embed_tokens.weight.{kind}" for kind in kinds]


def test_codes_are_packed_as_executorch_does() -> None:
    from executorch.backends.vulkan.patterns.weight_packing_utils import pack_4bit_weight_tensor
    from torch import from_numpy

    codes = np.random.default_rng(0).integers(-8, 8, (6, 100)).astype(np.int8)
    assert np.array_equal(pack_codes(codes), pack_4bit_weight_tensor(from_numpy(codes)).numpy())


def program_of(*constants: Constant, made: int = 0) -> ProgramSpec:
    """A delegate that adds up constants; each of them has `made` bytes too many."""
    graph = DelegateBuilder()
    x = out = graph.input((4,), "float32")
    for constant in constants:
        out = graph.call("aten.add.Tensor", out, graph.prepacked(constant), 1, shape=(4,))
    graph.output(out)
    batches = [batch_of(each, lambda: np.ones(4 + made, np.float32)) for each in constants]
    return ProgramSpec(graph, batches, [(x.shape, "float32")], [(out.shape, "float32")], {"get_answer": 42})


@pytest.mark.parametrize("length", range(1, 140, 7))
def test_headers_of_any_size(length: int, tmp_path: Path) -> None:
    """The program grows by a few bytes at a time, over the place where segments begin."""
    program = program_of(Constant("k" * length, "float32", (4,)), Constant("other", "float32", (4,)))
    size = write_program(program, tmp_path / "model.pte")
    assert (tmp_path / "model.pte").stat().st_size == size
    with open_program(tmp_path / "model.pte") as found:
        assert {key: bytes(value) for key, value in found.named_data.items()} == dict.fromkeys(
            ("k" * length, "other"), np.ones(4, np.float32).tobytes()
        )
        assert len(parse_vkgraph(found.method("forward").delegates[0].blob).chain) == 4
        assert found.method("get_answer").values == (42,)


def test_a_written_program_runs(tmp_path: Path) -> None:
    write_program(program_of(Constant("one", "float32", (4,))), tmp_path / "model.pte")
    got = np.asarray(liveshape.load(tmp_path / "model.pte")(np.arange(4, dtype=np.float32)))
    np.testing.assert_array_equal(got, np.arange(4) + 1)


def test_progress_counts_bytes_up_to_the_whole_file(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    checkpoint = checkpoint_of(LLAMA)
    settings = Settings(max_seq=8, max_context=16)
    size = export_folder(checkpoint, tmp_path, settings, progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert len(seen) > 30
    assert seen[-1] == (size, size)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_file_that_is_not_finished_is_not_there(error: type[BaseException], tmp_path: Path) -> None:
    (tmp_path / "model.pte").write_bytes(b"old")
    program = program_of(Constant("one", "float32", (4,)))

    def stop() -> Any:
        raise error

    broken = replace(program, batches=[Batch(program.batches[0].constants, [stop])])
    with pytest.raises(error):
        write_program(broken, tmp_path / "model.pte")
    assert [path.name for path in tmp_path.iterdir()] == ["model.pte"]
    assert (tmp_path / "model.pte").read_bytes() == b"old"


def test_data_of_another_size_than_was_declared_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="one takes 16 bytes, 20 were made"):
        write_program(program_of(Constant("one", "float32", (4,)), made=1), tmp_path / "model.pte")
    assert not list(tmp_path.iterdir())


def test_large_tensors_are_read_in_pieces(tmp_path: Path) -> None:
    """No more than a million weights at a time, of whatever tensor."""
    checkpoint = checkpoint_of({**LLAMA, "num_hidden_layers": 1, "vocab_size": 40000, "tie_word_embeddings": True})
    read: list[tuple[str, int]] = []

    def rows(name: str, part: slice) -> Array:
        found = checkpoint.read(name)[part]
        read.append((name, found.size))
        return found

    export_folder(replace(checkpoint, rows=rows), tmp_path, Settings(max_seq=8, max_context=16))
    assert max(size for _, size in read) <= 1 << 20
    table = [size for name, size in read if name == "model.embed_tokens.weight"]
    assert len(table) == 3  # read once, although it serves two layers
    assert sum(table) == 40000 * 64
