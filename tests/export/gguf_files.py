"""GGUF files by hand, and the blocks of ggml read one weight at a time, as its C code does."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from liveshape.export.sources.gguf import GgufFile

ALIGNMENT = 32


def write_gguf(
    path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, tuple[int, tuple[int, ...], bytes]], version: int = 3
) -> None:
    """`tensors` gives each name its ggml type, its shape with rows first, and its bytes."""
    head = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(metadata))
    head += b"".join(string(key) + value(content) for key, content in metadata.items())
    body = bytearray()
    for name, (kind, shape, content) in tensors.items():
        head += string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, len(body))
        body += content + bytes(-len(content) % ALIGNMENT)
    path.write_bytes(head + bytes(-len(head) % ALIGNMENT) + body)


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def value(content: Any) -> bytes:
    kind, packed = typed(content)
    return struct.pack("<I", kind) + packed


def typed(content: Any) -> tuple[int, bytes]:
    if isinstance(content, bool):
        return 7, struct.pack("<?", content)
    if isinstance(content, int):
        return 4, struct.pack("<I", content)
    if isinstance(content, float):
        return 6, struct.pack("<f", content)
    if isinstance(content, str):
        return 8, string(content)
    items = [typed(each) for each in content]
    return 9, struct.pack("<IQ", items[0][0], len(items)) + b"".join(item for _, item in items)


def half(raw: bytes, at: int) -> float:
    return float(np.frombuffer(raw, "<f2", 1, at)[0])


def q4_0(raw: bytes) -> list[float]:
    d, qs = half(raw, 0), raw[2:]
    return [d * ((byte & 15) - 8) for byte in qs] + [d * ((byte >> 4) - 8) for byte in qs]


def q4_1(raw: bytes) -> list[float]:
    d, m, qs = half(raw, 0), half(raw, 2), raw[4:]
    return [d * (byte & 15) + m for byte in qs] + [d * (byte >> 4) + m for byte in qs]


def fives(raw: bytes, at: int) -> list[int]:
    high, qs = int.from_bytes(raw[at : at + 4], "little"), raw[at + 4 :]
    low = [(qs[j] & 15) | (((high >> j) << 4) & 16) for j in range(16)]
    return low + [(qs[j] >> 4) | ((high >> (j + 12)) & 16) for j in range(16)]


def q5_0(raw: bytes) -> list[float]:
    return [half(raw, 0) * (each - 16) for each in fives(raw, 2)]


def q5_1(raw: bytes) -> list[float]:
    return [half(raw, 0) * each + half(raw, 2) for each in fives(raw, 4)]


def q8_0(raw: bytes) -> list[float]:
    return [half(raw, 0) * int(each) for each in np.frombuffer(raw, np.int8, 32, 2)]


def q2_k(raw: bytes) -> list[float]:
    scales, qs, d, dmin = raw[:16], raw[16:80], half(raw, 80), half(raw, 82)
    out: list[float] = []
    for start in (0, 32):
        for shift in (0, 2, 4, 6):
            for part in (0, 16):
                scale = scales[len(out) // 16]
                for byte in qs[start + part : start + part + 16]:
                    out.append(d * (scale & 15) * ((byte >> shift) & 3) - dmin * (scale >> 4))
    return out


def q3_k(raw: bytes) -> list[float]:
    mask, qs, packed, d = raw[:32], raw[32:96], raw[96:108], half(raw, 108)
    a0, a1, tmp = struct.unpack("<3I", packed)
    low, two = 0x0F0F0F0F, 0x03030303
    words = (
        (a0 & low) | ((tmp & two) << 4),
        (a1 & low) | (((tmp >> 2) & two) << 4),
        ((a0 >> 4) & low) | (((tmp >> 4) & two) << 4),
        ((a1 >> 4) & low) | (((tmp >> 6) & two) << 4),
    )
    scales = struct.pack("<4I", *words)
    out: list[float] = []
    bit = 1
    for start in (0, 32):
        for shift in (0, 2, 4, 6):
            for part in (0, 16):
                scale = d * (scales[len(out) // 16] - 32)
                for l in range(part, part + 16):  # noqa: E741
                    out.append(scale * (((qs[start + l] >> shift) & 3) - (0 if mask[l] & bit else 4)))
            bit <<= 1
    return out


def scale_min(index: int, packed: bytes) -> tuple[int, int]:
    if index < 4:
        return packed[index] & 63, packed[index + 4] & 63
    return (
        (packed[index + 4] & 15) | ((packed[index - 4] >> 6) << 4),
        (packed[index + 4] >> 4) | ((packed[index] >> 6) << 4),
    )


def q45_k(raw: bytes, high: bytes, qs: bytes) -> list[float]:
    d, dmin, packed = half(raw, 0), half(raw, 2), raw[4:16]
    out: list[float] = []
    for group in range(4):
        for upper in (0, 1):
            scale, least = scale_min(2 * group + upper, packed)
            for l in range(32):  # noqa: E741
                byte = qs[32 * group + l]
                fifth = 16 if high and high[l] & (1 << (2 * group + upper)) else 0
                out.append(d * scale * ((byte >> 4 if upper else byte & 15) + fifth) - dmin * least)
    return out


def q4_k(raw: bytes) -> list[float]:
    return q45_k(raw, b"", raw[16:])


def q5_k(raw: bytes) -> list[float]:
    return q45_k(raw, raw[16:48], raw[48:])


def q6_k(raw: bytes) -> list[float]:
    ql, qh, scales, d = raw[:128], raw[128:192], np.frombuffer(raw, np.int8, 16, 192), half(raw, 208)
    out = [0.0] * 256
    for n in (0, 1):
        for l in range(32):  # noqa: E741
            low, next_low, high = ql[64 * n + l], ql[64 * n + l + 32], qh[32 * n + l]
            quarters = (low & 15, next_low & 15, low >> 4, next_low >> 4)
            for quarter, nibble in enumerate(quarters):
                weight = (nibble | (((high >> (2 * quarter)) & 3) << 4)) - 32
                out[128 * n + 32 * quarter + l] = d * int(scales[8 * n + l // 16 + 2 * quarter]) * weight
    return out


def q8_k(raw: bytes) -> list[float]:
    d = struct.unpack_from("<f", raw)[0]
    return [d * int(each) for each in np.frombuffer(raw, np.int8, 256, 4)]


def mxfp4(raw: bytes) -> list[float]:
    """A sign, two bits of exponent, one of mantissa; where the exponent is 0, halves."""
    values = []
    for nibble in [*(byte & 15 for byte in raw[1:]), *(byte >> 4 for byte in raw[1:])]:
        exponent, mantissa = (nibble >> 1) & 3, nibble & 1
        size = (1 + mantissa / 2) * 2.0 ** (exponent - 1) if exponent else mantissa / 2
        values.append((-size if nibble & 8 else size) * 2.0 ** (raw[0] - 127))
    return values


READERS: Mapping[str, Callable[[bytes], list[float]]] = {
    "Q4_0": q4_0,
    "Q4_1": q4_1,
    "Q5_0": q5_0,
    "Q5_1": q5_1,
    "Q8_0": q8_0,
    "Q2_K": q2_k,
    "Q3_K": q3_k,
    "Q4_K": q4_k,
    "Q5_K": q5_k,
    "Q6_K": q6_k,
    "Q8_K": q8_k,
    "MXFP4": mxfp4,
}


# How weights are written into blocks: the plain way, largest weights first; no search for the least error.
Weights = Any  # float32 (blocks, weights of one)


def packed(codes: Any, bits: int, run: int) -> Any:
    """Codes (blocks, count) as bytes, a run of them with the lowest bits first, then one with the next."""
    apart = codes.astype(np.uint8).reshape(len(codes), -1, 8 // bits, run)
    return np.bitwise_or.reduce(apart << np.arange(0, 8, bits, dtype=np.uint8)[:, None], axis=2).reshape(len(codes), -1)


def records(count: int, **fields: Any) -> bytes:
    """The blocks with these fields, one after the other, in the order given."""
    arrays = {name: np.asarray(content).reshape(count, -1) for name, content in fields.items()}
    made = np.empty(count, [(name, content.dtype, content.shape[1]) for name, content in arrays.items()])
    for name, content in arrays.items():
        made[name] = content
    return made.tobytes()


def halves(numbers: Any) -> Any:
    return numbers.astype("<f2")


def codes_of(x: Any, scale: Any, low: int, high: int) -> Any:
    """The nearest multiples of the scale; a scale of 0 has zeros."""
    scale = scale.astype(np.float32)
    return np.clip(np.rint(x / np.where(scale == 0, 1, scale)), low, high)


def as_symmetric(x: Weights, low: int, most: int) -> tuple[Any, Any]:
    """Scale and codes from low to -low - 1, with the largest weight at low."""
    largest = np.take_along_axis(x, np.abs(x).argmax(1)[:, None], 1)
    d = halves(largest / low)
    return d, codes_of(x, d, low, most)


def as_ranged(x: Weights, most: int) -> tuple[Any, Any, Any]:
    """Scale, minimum and codes from 0 to most."""
    m = halves(x.min(1, keepdims=True))
    d = halves((x.max(1, keepdims=True) - m.astype(np.float32)) / most)
    return d, m, codes_of(x - m.astype(np.float32), d, 0, most)


def to_q4_0(x: Weights) -> bytes:
    d, codes = as_symmetric(x, -8, 7)
    return records(len(x), d=d, qs=packed(codes + 8, 4, 16))


def to_q4_1(x: Weights) -> bytes:
    d, m, codes = as_ranged(x, 15)
    return records(len(x), d=d, m=m, qs=packed(codes, 4, 16))


def fifth(codes: Any) -> Any:
    return np.packbits(codes.astype(np.uint8) >> 4, axis=1, bitorder="little")


def to_q5_0(x: Weights) -> bytes:
    d, codes = as_symmetric(x, -16, 15)
    codes = (codes + 16).astype(np.uint8)
    return records(len(x), d=d, qh=fifth(codes), qs=packed(codes & 15, 4, 16))


def to_q5_1(x: Weights) -> bytes:
    d, m, codes = as_ranged(x, 31)
    codes = codes.astype(np.uint8)
    return records(len(x), d=d, m=m, qh=fifth(codes), qs=packed(codes & 15, 4, 16))


def to_q8_0(x: Weights) -> bytes:
    d = halves(np.abs(x).max(1, keepdims=True) / 127)
    return records(len(x), d=d, qs=codes_of(x, d, -127, 127).astype(np.int8))


def scaled_groups(x: Weights, most: int) -> tuple[dict[str, Any], Any]:
    """The fields d, dmin and scales of Q4_K and Q5_K, and the codes of the weights, from 0 to most."""
    groups = x.reshape(len(x), 8, 32)
    depth = np.maximum(0, -groups.min(2))
    reach = (groups.max(2) + depth) / most
    d, dmin = (halves(each.max(1, keepdims=True) / 63) for each in (reach, depth))
    scales, minima = (codes_of(each, by, 0, 63).astype(np.uint8) for each, by in ((reach, d), (depth, dmin)))
    lifted = groups + (dmin.astype(np.float32) * minima)[:, :, None]
    codes = codes_of(lifted, (d.astype(np.float32) * scales)[:, :, None], 0, most).astype(np.uint8).reshape(x.shape)
    low = [scales[:, :4] | ((scales[:, 4:] >> 4) << 6), minima[:, :4] | ((minima[:, 4:] >> 4) << 6)]
    both = (scales[:, 4:] & 15) | ((minima[:, 4:] & 15) << 4)
    return {"d": d, "dmin": dmin, "scales": np.concatenate([*low, both], 1)}, codes


def to_q4_k(x: Weights) -> bytes:
    fields, codes = scaled_groups(x, 15)
    return records(len(x), **fields, qs=packed(codes, 4, 32))


def to_q5_k(x: Weights) -> bytes:
    fields, codes = scaled_groups(x, 31)
    return records(len(x), **fields, qh=packed(codes >> 4, 1, 32), qs=packed(codes & 15, 4, 32))


def to_q6_k(x: Weights) -> bytes:
    groups = x.reshape(len(x), 16, 16)
    reach = np.abs(groups).max(2) / 31
    d = halves(reach.max(1, keepdims=True) / 127)
    scales = codes_of(reach, d, 0, 127).astype(np.int8)
    codes = codes_of(groups, (d.astype(np.float32) * scales)[:, :, None], -32, 31).reshape(x.shape)
    codes = (codes + 32).astype(np.uint8)
    return records(len(x), ql=packed(codes & 15, 4, 64), qh=packed(codes >> 4, 2, 32), scales=scales, d=d)


# By name: the number in GGUF files, the weights of a block, and how to write blocks.
WRITERS: Mapping[str, tuple[int, int, Callable[[Weights], bytes]]] = {
    "F32": (0, 1, lambda x: x.astype("<f4").tobytes()),
    "F16": (1, 1, lambda x: x.astype("<f2").tobytes()),
    "Q4_0": (2, 32, to_q4_0),
    "Q4_1": (3, 32, to_q4_1),
    "Q5_0": (6, 32, to_q5_0),
    "Q5_1": (7, 32, to_q5_1),
    "Q8_0": (8, 32, to_q8_0),
    "Q4_K": (12, 256, to_q4_k),
    "Q5_K": (13, 256, to_q5_k),
    "Q6_K": (14, 256, to_q6_k),
}
# Of rows that no blocks of 256 make up, as llama-quantize has it.
INSTEAD = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}


def stored(weight: Any, name: str) -> tuple[int, tuple[int, ...], bytes]:
    """A tensor for `write_gguf` in the format of this name, or in the one that its rows allow instead."""
    if weight.shape[-1] % WRITERS[name][1]:
        name = INSTEAD[name]
    number, size, write = WRITERS[name]
    return number, weight.shape, write(weight.reshape(-1, size))


def rewritten(source: Path, target: Path, format_of: Callable[[str], str]) -> None:
    """A GGUF file again with its matrices in other formats, by their names; vectors stay floats."""
    file = GgufFile(source)
    tensors = {}
    for name, tensor in file.tensors.items():
        weight = file.read(name)
        tensors[name] = stored(weight, format_of(name) if len(tensor.shape) == 2 else "F32")
    write_gguf(target, file.metadata, tensors)


def q4_k_m(name: str) -> str:
    """The mix of that name: more bits for the output, half of the values and half of the way back."""
    if name in ("token_embd.weight", "output.weight"):
        return "Q6_K"
    layer = int(name.split(".")[1])
    return "Q6_K" if layer % 2 and ("attn_v" in name or "ffn_down" in name) else "Q4_K"
