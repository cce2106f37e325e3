"""GGUF files by hand, and the blocks of ggml read one weight at a time, as its C code does."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

ALIGNMENT = 32


def write_gguf(
    path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, tuple[int, tuple[int, ...], bytes]], version: int = 3
) -> None:
    """`tensors` gives each name its ggml type, its shape with rows first, and its bytes."""
    head = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(metadata))
    head += b"".join(string(key) + value(content) for key, content in metadata.items())
    body = b""
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
}
