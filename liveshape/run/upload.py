"""Streaming upload to a device buffer, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from liveshape.device.protocol import Buffer, Device


def stream(device: Device, buffer: Buffer, pieces: Iterable[Any], fresh: bool = False) -> None:
    """Upload chunks one after another; all-zero chunks are skipped where the buffer is `fresh` and thus zeroed.

    Example: `stream(device, device.buffer(8, "weights"), [b"abcd", bytes(4)], fresh=True)`.
    """
    offset = 0
    for piece in pieces:
        data = np.frombuffer(piece, np.uint8)
        if not fresh or data.any():
            device.write(buffer, offset, data)
        offset += data.size
