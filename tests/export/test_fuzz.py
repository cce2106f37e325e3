"""Damaged checkpoints get an error of ours or are read: safetensors and their index, GGUF, llama2.c, config.json.

LIVESHAPE_FUZZ sets the number of mutations, LIVESHAPE_FUZZ_SEED the seed.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveshape.errors import FormatError, LiveshapeError
from liveshape.export.decoder.rope import rotary_tables
from liveshape.export.model.checkpoint import Checkpoint, check_tensors
from liveshape.export.model.config import ModelConfig
from liveshape.export.model.families import FAMILIES
from liveshape.export.sources.gguf_config import from_gguf
from liveshape.export.sources.gguf_model import open_gguf
from liveshape.export.sources.huggingface import open_folder
from liveshape.export.sources.huggingface_config import from_hugging_face
from liveshape.export.sources.llama2c import open_llama2c
from liveshape.export.sources.safetensors import SafetensorsFolder
from tests.export.family_models import MODELS
from tests.export.test_readers import WEIGHTS, gguf_of_weights, write_llama2c
from tests.export.tiny import LLAMA, QWEN3, write_folder, write_safetensors
from tests.formats.test_fuzz import SEED, Region, check_mutants, mutants

COUNT = max(200, int(os.environ.get("LIVESHAPE_FUZZ", "0")) // 4)


def read_all(checkpoint: Checkpoint) -> None:
    check_tensors(checkpoint)
    for name in checkpoint.shapes:
        checkpoint.read(name)


def fuzz(name: str, path: Path, regions: list[Region], exercise: Callable[[], None]) -> None:
    """Run `exercise` on mutations of the file at a path, each a new file: maps of the one before may still live."""
    whole = path.read_bytes()

    def read(data: bytes) -> None:
        path.unlink()
        path.write_bytes(data)
        exercise()

    chance = random.Random(f"{SEED} {name}")
    check_mutants(name, mutants(whole, [*regions, (0, len(whole))], COUNT, chance), read)


def test_damaged_safetensors(tmp_path: Path) -> None:
    few = dict(itertools.islice(WEIGHTS.items(), 6))
    path = tmp_path / "model.safetensors"
    write_safetensors(path, few, "F16")
    length = int.from_bytes(path.read_bytes()[:8], "little")

    def exercise() -> None:
        folder = SafetensorsFolder(tmp_path)
        for name in folder.tensors:
            folder.read(name)

    fuzz("safetensors", path, [(0, 8), (8, 8 + length), (8, 8 + length)], exercise)


def test_damaged_index(tmp_path: Path) -> None:
    names = list(WEIGHTS)[:6]
    for part in range(2):
        write_safetensors(tmp_path / f"part{part}.safetensors", {name: WEIGHTS[name] for name in names[part::2]})
    index = tmp_path / "model.safetensors.index.json"
    parts = {name: f"part{place % 2}.safetensors" for place, name in enumerate(names)}
    index.write_text(json.dumps({"metadata": {"note": "x" * 500}, "weight_map": parts}))
    fuzz("index", index, [], lambda: print(len(SafetensorsFolder(tmp_path).tensors)))


def test_damaged_gguf(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    gguf_of_weights(path)
    fuzz("gguf", path, [(0, 64), (0, 900), (0, 4000), (0, 4000)], lambda: read_all(open_gguf(path)))


def test_damaged_llama2c(tmp_path: Path) -> None:
    path = write_llama2c(tmp_path, tied=False)
    fuzz("llama2c", path, [(0, 28), (0, 28)], lambda: read_all(open_llama2c(path)))


def test_damaged_llama2c_tokenizer(tmp_path: Path) -> None:
    path = write_llama2c(tmp_path, tied=True)
    fuzz("tokenizer.bin", tmp_path / "tokenizer.bin", [(0, 64)], lambda: read_all(open_llama2c(path)))


# What random bytes do not find


def header(**tensors: Any) -> bytes:
    text = json.dumps(tensors).encode()
    return len(text).to_bytes(8, "little") + text + bytes(64)


def entry(start: Any = 0, end: Any = 8, shape: Any = (2,), dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape) if isinstance(shape, tuple) else shape, "data_offsets": [start, end]}


def raw(text: bytes) -> bytes:
    return len(text).to_bytes(8, "little") + text


SAFETENSORS = {
    "huge header": ((1 << 63).to_bytes(8, "little") + b"{}", "does not fit"),
    "header of the whole memory": ((1 << 40).to_bytes(8, "little") + b"{}", "does not fit"),
    "overlap": (header(x=entry(), y=entry(4, 12)), "lies over"),
    "same bytes": (header(x=entry(), y=entry()), "lies over"),
    "negative": (header(x=entry(-8, 0)), "do not hold"),
    "backwards": (header(x=entry(8, 0)), "do not hold"),
    "negative shape": (header(x=entry(0, 8, (-1, -2))), "do not hold"),
    "beyond": (header(x=entry(1 << 62, (1 << 62) + 8)), "do not hold"),
    "fractions": (header(x=entry(0.0, 8.0)), "do not hold"),
    "true": (header(x=entry(False, True, (), "F32")), "do not hold"),
    "texts": (header(x=entry("0", "8")), "do not hold"),
    "shape of texts": (header(x=entry(0, 8, "ab")), "do not hold"),
    "no shape": (header(x=entry(0, 8, None)), "not described"),
    "rank": (header(x=entry(0, 4, (1,) * 65)), "do not hold"),
    "dtype list": (header(x=entry(0, 8, (2,), ["F32"])), "is of type"),
    "dtype number": (header(x=entry(0, 8, (2,), 5)), "is of type"),
    "entry list": (header(x=[1, 2]), "not described"),
    "entry null": (header(x=None), "not described"),
    "offsets": (header(x={"dtype": "F32", "shape": [2], "data_offsets": [0, 8, 16]}), "not described"),
    "twice": (raw(b'{"x": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}, "x": {}}'), "there twice"),
    "deep": (raw(b'{"x":' * 100_000), "not JSON"),
    "bytes": (raw(b"\xff\xfe\xfd\xfc"), "not JSON"),
}


@pytest.mark.parametrize("name", SAFETENSORS)
def test_safetensors_that_lie(name: str, tmp_path: Path) -> None:
    content, message = SAFETENSORS[name]
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(FormatError, match=rf"model\.safetensors.*{message}"):
        SafetensorsFolder(tmp_path)


def test_empty_tensors_are_no_damage(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(header(x=entry(64, 64, (0, 3)), y=entry(64, 64, (0,)), z=entry()))
    folder = SafetensorsFolder(tmp_path)
    assert [folder.read(name).shape for name in "xyz"] == [(0, 3), (0,), (2,)]


@pytest.mark.parametrize(
    "part",
    ["../other.safetensors", "/etc/passwd", "a/../part.safetensors", "", ".", "..", "config.json", None, 5, ["part"],
     "part.safetensors\0", "..\\part.safetensors", "missing.safetensors"],
)  # fmt: skip
def test_an_index_stays_in_its_folder(part: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for path in (tmp_path / "other.safetensors", folder / "part.safetensors"):
        write_safetensors(path, {"x": np.zeros(2, np.float32)})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": part}}))
    with pytest.raises(FormatError, match=r"index\.json"):
        SafetensorsFolder(folder)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"weight_map": 5}', b'{"weight_map": ["x"]}', b"\xff", b"[" * 100_000, b"{"]
)
def test_an_index_that_is_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_bytes(content)
    with pytest.raises(FormatError, match=r"index\.json"):
        SafetensorsFolder(tmp_path)


def test_a_shard_without_what_the_index_promises(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "part.safetensors", {"x": np.zeros(2, np.float32)})
    index = {"weight_map": {"x": "part.safetensors", "y": "part.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(FormatError, match=r"part\.safetensors has no tensor y, and the index says it has"):
        SafetensorsFolder(tmp_path)


@pytest.mark.parametrize("place", range(7))
@pytest.mark.parametrize("value", [0, -1, -(2**31), 2**31 - 1, 10**8])
def test_llama2c_headers_that_lie(place: int, value: int, tmp_path: Path) -> None:
    path = write_llama2c(tmp_path, tied=False)
    content = bytearray(path.read_bytes())
    struct.pack_into("<i", content, 4 * place, value)
    path.unlink()
    path.write_bytes(content)
    with pytest.raises(FormatError):
        open_llama2c(path)


def test_billions_of_layers_cost_nothing() -> None:
    config = from_hugging_face({**LLAMA, "num_hidden_layers": 2**31 - 1})
    with pytest.raises(FormatError, match="2147483647 layers, 0 tensors"):
        check_tensors(Checkpoint(config, {}, lambda name: np.zeros(0, np.float32)))


def test_experts_of_every_layer_cost_nothing() -> None:
    """Thousands of both are millions of names."""
    settings = {**MODELS["qwen3moe"], "num_hidden_layers": 4000, "num_experts": 4000, "mlp_only_layers": []}
    shapes = {str(name): (1,) for name in range(5000)}
    with pytest.raises(FormatError, match="16000000 experts, 5000 tensors"):
        check_tensors(Checkpoint(from_hugging_face(settings), shapes, lambda name: np.zeros(0, np.float32)))


JSON: list[Any] = [
    *(None, True, False, 0, 1, -1, 3, 10**12, 10**400, 0.5, -0.5, 1e300, float("nan"), float("inf"), "", "a", "\ud800"),
    *([], [1], ["a"], [[]], [None], {}, {"a": 1}, {"rope_type": "linear"}, {"rope_type": "llama3", "factor": "x"}),
    *({"rope_type": ["linear"]}, {"rope_type": "linear", "factor": 0}, {"rope_type": "longrope"}, {"type": "su"}),
    *({"rope_type": "yarn"}, {"rope_type": "yarn", "factor": 1e-9, "beta_fast": 0, "beta_slow": 1e9}),
    *({"rope_type": "yarn", "factor": 4, "truncate": None, "mscale": 0.5, "mscale_all_dim": 1e-9},),
    *({"rope_type": "yarn", "factor": 4, "rope_theta": 1}, {"rope_type": "dynamic"}),
    *({"rope_type": "dynamic", "factor": 1e30}, {"rope_type": "dynamic", "factor": 0.5, "rope_theta": 1e30}),
    *({"full_attention": 5}, {"full_attention": {}, "sliding_attention": [1]}),
]


@pytest.mark.parametrize("settings", [LLAMA, QWEN3, *MODELS.values()], ids=["llama", "qwen3", *MODELS])
def test_a_config_with_any_value_anywhere(settings: dict[str, Any]) -> None:
    more = ("head_dim", "partial_rotary_factor", "rope_parameters", "layer_types", "use_sliding_window", "num_experts")
    more += ("no_rope_layer_interval", "sliding_window_pattern", "decoder_sparse_step", "hidden_activation")
    accepted = 0
    for key, value in itertools.product(
        {*settings, *more, "sliding_window", "hidden_act", "quantization_config"}, JSON
    ):
        for config, generation in (({**settings, key: value}, {}), (settings, {key: value})):
            made = copy.deepcopy(config)
            accepted += taken(lambda made=made, generation=generation: from_hugging_face(made, generation))
    assert accepted
    for key in settings:
        taken(lambda key=key: from_hugging_face({name: each for name, each in settings.items() if name != key}))


# What only Python says of a value.
FOREIGN = re.compile(r"NoneType|int\(\)|float\(\)|argument must be|not supported between|object is not|unhashable")


def taken(read: Callable[[], ModelConfig]) -> bool:
    """Whether a config is read, and then its tables are numbers; else it is refused in words of ours."""
    try:
        config = read()
    except LiveshapeError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert not FOREIGN.search(refusal), refusal
        return False
    if config.rotary_size <= 1 << 12:
        with np.errstate(all="ignore"):
            for local in (False, True):
                assert all(np.isfinite(table).all() for table in rotary_tables(config, 16, local)), config
    return True


@pytest.mark.parametrize("family", [name for name, family in FAMILIES.items() if family.gguf])
def test_metadata_with_any_value_anywhere(family: str) -> None:
    needed = {
        "attention.head_count": 4,
        "embedding_length": 64,
        "block_count": 2,
        "feed_forward_length": 96,
        f"attention.{'layer_norm' if FAMILIES[family].layer_norm else 'layer_norm_rms'}_epsilon": 1e-5,
    }
    more = (
        "attention.head_count_kv", "attention.key_length", "rope.freq_base", "context_length",
        "rope.dimension_count", "rope.scaling.type", "rope.scaling.factor", "expert_count", "expert_used_count",
        "expert_feed_forward_length", "expert_gating_func", "attention.sliding_window", "attention.scale",
        "attention.sliding_window_pattern", "attn_logit_softcapping", "residual_scale", "logit_scale",
        "embedding_scale", "rope.freq_base_swa", "rope.scaling.original_context_length", "rope.scaling.attn_factor",
        "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
    )  # fmt: skip
    metadata = {"general.architecture": family, **{f"{family}.{key}": value for key, value in needed.items()}}
    keys = [f"{family}.{key}" for key in (*needed, *more)]
    accepted = 0
    yarn = {**metadata, f"{family}.rope.scaling.type": "yarn", f"{family}.rope.scaling.factor": 4.0}
    for key, value in itertools.product(
        ("general.architecture", "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id", *keys), JSON
    ):
        for whole in (metadata, yarn):
            made = {**whole, key: value}
            accepted += taken(lambda made=made: from_gguf(made, 130, True))
    assert accepted
    for key in needed:
        without = {name: value for name, value in metadata.items() if name != f"{family}.{key}"}
        with pytest.raises(FormatError, match=rf"the metadata has no {family}\.{key}, which the model needs"):
            from_gguf(without, 130, True)


def test_experts_without_how_many_are_used() -> None:
    """It was a message of Python's."""
    metadata = {"general.architecture": "llama", "llama.attention.head_count": 4, "llama.embedding_length": 64}
    metadata |= {"llama.block_count": 2, "llama.feed_forward_length": 96, "llama.expert_count": 4}
    with pytest.raises(FormatError, match=r"the metadata has no llama\.expert_used_count"):
        from_gguf(metadata, 130, True)


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        (np.ones((64, 64)), r"has shape \(64, 64\): 8 are needed"),
        (np.full(1, 4.0), r"has shape \(1,\): 8 are needed"),
        (np.ones(3), r"has shape \(3,\): 8 are needed"),
        (np.zeros(8), r"has a factor of 0\.0"),
        (np.full(8, np.nan), r"has a factor of nan"),
        (np.full(8, -1.0), r"has a factor of -1\.0"),
        (np.full(8, np.inf), r"has a factor of inf"),
    ],
)
def test_factors_of_frequencies_that_make_no_sense(factors: Any, message: str, tmp_path: Path) -> None:
    """A wrong shape was a foreign ValueError or taken; 0 and NaN were exported."""
    gguf_of_weights(tmp_path / "tiny.gguf", {"rope_freqs.weight": factors})
    with pytest.raises(FormatError, match=rf"tiny\.gguf: tensor rope_freqs\.weight {message}"):
        open_gguf(tmp_path / "tiny.gguf")


