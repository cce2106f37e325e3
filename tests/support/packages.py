"""Packages of models without their compiled libraries, which are built for other devices: the models are Python.

What their libraries would bring is declared here, before torchvision, torchaudio or transformers, which imports both,
is imported for the first time.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import torch

# Kept for as long as the process: torch forgets the operators of a library that is collected.
_DECLARED = torch.library.Library("torchvision", "FRAGMENT")


def declare_libraries() -> None:
    """Two operators of torchvision, which no model calls, and torchaudio's answer that it has no library."""
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            _DECLARED.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    absent: Any = ModuleType("torchaudio._extension")
    absent._IS_TORCHAUDIO_EXT_AVAILABLE = False
    absent.fail_if_no_align = lambda function: function
    sys.modules.setdefault(absent.__name__, absent)
