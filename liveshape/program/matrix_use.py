"""Whether matrix units serve a program whose float32 inputs are not rounded: those of float16 and int8 values."""

from __future__ import annotations

from liveshape.errors import LiveshapeError
from liveshape.formats import PteFile, TensorSpec, VkTensor, parse_vkgraph

_MULTIPLIED = ("float16", "int8")


def multiplies_matrices(file: PteFile) -> bool:
    """Whether a program computes with float16 or int8 values, which matrix units multiply as they are.

    Weights alone say nothing: those of 4 and 8 bits are multiplied in float32.

    Example: `multiplies_matrices(open_file("model.pte"))`.
    """
    specs = [value for plan in file.plans for value in plan.values if isinstance(value, TensorSpec)]
    if any(spec.dtype in _MULTIPLIED and (spec.planned or not spec.data_index) for spec in specs):
        return True
    blobs = {id(each.blob): each.blob for plan in file.plans for each in plan.delegates}
    return any(_in_delegate(blob) for blob in blobs.values())


def _in_delegate(blob: memoryview) -> bool:
    try:
        values = parse_vkgraph(blob).values
    except (LiveshapeError, ValueError):  # another backend's, damaged, or closed meanwhile: lowering says so
        return False
    return any(isinstance(each, VkTensor) and each.dtype in _MULTIPLIED and each.constant_id < 0 for each in values)
