"""Checkpoint files by hand: what is read from them, and what is refused when they are damaged."""

from __future__ import annotations

import contextlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveshape.errors import FormatError, InputError, UnsupportedError
from liveshape.export.model.checkpoint import check_tensors
from liveshape.export.sources.ggml_blocks import FORMATS
from liveshape.export.sources.gguf import GgufFile
from liveshape.export.sources.gguf_model import open_gguf
from liveshape.export.sources.huggingface_config import from_hugging_face
from liveshape.export.sources.llama2c import open_llama2c
from liveshape.export.sources.opening import open_checkpoint
from liveshape.export.sources.rotary_rows import pairs_to_halves
from liveshape.export.sources.safetensors import SafetensorsFolder
from liveshape.export.sources.user_function import call_function, is_function
from tests.export.gguf_files import READERS, write_gguf
from tests.export.test_config import GGUF
from tests.export.tiny import LLAMA, random_weights, stored_as, write_folder, write_safetensors

CONFIG = from_hugging_face({**LLAMA, "rope_scaling": None})
WEIGHTS = random_weights(CONFIG)


@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "BF16"])
def test_safetensors(dtype: str, tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", WEIGHTS, dtype)
    folder = SafetensorsFolder(tmp_path)
    assert set(folder.tensors) == set(WEIGHTS)
    for name, weight in WEIGHTS.items():
        read = folder.read(name)
        assert (read.dtype, read.shape) == (np.float32, weight.shape)
        assert stored_as(read, dtype) == stored_as(weight, dtype)


def test_sharded_safetensors(tmp_path: Path) -> None:
    names = sorted(WEIGHTS)
    for part, chosen in enumerate((names[::2], names[1::2])):
        write_safetensors(tmp_path / f"part{part}.safetensors", {name: WEIGHTS[name] for name in chosen})
    index = {"weight_map": {name: f"part{place % 2}.safetensors" for place, name in enumerate(names)}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    folder = SafetensorsFolder(tmp_path)
    assert all(np.array_equal(folder.read(name), WEIGHTS[name]) for name in names)
    (tmp_path / "part1.safetensors").unlink()
    with pytest.raises(FormatError, match=r"part1\.safetensors"):
        SafetensorsFolder(tmp_path)


def header(entry: Any) -> bytes:
    text = json.dumps({"x": entry}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"1234567", "does not fit"),
        (b"\xff" * 8, "does not fit"),
        ((4).to_bytes(8, "little") + b"{{{{", "not JSON"),
        ((2).to_bytes(8, "little") + b"[]", "not a table"),
        (header({"dtype": "F32"}), "not described"),
        (header({"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}), "type F8_E4M3"),
        (header({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}), "do not hold"),
        (header({"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}), "do not hold"),
        (header({"dtype": "F32", "shape": [-2], "data_offsets": [8, 0]}), "do not hold"),
    ],
)
def test_damaged_safetensors(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(FormatError, match=message):
        SafetensorsFolder(tmp_path)


def test_a_folder_of_the_hub(tmp_path: Path) -> None:
    write_folder(tmp_path, LLAMA, WEIGHTS, "BF16")
    checkpoint = open_checkpoint(str(tmp_path))
    check_tensors(checkpoint)
    assert checkpoint.config.hidden == 64
    assert json.loads(checkpoint.files["generation_config.json"]) == {"bos_token_id": 1, "eos_token_id": [2, 3]}
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(FormatError, match="save_pretrained"):
        open_checkpoint(str(tmp_path))


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"model.norm.weight": None}, FormatError, r"lacks model\.norm\.weight"),
        ({"model.norm.weight": np.zeros(8, np.float32)}, FormatError, r"\(8,\) instead of \(64,\)"),
        ({"model.layers.0.adapter": np.zeros(8, np.float32)}, UnsupportedError, r"layers\.0\.adapter"),
    ],
)
def test_tensors_that_do_not_fit(change: dict[str, Any], kind: type[Exception], message: str, tmp_path: Path) -> None:
    tensors = {name: weight for name, weight in {**WEIGHTS, **change}.items() if weight is not None}
    write_folder(tmp_path, LLAMA, tensors)
    with pytest.raises(kind, match=message):
        check_tensors(open_checkpoint(str(tmp_path)))


@pytest.mark.parametrize("number", [number for number, form in FORMATS.items() if form.name in READERS])
def test_blocks(number: int, tmp_path: Path) -> None:
    form = FORMATS[number]
    generator = np.random.default_rng(number)
    records = np.frombuffer(generator.bytes(6 * form.nbytes), form.record).copy()
    for name in ("d", "m", "dmin"):
        if name in (form.record.names or ()):
            records[name] = generator.standard_normal(6)
    if "e" in (form.record.names or ()):
        records["e"] = generator.integers(100, 140, 6)
    write_gguf(tmp_path / "x.gguf", {}, {"x": (number, (3, 2 * form.weights), records.tobytes())})
    read = GgufFile(tmp_path / "x.gguf").read("x")
    expected = [weight for record in records for weight in READERS[form.name](record.tobytes())]
    np.testing.assert_allclose(read.reshape(-1), np.array(expected, np.float32), rtol=1e-5, atol=1e-5)


def gguf_of_weights(path: Path, more: dict[str, Any] | None = None, **metadata: Any) -> None:
    """The tiny Llama as a GGUF file: Q and K rows in pairs, as its converter stores them; `more` are other tensors."""
    names = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.o_proj": "attn_output",
        **{f"self_attn.{part}_proj": f"attn_{part}" for part in "qkv"},
        **{f"mlp.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")},
    }
    tensors = {}
    for name, weight in WEIGHTS.items():
        stored = name
        for theirs, ours in names.items():
            stored = stored.replace(f"{theirs}.", f"{ours}.")
        stored = stored.replace("model.layers", "blk")
        if heads := {"q_proj": 4, "k_proj": 2}.get(name.split(".")[-2]):
            weight = weight.reshape(heads, 2, 8, 64).swapaxes(1, 2).reshape(weight.shape)
        tensors[stored] = (0, weight.shape, weight.tobytes())
    tokens = ["<unk>", "<s>", "</s>", *(f"t{each}" for each in range(127))]
    words = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * len(tokens),
        "tokenizer.ggml.token_type": [2, 3, 3, *[1] * 127],
        "tokenizer.chat_template": "{{ messages }}",
    }
    tensors |= {name: (0, each.shape, each.astype("<f4").tobytes()) for name, each in (more or {}).items()}
    write_gguf(path, {**GGUF, **words, **metadata}, tensors)


