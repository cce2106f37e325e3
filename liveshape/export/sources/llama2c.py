"""llama2.c checkpoints (version 0): a header of seven int32, float32 weights in a fixed order, and a tokenizer.bin."""

from __future__ import annotations

import math
import struct
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from liveshape.disk import read_bytes
from liveshape.errors import FormatError
from liveshape.export.model.checkpoint import Checkpoint, generation_config
from liveshape.export.model.config import ModelConfig
from liveshape.export.sources.rotary_rows import halves_of
from liveshape.export.sources.vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN, Vocabulary, tokenizer_files
from liveshape.formats.source import Source, check_view, drop_pages

_HEADER = struct.Struct("<7i")
_LATER = 0x616B3432  # the magic of the later versions of the format
_BEGIN, _END = 1, 2
_FIRST_TEXT = 259  # ids below are <unk>, <s>, </s> and 256 bytes


def open_llama2c(path: Path) -> Checkpoint:
    """Open a llama2.c checkpoint, with its `tokenizer.bin` in the same folder.

    Example: `open_llama2c(Path("stories15M.bin"))`.
    """
    data = Source(path).view
    if len(data) < _HEADER.size:
        raise FormatError(f"{path} is too short for a llama2.c checkpoint")
    hidden, feed_forward, layers, heads, kv_heads, vocabulary, context = _HEADER.unpack_from(data)
    if hidden == _LATER:
        raise FormatError(f"{path}: a llama2.c checkpoint of version {feed_forward}; only version 0 can be read")
    if min(hidden, feed_forward, layers, heads, kv_heads, abs(vocabulary), context) < 1 or hidden % heads:
        raise FormatError(f"{path} does not begin with the sizes of a llama2.c checkpoint")
    config = ModelConfig(
        family="llama",
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_size=hidden // heads,
        feed_forward=feed_forward,
        vocabulary=abs(vocabulary),
        norm_eps=1e-5,
        rope_theta=10000.0,
        rotary_size=hidden // heads,
        context=context,
        tied=vocabulary > 0,  # a negative size means an untied LM head
        begin=_BEGIN,
        # The training data separates stories by BOS alone.
        ends=(_END, _BEGIN),
    )
    # Before the offsets of all tensors are listed: a header can claim billions of layers.
    least = _HEADER.size + 4 * config.parameters
    if least > len(data):
        raise FormatError(f"{path}: its sizes ask for {least} bytes, the file has {len(data)}")
    places = _places(config)
    end = max(offset + 4 * prod(shape) for offset, shape in places.values())
    # Tied checkpoints may end with the RoPE cos and sin tables.
    if not end <= len(data) <= end + (_table_bytes(config) if config.tied else 0):
        raise FormatError(f"{path}: its sizes ask for {end} bytes, the file has {len(data)}")

    def read(name: str, rows: slice = slice(None)) -> npt.NDArray[np.float32]:
        offset, shape = places[name]
        check_view(data)
        drop_pages(data)  # of earlier reads
        weight = np.frombuffer(data, "<f4", prod(shape), offset).reshape(shape)
        halves = halves_of(config, name)
        return weight[rows if halves is None else halves[rows]]

    files = dict(tokenizer_files(read_tokenizer(path.with_name("tokenizer.bin"), config.vocabulary)))
    files["generation_config.json"] = generation_config(config)
    return Checkpoint(config, {name: shape for name, (_, shape) in places.items()}, read, files, read)


def _places(config: ModelConfig) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Offset and shape of every tensor; each kind is stored for all layers in a row."""
    query, pair = config.heads * config.head_size, config.kv_heads * config.head_size
    hidden, wide = config.hidden, config.feed_forward
    order: list[tuple[str, tuple[int, ...]]] = [("model.embed_tokens.weight", (config.vocabulary, hidden))]
    kinds: list[tuple[str, tuple[int, ...]]] = [
        ("input_layernorm", (hidden,)),
        ("self_attn.q_proj", (query, hidden)),
        ("self_attn.k_proj", (pair, hidden)),
        ("self_attn.v_proj", (pair, hidden)),
        ("self_attn.o_proj", (hidden, query)),
        ("post_attention_layernorm", (hidden,)),
        ("mlp.gate_proj", (wide, hidden)),
        ("mlp.down_proj", (hidden, wide)),
        ("mlp.up_proj", (wide, hidden)),
    ]
    for kind, shape in kinds:
        order += [(f"model.layers.{index}.{kind}.weight", shape) for index in range(config.layers)]
    order.append(("model.norm.weight", (hidden,)))
    offset, places = _HEADER.size, {}
    for name, shape in order:
        places[name] = (offset, shape)
        offset += 4 * prod(shape)
    if not config.tied:
        places["lm_head.weight"] = (offset + _table_bytes(config), (config.vocabulary, hidden))
    return places


def _table_bytes(config: ModelConfig) -> int:
    """Bytes of the RoPE cos and sin tables in the file, which are skipped."""
    return 2 * 4 * config.context * config.head_size // 2


def _spelled(index: int, piece: str) -> str:
    """A token in sentencepiece's spelling. The file stores byte tokens as characters, which would match text."""
    if _END < index < _FIRST_TEXT:
        return f"<0x{index - _END - 1:02X}>"
    return piece.strip("\n") if index <= _END else piece.replace(" ", "▁")


def read_tokenizer(path: Path, size: int) -> Vocabulary:
    """Read tokens and scores of a llama2.c `tokenizer.bin`, in sentencepiece's spelling.

    Example: `read_tokenizer(Path("tokenizer.bin"), 32000).tokens[9038]`.
    """
    data = read_bytes(path)
    offset = 4  # max_token_length comes first
    tokens: list[str] = []
    scores: list[float] = []
    for index in range(size):
        if offset + 8 > len(data):
            raise FormatError(f"{path} ends after {index} of {size} pieces")
        score, length = struct.unpack_from("<fi", data, offset)
        if not 0 <= length <= len(data) - offset - 8:
            raise FormatError(f"{path}: piece {index} of {length} bytes does not fit the file")
        if not math.isfinite(score):
            raise FormatError(f"{path}: piece {index} has the score {score}; a number is needed")
        piece = data[offset + 8 : offset + 8 + length].decode("utf-8", "replace")
        tokens.append(_spelled(index, piece))
        scores.append(score)
        offset += 8 + length
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * (_FIRST_TEXT - 3), *[NORMAL] * (size - _FIRST_TEXT)][:size]
    return Vocabulary(model="llama", tokens=tokens, kinds=kinds, scores=scores, begin=_BEGIN, end=_END, adds_begin=True)
