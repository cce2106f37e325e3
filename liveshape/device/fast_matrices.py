"""GPUs whose matrix units multiply halves so fast that three such products take less than one of float32 by threads.

By name, so that a program has the same plan, and the same last bits, whenever it runs on a device.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from liveshape.graph.limits import MatrixShape

# Products of halves with sums in float32 are 8 times as fast as float32 or more, by NVIDIA's data sheets: V100 125 and
# 15.7 Tflop/s, T4 65 and 8.1, A30 165 and 10.3, A100 312 and 19.5, H100 and H200 989 and 67, B200 2,250 and 75. H200s
# were measured. GeForce, L4, L40 and A10 have a ratio of 2 to 4: nothing is gained there.
_FAST = re.compile(r"\b(?:V100|T4|A30|A100|A800|G?H100|G?H200|H800|G?B[123]00)\b", re.ASCII)


def are_fast(name: str, matrices: Sequence[MatrixShape]) -> bool:
    """Whether the matrix units of an adapter, as far as they are open, are that fast.

    >>> halves = MatrixShape("float16", "float32", 16, 16, 16)
    >>> are_fast("NVIDIA H200", [halves]), are_fast("NVIDIA GeForce RTX 4090", [halves]), are_fast("NVIDIA H200", [])
    (True, False, False)
    """
    takes_halves = any((each.input, each.result) == ("float16", "float32") for each in matrices)
    return takes_halves and _FAST.search(name.replace("-", " ").replace("_", " ")) is not None