def test_factors_of_frequencies(tmp_path: Path) -> None:
    gguf_of_weights(tmp_path / "tiny.gguf", {"rope_freqs.weight": np.arange(1, 9)})
    assert open_gguf(tmp_path / "tiny.gguf").config.rope_factors == tuple(range(1, 9))


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        (np.ones((8, 8)), r"tensor rope_factors_short\.weight has shape \(8, 8\)"),
        (np.ones(5), r"longrope has 5 factors; 8 above 0"),
        (np.zeros(8), r"tensor rope_factors_short\.weight has a factor of 0\.0"),
    ],
)
def test_long_factors_that_make_no_sense(factors: Any, message: str, tmp_path: Path) -> None:
    both = {f"rope_factors_{kind}.weight": factors for kind in ("short", "long")}
    gguf_of_weights(tmp_path / "tiny.gguf", both)
    with pytest.raises(FormatError, match=message):
        open_gguf(tmp_path / "tiny.gguf")


@pytest.mark.parametrize("key", ["tokens", "token_type", "scores", "merges", "bos_token_id", "eos_token_id"])
@pytest.mark.parametrize("value", [5, True, 0.5, "a", [0.5], ["a"], [True], [5], [["a"]], [float("nan")] * 130])
def test_a_gguf_tokenizer_of_other_kinds(key: str, value: Any, tmp_path: Path) -> None:
    gguf_of_weights(tmp_path / "tiny.gguf", **{f"tokenizer.ggml.{key}": value})
    if (key, value) in (("bos_token_id", 5), ("eos_token_id", 5), ("merges", ["a"])):  # this kind has no merges
        open_gguf(tmp_path / "tiny.gguf")
        return
    with pytest.raises(LiveshapeError):
        open_gguf(tmp_path / "tiny.gguf")


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"[" * 100_000, b"{", b"5"])
def test_settings_that_are_no_tables(name: str, content: bytes, tmp_path: Path) -> None:
    write_folder(tmp_path, LLAMA, WEIGHTS)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FormatError, match=name.replace(".", r"\.")):
        open_folder(tmp_path)


def test_a_checkpoint_that_is_cut_while_it_is_read(tmp_path: Path) -> None:
    write_folder(tmp_path, LLAMA, WEIGHTS)
    path = tmp_path / "model.safetensors"
    checkpoint = open_folder(tmp_path)
    os.truncate(path, 4096)
    with pytest.raises(FormatError, match=r"model\.safetensors: .*cut from"):
        checkpoint.read("model.norm.weight")
    gguf_of_weights(tmp_path / "tiny.gguf")
    for made in (open_gguf(tmp_path / "tiny.gguf"), open_llama2c(write_llama2c(tmp_path, True))):
        for name in ("tiny.gguf", "tiny.bin"):
            if (tmp_path / name).exists():
                os.truncate(tmp_path / name, 4096)
        with pytest.raises(FormatError, match="cut from"):
            made.read("model.norm.weight")
        write_llama2c(tmp_path, True)