def test_gguf_model(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    gguf_of_weights(tmp_path / "tiny.gguf")
    checkpoint = open_checkpoint(str(tmp_path / "tiny.gguf"))
    check_tensors(checkpoint)
    assert not checkpoint.config.tied
    for name, weight in WEIGHTS.items():
        np.testing.assert_array_equal(checkpoint.read(name), weight, err_msg=name)
    assert checkpoint.files["chat_template.jinja"] == b"{{ messages }}"
    assert {"tokenizer.json", "tokenizer_config.json", "generation_config.json"} <= set(checkpoint.files)


def test_partial_rotary_of_gguf_is_refused(tmp_path: Path) -> None:
    gguf_of_weights(tmp_path / "tiny.gguf", **{"llama.rope.dimension_count": 8})
    with pytest.raises(UnsupportedError, match="8 of 16"):
        open_gguf(tmp_path / "tiny.gguf")


@pytest.mark.parametrize("keep", [3, 23, 40, 200, -1000, -1])
def test_cut_gguf(keep: int, tmp_path: Path) -> None:
    gguf_of_weights(tmp_path / "tiny.gguf")
    (tmp_path / "cut.gguf").write_bytes((tmp_path / "tiny.gguf").read_bytes()[:keep])
    with pytest.raises(FormatError, match="gguf"):
        GgufFile(tmp_path / "cut.gguf")


@pytest.mark.parametrize(
    ("at", "content", "message"),
    [
        (0, b"GGML", "is not a GGUF"),
        (4, struct.pack("<I", 1), "version 1"),
        (8, b"\xff" * 8, "do not fit"),
        (16, b"\xff" * 8, "do not fit"),
        (24, b"\xff" * 8, "do not fit"),
    ],
)
def test_damaged_gguf(at: int, content: bytes, message: str, tmp_path: Path) -> None:
    gguf_of_weights(tmp_path / "tiny.gguf")
    damaged = bytearray((tmp_path / "tiny.gguf").read_bytes())
    damaged[at : at + len(content)] = content
    (tmp_path / "bad.gguf").write_bytes(damaged)
    with pytest.raises(FormatError, match=message):
        GgufFile(tmp_path / "bad.gguf")


def test_any_damage_of_a_gguf_header_is_an_error_or_harmless(tmp_path: Path) -> None:
    gguf_of_weights(tmp_path / "tiny.gguf")
    whole = (tmp_path / "tiny.gguf").read_bytes()
    generator = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[int(generator.integers(0, 900))] = int(generator.integers(0, 256))
        (tmp_path / "bad.gguf").write_bytes(damaged)
        with contextlib.suppress(FormatError):
            GgufFile(tmp_path / "bad.gguf")


def test_unknown_block_type(tmp_path: Path) -> None:
    write_gguf(tmp_path / "x.gguf", {}, {"x": (16, (1, 256), bytes(66))})
    with pytest.raises(FormatError, match=r"ggml type 16.*Q4_K.*llama-quantize"):
        GgufFile(tmp_path / "x.gguf")


def write_llama2c(folder: Path, tied: bool) -> Path:
    order = ["input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"]
    order += ["post_attention_layernorm", "mlp.gate_proj", "mlp.down_proj", "mlp.up_proj"]
    content = struct.pack("<7i", 64, 96, 2, 4, 2, 130 if tied else -130, 16)
    content += WEIGHTS["model.embed_tokens.weight"].tobytes()
    for kind in order:
        for index in range(2):
            weight = WEIGHTS[f"model.layers.{index}.{kind}.weight"]
            if kind.endswith(("q_proj", "k_proj")):
                weight = weight.reshape(-1, 2, 8, 64).swapaxes(1, 2).reshape(weight.shape)
            content += weight.tobytes()
    content += WEIGHTS["model.norm.weight"].tobytes() + bytes(2 * 4 * 16 * 8)
    content += b"" if tied else WEIGHTS["lm_head.weight"].tobytes()
    (folder / "tiny.bin").write_bytes(content)
    pieces = ["<unk>", "\n<s>\n", "\n</s>\n", *[chr(each) for each in range(127)]]
    stored = b"".join(struct.pack("<fi", 0.0, len(piece.encode())) + piece.encode() for piece in pieces)
    (folder / "tokenizer.bin").write_bytes(struct.pack("<i", 5) + stored)
    return folder / "tiny.bin"


@pytest.mark.parametrize("tied", [True, False])
def test_llama2c(tied: bool, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    checkpoint = open_llama2c(write_llama2c(tmp_path, tied))
    check_tensors(checkpoint)
    assert (checkpoint.config.tied, checkpoint.config.context, checkpoint.config.ends) == (tied, 16, (2, 1))
    for name in checkpoint.shapes:
        np.testing.assert_array_equal(checkpoint.read(name), WEIGHTS[name], err_msg=name)


def test_damaged_llama2c(tmp_path: Path) -> None:
    path = write_llama2c(tmp_path, tied=True)
    whole = path.read_bytes()
    path.write_bytes(whole[:5000])
    with pytest.raises(FormatError, match="5000"):
        open_llama2c(path)
    path.write_bytes(struct.pack("<2I", 0x616B3432, 2) + whole[8:])
    with pytest.raises(FormatError, match="version 2"):
        open_llama2c(path)


def test_rows_of_pairs_as_halves() -> None:
    assert pairs_to_halves(heads=2, size=6, rotated=6).tolist() == [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]
    assert pairs_to_halves(heads=2, size=6, rotated=4).tolist() == [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]


def test_sources_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_checkpoint(str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"no config\.json"):
        open_checkpoint(str(tmp_path))
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(InputError, match="not of a kind"):
        open_checkpoint(str(tmp_path / "notes.txt"))
    assert is_function("package.module:build")
    assert is_function("some folder/module.py:build")
    assert not is_function(f"{__file__}")
    with pytest.raises(InputError, match="nowhere_to_be_found"):
        call_function("nowhere_to_be_found:build")
    with pytest.raises(InputError, match="must return"):
        call_function("tests.export.test_readers:write_nothing")


def write_nothing() -> None:
    """Not what a source function returns."""
